"""Requests and limits of the pods, and the sums of them in the guide."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from tests.support.deployment.kubernetes import FOLDER, NAMES, Resource, of_kind, patches, pods, unpatched_resources
from tests.support.tables import each

RESOURCES = unpatched_resources()
PODS = pods(RESOURCES)
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "m": 0.001, "": 1.0}
LOGS = 50 << 20  # bytes that the kubelet keeps of a container by default: five files of 10 MiB


def number(quantity: object) -> float:
    """A quantity of Kubernetes in cores or bytes."""
    match = re.fullmatch(r"([0-9.]+)(Ki|Mi|Gi|m|)", str(quantity))
    assert match, quantity
    return float(match[1]) * UNITS[match[2]]


def volumes_of(name: str) -> list[Resource]:
    """The volumes of a pod; those of services are partly in a patch."""
    common = [patch for patch in patches() if patch["metadata"]["name"] == "any" and "strategy" in patch["spec"]]
    specs = [PODS[name]["spec"], *(patch["spec"]["template"]["spec"] for patch in common if name in NAMES.values())]
    return [volume for spec in specs for volume in spec["volumes"]]


@each("name", PODS)
def test_ephemeral_storage_covers_the_temporary_files_of_a_pod(name: str) -> None:
    volumes = sum(number(volume["emptyDir"]["sizeLimit"]) for volume in volumes_of(name) if "emptyDir" in volume)
    rows = [container["resources"] for container in PODS[name]["spec"]["containers"]]
    limit = sum(number(row["limits"]["ephemeral-storage"]) for row in rows)
    assert limit >= volumes + LOGS * len(rows)
    assert all(0 < number(row["requests"]["ephemeral-storage"]) <= limit for row in rows)


def total(replicas: Mapping[str, int], kind: str) -> Counter[str]:
    """The sum of the requests or limits of so many pods of each name."""
    result: Counter[str] = Counter()
    for name, count in replicas.items():
        for container in PODS[name]["spec"]["containers"]:
            for resource, quantity in container["resources"][kind].items():
                result[resource] += count * number(quantity)  # type: ignore[assignment]  # cores are fractions
    return result


def row(replicas: Mapping[str, int]) -> list[str]:
    """Requested cores, memory and disk, and the limit of memory, as the guide writes them."""
    requests, limits = total(replicas, "requests"), total(replicas, "limits")
    mebibytes = [requests["memory"], limits["memory"], requests["ephemeral-storage"], limits["ephemeral-storage"]]
    return [f"{requests['cpu']:.2f}", *(f"{size / (1 << 20):,.0f} MiB" for size in mebibytes)]


def of_each(count: int, names: Iterable[str] = NAMES.values()) -> dict[str, int]:
    return dict.fromkeys(names, count)


HIGHEST = {
    name: scaler["spec"]["maxReplicas"] for name, scaler in of_kind("HorizontalPodAutoscaler", RESOURCES).items()
}


@each(
    ("text", "replicas"),
    [
        ("`single-node`", of_each(1)),
        ("`single-node` during an update", of_each(2)),
        ("`production`", of_each(2)),
        ("`production` during an update", of_each(3)),
        ("`production`, each service scaled to its maximum", HIGHEST),
        ("`components/scan`", of_each(1, ("clamd", "freshclam"))),
        ("`components/backup`, while it runs", of_each(1, ("backup",))),
        ("the operator's pod", of_each(1, ("operator",))),
    ],
)
def test_the_guide_has_the_sums_of_requests_and_limits(text: str, replicas: Mapping[str, int]) -> None:
    guide = (FOLDER.parent / "docs" / "sizing.md").read_text().splitlines()
    assert f"| {text} | {' | '.join(row(replicas))} |" in guide
