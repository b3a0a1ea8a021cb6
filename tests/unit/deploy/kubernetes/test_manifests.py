"""The Kubernetes manifests: settings, rights, secrets, private authorities, requests and limits."""

import asyncio
import os
import re
import sys
from asyncio import StreamReader, StreamWriter
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from unittest.mock import patch

import pytest

from common.http.server import DRAIN_TIMEOUT, SHUTDOWN_TIMEOUT
from common.settings import BadSetting, load
from deploy.cluster.rights import DEFAULT_USER, MONGODB, OPERATOR, RABBITMQ, REDIS, OtherStores
from deploy.cluster.secrets import SETTINGS, ClusterSecrets
from deploy.local.certificates import Certificates
from deploy.operator.stores import StoreSettings
from tests.support.deployment.kubernetes import (
    FOLDER,
    NAMES,
    OVERLAYS,
    VERSIONS,
    Resource,
    describe,
    image_environment,
    kustomizations,
    of_kind,
    patches,
    pods,
    selected,
    settings_of,
    unpatched_resources,
    validation_error,
    with_schema,
)
from tests.support.tables import each

RESOURCES = unpatched_resources()
COMMON = next(change for change in patches() if describe(change) == "Deployment any" and "strategy" in change["spec"])
STORES = {"mongo_url": "mongodb://u:p@mongodb.stores/", "redis_url": "rediss://:p@r", "rabbitmq_url": "amqps://u:p@q"}
CLOSING = 5  # seconds that a service may take to close its resources
BESIDE = ("backup", "first-tenant", "operator")  # pods that run the operator's command
SCANNER = ("clamd", "freshclam")


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """The folder of `pkgrepo cluster secrets`."""
    ClusterSecrets(tmp_path, load(OtherStores, **STORES)).generate()
    return tmp_path


def container(service: str) -> Resource:
    container_spec: Resource = pods(RESOURCES)[NAMES[service]]["spec"]["containers"][0]
    return container_spec


def variables(service: str) -> dict[str, str]:
    """The environment of a service, with object storage."""
    added = [
        change["spec"]["template"]["spec"] for change in patches() if describe(change) == f"Deployment {NAMES[service]}"
    ]
    containers = [container(service), *(spec["containers"][0] for spec in added)]
    return {row["name"]: row["value"] for spec in containers for row in spec.get("env", [])}


def generated() -> dict[str, list[str]]:
    """The files of each Secret."""
    return {row["name"]: row["files"] for row in kustomizations()[FOLDER / "secrets"]["secretGenerator"]}


@each("version", VERSIONS)
@each("resource", with_schema(RESOURCES), ids=describe)
def test_every_resource_matches_the_kubernetes_schema(resource: Resource, version: str) -> None:
    assert validation_error(resource, version) == ""


@each("service", SETTINGS)
def test_every_variable_is_a_setting_of_its_service(service: str) -> None:
    names = {variable.removesuffix("_FILE").lower() for variable in variables(service)}
    assert names <= {*SETTINGS[service].model_fields, "tmpdir"}  # Python reads that one.


@each("overlay", OVERLAYS)
def test_every_setting_of_an_overlay_belongs_to_a_service(overlay: str) -> None:
    setting_names = {name.upper() for settings in SETTINGS.values() for name in settings.model_fields}
    assert set(settings_of(overlay)) <= setting_names


@each(("service", "overlay"), list(product(SETTINGS, OVERLAYS)))
def test_a_service_starts_with_its_variables_and_addresses(service: str, overlay: str, secrets: Path) -> None:
    values = {**image_environment(), **settings_of(overlay), **variables(service)}
    values |= {name: "" for name in values if name.startswith(("S3_", "INSTALLER_STORAGE"))}
    local_values = {
        name: re.sub("^/run/(keys|urls)/", rf"{secrets}/\1/{service}/", value) for name, value in values.items()
    }
    with patch.dict(os.environ, local_values, clear=True):
        settings = load(SETTINGS[service])
    addresses = {f"{name}_url": f"http://{address}:8080" for name, address in NAMES.items()} | STORES
    if service == "gateway":
        addresses["upload_service_url"] = "http://upload-replicas:8080"
    addresses_read = {name: getattr(settings, name) for name in type(settings).model_fields if name in addresses}
    assert addresses_read == {name: addresses[name] for name in addresses_read}
    assert settings.listen == "0.0.0.0:8080"


@each("service", SETTINGS)
def test_a_service_gets_exactly_its_generated_secrets(service: str, secrets: Path) -> None:
    volumes = {volume["name"]: volume for volume in pods(RESOURCES)[NAMES[service]]["spec"]["volumes"]}
    for kind in ("keys", "urls"):
        generated_files = {file.relative_to(secrets).as_posix() for file in (secrets / kind / service).iterdir()}
        assert set(generated()[volumes[kind]["secret"]["secretName"]]) == generated_files


def test_operators_have_room_for_the_records_of_an_archive() -> None:
    [tmp_volume] = [volume for volume in pods(RESOURCES)["operator"]["spec"]["volumes"] if volume["name"] == "tmp"]
    assert re.fullmatch(r"[1-9]\d*Gi", tmp_volume["emptyDir"]["sizeLimit"])


@each("pod", BESIDE)
def test_a_command_has_the_files_that_it_reads(pod: str, secrets: Path) -> None:
    files = generated()["operator"]
    assert all((secrets / file).is_file() for file in files)
    [command] = pods(RESOURCES)[pod]["spec"]["containers"]
    reads = [row["value"] for row in command["env"]]
    reads += [argument for argument in command["command"] if argument.startswith("/run/")]
    assert set(reads) <= {f"/run/secrets/{Path(file).name}" for file in files}
    assert {row["name"].removesuffix("_FILE").lower() for row in command["env"]} <= set(StoreSettings.model_fields)


def test_git_ignores_secrets() -> None:
    assert (FOLDER / "secrets" / ".gitignore").read_text().split() == ["*", "!.gitignore", "!kustomization.yaml"]


def test_secrets_of_external_stores_have_only_addresses(secrets: Path) -> None:
    for name, url in STORES.items():
        files = sorted(secrets.glob(f"urls/*/{name}"))
        assert files
        assert {file.read_text() for file in files} == {url}
    assert sorted(path.name for path in secrets.iterdir()) == ["administrator", "keys", "urls"]


def test_the_guide_lists_the_rights_of_every_user_at_every_store() -> None:
    guide = (FOLDER / "README.md").read_text().splitlines()
    for user, databases in MONGODB.items():
        role = "; `pkgrepoConnections`" if user == OPERATOR else ""
        assert f"| `{user}` | `readWrite` on {', '.join(f'`{name}`' for name in databases)}{role} |" in guide
    assert DEFAULT_USER in guide
    for user in SETTINGS.keys() & REDIS.keys() | {OPERATOR}:
        assert f"user {user} on resetchannels {REDIS[user]}" in guide
    for user, rights in RABBITMQ.items():
        permissions = f"'{rights.configure}' '{rights.write}' '{rights.read}'"
        assert f"$ rabbitmqctl set_permissions {user} {permissions}" in guide


def test_the_guide_lists_the_files_of_the_addresses(secrets: Path) -> None:
    guide = (FOLDER / "README.md").read_text().splitlines()
    for folder in (secrets / "urls").iterdir():
        [row] = [line for line in guide if line.startswith("| ") and f"`{folder.name}`" in line and "_url`" in line]
        assert set(re.findall(r"`(\w+_url)`", row)) == {file.name for file in folder.iterdir()}


def test_the_guide_has_the_number_of_generated_secrets(secrets: Path) -> None:
    files = {file for file in secrets.rglob("*") if file.is_file()} - set(secrets.glob("urls/*/*"))
    guide = (FOLDER / "README.md").read_text().splitlines()
    assert f"deploy/kubernetes/secrets: {len(files)} new secrets" in guide


def test_the_guide_names_every_secret() -> None:
    guide = (FOLDER / "README.md").read_text()
    assert [name for name in generated() if f"`{name}`" not in guide] == []


def test_a_moved_store_changes_only_its_address(secrets: Path) -> None:
    before = {file: file.read_bytes() for file in secrets.rglob("*") if file.is_file()}
    moved = load(OtherStores, **{**STORES, "redis_url": "redis://elsewhere"})
    generated_files = ClusterSecrets(secrets, moved).generate()
    assert set(generated_files) == set(secrets.glob("urls/*/redis_url"))
    assert {file.read_text() for file in generated_files} == {"redis://elsewhere"}
    assert {file: file.read_bytes() for file in before if file not in generated_files} == {
        file: text for file, text in before.items() if file not in generated_files
    }


def test_an_invalid_address_is_refused_before_it_is_written() -> None:
    with pytest.raises(BadSetting, match="MONGO_URL"):
        load(OtherStores, mongo_url="postgres://u:p@h")


def test_the_grace_period_of_a_pod_covers_the_shutdown() -> None:
    spec = COMMON["spec"]["template"]["spec"]
    [service] = spec["containers"]
    out_of_the_way = service["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert out_of_the_way > 0
    assert spec["terminationGracePeriodSeconds"] >= out_of_the_way + 2 * DRAIN_TIMEOUT + SHUTDOWN_TIMEOUT + CLOSING
    assert COMMON["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@each("spec", [COMMON["spec"]["template"]["spec"], *(pods(RESOURCES)[name]["spec"] for name in (*BESIDE, *SCANNER))])
def test_a_pod_has_no_more_rights_than_it_needs(spec: Resource) -> None:
    assert spec["automountServiceAccountToken"] is False
    pod = spec["securityContext"]
    assert (pod["runAsNonRoot"], pod["runAsUser"], pod["seccompProfile"]) == (True, 10001, {"type": "RuntimeDefault"})
    assert [container_spec["securityContext"] for container_spec in spec["containers"]] == [
        {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    ]


def test_no_service_has_kubernetes_rights() -> None:
    for name, pod in pods(RESOURCES).items():
        if name not in {*BESIDE, *SCANNER}:
            spec = pod["spec"]
            assert not {"securityContext", "hostNetwork", "automountServiceAccountToken"} & {
                *spec,
                *(value for rule in spec["containers"] for value in rule),
            }


@each("folder", ["overlays/production", "overlays/single-node", "operator"])
def test_every_image_has_an_exact_version(folder: str) -> None:
    [image] = kustomizations()[FOLDER / folder]["images"]
    assert image["name"] == container("gateway")["image"]
    assert image.get("digest") or image["newTag"] not in {"latest", ""}


@each("folder", ["overlays/production", "overlays/single-node", "operator", "secrets", "stores"])
def test_what_is_applied_has_the_recommended_labels(folder: str) -> None:
    [labels] = kustomizations()[FOLDER / folder]["labels"]
    assert labels["pairs"] == {
        "app.kubernetes.io/part-of": "pkgrepo",
        "app.kubernetes.io/instance": "pkgrepo",
        "app.kubernetes.io/version": version("pkgrepo"),
        "app.kubernetes.io/managed-by": "kustomize",
    }


@each("kind", ["HorizontalPodAutoscaler", "PodDisruptionBudget"])
def test_every_service_has_autoscaling_and_a_disruption_budget(kind: str) -> None:
    resources = of_kind(kind, RESOURCES)
    assert sorted(resources) == sorted(NAMES.values())
    for name, resource in resources.items():
        if kind == "HorizontalPodAutoscaler":
            assert resource["spec"]["scaleTargetRef"]["name"] == name
            assert 2 <= resource["spec"]["minReplicas"] < resource["spec"]["maxReplicas"]
        else:
            assert selected(resource["spec"]["selector"]) == [name]
            assert resource["spec"]["maxUnavailable"] == 1


# Each client opens a connection to localhost, and ignores that no store answers there.
PROGRAM = """
import asyncio, aiohttp, aio_pika, sys
from common.mongo import open_database
from common.redis import open_redis

async def mongodb(port):
    async with open_database(f"mongodb://localhost:{port}/?tls=true", "x") as database:
        await database.command("ping")

async def redis(port):
    async with open_redis(f"rediss://localhost:{port}") as client:
        await client.ping()

async def rabbitmq(port):
    await aio_pika.connect(f"amqps://user:password@localhost:{port}/")

async def https(port):
    async with aiohttp.ClientSession() as session:
        await session.get(f"https://localhost:{port}/")

async def main():
    clients = zip((mongodb, redis, rabbitmq, https), sys.argv[1:])
    await asyncio.gather(*(client(port) for client, port in clients), return_exceptions=True)

asyncio.run(main())
"""
CLIENTS = ["mongodb", "redis", "rabbitmq", "https"]


@pytest.mark.full
async def test_every_client_trusts_the_authorities_of_the_file(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path, ["localhost"])
    accepted: set[str] = set()

    def accept(client: str, _: StreamReader, writer: StreamWriter) -> None:
        accepted.add(client)
        writer.close()

    async with AsyncExitStack() as stack:
        ports = []
        for client in CLIENTS:
            server = await asyncio.start_server(partial(accept, client), "localhost", 0, ssl=certificates.context)
            await stack.enter_async_context(server)
            ports.append(str(server.sockets[0].getsockname()[1]))
        for file, trusting in (("missing.pem", []), ("ca.crt", CLIENTS)):
            environment = {**os.environ, "SSL_CERT_FILE": str(tmp_path / file)}
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, *ports, env=environment)
            assert await process.wait() == 0
            assert accepted == set(trusting)


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
