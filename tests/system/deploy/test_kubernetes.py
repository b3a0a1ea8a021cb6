"""The Kubernetes manifests on a real control plane, with Pod Security enforced: `make test-kubernetes`."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.deployment.control_plane import ControlPlane, Installation, KubectlFailed, run_control_plane
from tests.support.deployment.kustomize import ROUTES, components, copy_manifests, copy_with_components
from tests.support.wait import until

# The resources of a namespace are counted, so that a pod without requests and limits would be refused.
QUOTA = ",".join(
    f"{kind}.{resource}={amount}"
    for kind in ("requests", "limits")
    for resource, amount in (("cpu", "200"), ("memory", "200Gi"), ("ephemeral-storage", "500Gi"))
)
OWNERS = {
    *("auth-service", "catalog-service", "client-registry", "gateway", "upload-service"),
    *("clamd", "freshclam", "first-tenant", "backup", "operator"),
}


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with run_control_plane(tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture
async def installation(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Installation]:
    """Production with all components, not applied yet, in a namespace of its own."""
    name = f"pkgrepo-{uuid4().hex[:8]}"
    manifests = copy_manifests(tmp_path)
    overlay = manifests / "overlays" / "all"
    copy_with_components(
        manifests / "overlays" / "production", overlay.name, components(without=["gateway-api", "openshift"])
    )
    result = Installation(control_plane, overlay, name)
    result.edit(namespace=name)
    Installation(control_plane, manifests / "operator", name).edit(namespace=name)
    yield result
    await control_plane.run("delete", "namespace", name, "--ignore-not-found", "--wait=false")


@pytest.mark.parametrize("routes", ROUTES)
async def test_production_is_accepted_without_a_warning(installation: Installation, routes: str) -> None:
    [other] = set(ROUTES) - {routes}
    installation.edit(components=components(without=[other, "openshift"]))
    rendered, _ = await installation.kubectl("kustomize", str(installation.overlay))
    applied, warnings = await installation.apply()
    assert warnings == []
    assert [line for line in applied if not line.endswith(" serverside-applied")] == []
    assert len(applied) == len([line for line in rendered if line.startswith("kind: ")])


async def test_production_applied_again_does_not_differ(installation: Installation) -> None:
    await installation.apply()
    difference, _ = await installation.kubectl("diff", "--server-side", "-k", str(installation.overlay))
    applied, warnings = await installation.apply()
    assert (difference, warnings) == ([], [])
    assert applied


async def test_every_pod_is_admitted_by_pod_security_and_a_quota(installation: Installation) -> None:
    await installation.control_plane.run("create", "namespace", installation.namespace)
    await installation.kubectl("create", "quota", "all", f"--hard={QUOTA}")
    await installation.apply()
    await installation.kubectl("apply", "--server-side", "-k", str(installation.overlay.parents[1] / "operator"))
    await installation.kubectl("create", "job", "backup-now", "--from", "cronjob/backup")

    async def admitted() -> bool:
        pods = await installation.resources("pods")
        refused = [
            event["message"] for event in await installation.resources("events") if event["reason"] == "FailedCreate"
        ]
        assert refused == []
        return {pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in pods} == OWNERS

    await until(admitted)
    label = "pod-security.kubernetes.io/enforce=restricted"
    _, warnings = await installation.kubectl(
        "label", "namespace", installation.namespace, label, "--overwrite", "--dry-run=server"
    )
    assert warnings == []


async def test_the_scanner_s_pods_stay_on_one_node_when_one_is_replaced(installation: Installation) -> None:
    names = [f"{installation.namespace}-{number}" for number in range(3)]
    claim = {"namespace": installation.namespace, "name": "signatures"}

    async def places() -> dict[str, tuple[str, str]]:
        """The id and the node of each pod of the scanner that has a node."""
        pods = {pod["metadata"]["name"]: pod for pod in await installation.resources("pods")}
        return {
            name: (pods[name]["metadata"]["uid"], pods[name]["spec"]["nodeName"])
            for name in ("clamd-0", "freshclam-0")
            if "nodeName" in pods.get(name, {"spec": {}})["spec"]
        }

    async def are_placed() -> bool:
        return len(await places()) == 2

    async def is_replaced() -> bool:
        return await are_placed() and (await places())["clamd-0"][0] != before["clamd-0"][0]

    await installation.apply()
    async with installation.control_plane.nodes(names, claim):
        await until(are_placed)
        before = await places()
        assert len({node for _, node in before.values()}) == 1
        await installation.kubectl("delete", "pod", "clamd-0", "--force", "--grace-period=0")
        await until(is_replaced)
        assert {node for _, node in (await places()).values()} == {node for _, node in before.values()}


async def test_pod_security_refuses_a_pod_of_root(installation: Installation) -> None:
    await installation.apply()
    with pytest.raises(KubectlFailed, match='violates PodSecurity "restricted'):
        await installation.kubectl("run", "root", "--image", "registry.example.com/pkgrepo:1.0.0")


async def test_a_scaled_service_stays_scaled_when_applied_again(installation: Installation) -> None:
    await installation.apply()

    async def replicas() -> int:
        [deployment] = [
            each for each in await installation.resources("deployments") if each["metadata"]["name"] == "gateway"
        ]
        return int(deployment["status"].get("updatedReplicas", 0))

    async def has_three() -> bool:
        return await replicas() == 3

    await installation.kubectl("scale", "deployment/gateway", "--replicas", "3")
    await until(has_three)
    await installation.apply()
    assert await replicas() == 3


async def test_the_documented_upgrade_works_after_an_undo(installation: Installation) -> None:
    for tag in ("1.0.0", "1.1.0"):
        installation.set_image(tag)
        await installation.follow_guide("Upgrade")
        assert await installation.images() == {f"registry.example.com/pkgrepo:{tag}"}
    await installation.kubectl("rollout", "undo", "deployment/gateway")
    assert len(await installation.images()) == 2
    installation.set_image("1.2.0")
    await installation.follow_guide("Upgrade")
    assert await installation.images() == {"registry.example.com/pkgrepo:1.2.0"}


async def test_a_setting_changes_while_the_first_job_exists(installation: Installation) -> None:
    await installation.apply()
    settings = installation.overlay / "settings.env"
    settings.write_text(settings.read_text().replace("LOG_LEVEL=info", "LOG_LEVEL=debug"))
    [before] = [job["metadata"]["uid"] for job in await installation.resources("jobs")]
    await installation.apply()
    assert [job["metadata"]["uid"] for job in await installation.resources("jobs")] == [before]


async def test_a_deleted_installation_leaves_nothing(installation: Installation) -> None:
    await installation.apply()
    await installation.kubectl("delete", "-k", str(installation.overlay), "--wait=false")

    async def is_gone() -> bool:
        namespaces, _ = await installation.control_plane.run("get", "namespaces", "--output", "name")
        return f"namespace/{installation.namespace}" not in namespaces

    await until(is_gone)
