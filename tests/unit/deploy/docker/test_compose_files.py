"""The compose files set the settings of the services, and no others."""

import os
import re
import subprocess
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from deploy.cli.secrets import cluster as cluster_commands
from deploy.cluster.secrets import SERVICES_USER, SETTINGS, ClusterSecrets, prepare_backup_folder
from tests.support.deployment.kubernetes import NAMES, patches, pods, unpatched_resources
from tests.support.tables import each

DEPLOY = Path(__file__).parents[4] / "deploy"
FILES = sorted(DEPLOY.glob("compose*.yaml"))
BASE = DEPLOY / "compose.yaml"
EXTERNAL = DEPLOY / "compose.external-stores.yaml"
WATCHING = DEPLOY / "compose.observability.yaml"
SCANNER = DEPLOY / "compose.scan.yaml"
STORES = ("mongodb", "redis", "rabbitmq")
OF_LIBRARIES = {"PYTHONPATH", "TMPDIR", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"}


class _Loader(yaml.SafeLoader):
    """A loader for the tags of compose."""


def _replacement(loader: _Loader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.MappingNode)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("!reset", lambda *_: None)
_Loader.add_constructor("!override", _replacement)


@cache
def content(file: Path) -> Mapping[str, Any]:
    read: Mapping[str, Any] = yaml.load(file.read_text(), _Loader)  # noqa: S506  a safe one
    return read


def services(file: Path) -> Mapping[str, dict[str, Any]]:
    """The services of a file, without those that it removes."""
    return {name: service for name, service in content(file)["services"].items() if service is not None}


def added(file: Path) -> Mapping[str, dict[str, Any]]:
    """The containers that a file adds."""
    return {name: service for name, service in services(file).items() if "image" in service}


def setting(variable: str) -> str:
    return variable.removesuffix("_FILE").lower()


@each("file", FILES, ids=lambda file: file.name)
@each("service", SETTINGS)
def test_every_variable_is_a_setting_of_its_service(file: Path, service: str) -> None:
    variables = set(services(file).get(service, {}).get("environment", {})) - OF_LIBRARIES
    assert {setting(variable) for variable in variables} <= set(SETTINGS[service].model_fields)


@each("service", SETTINGS)
def test_a_service_gets_every_address_and_every_secret(service: str) -> None:
    configured = {setting(variable) for variable in services(BASE)[service]["environment"]}
    required = {name for name in SETTINGS[service].model_fields if name.endswith(("_key", "_url"))} - {"internal_key"}
    assert required - configured <= {"download_url", "public_url", "s3_url", "s3_secret_access_key", "scanner_url"}


@each("service", SETTINGS)
def test_a_service_reads_its_secrets_from_generated_files(service: str, tmp_path: Path) -> None:
    ClusterSecrets(tmp_path).generate()
    for variable, value in services(BASE)[service]["environment"].items():
        if variable.endswith("_FILE"):
            _, _, kind, name = value.split("/")
            assert (tmp_path / kind / service / name).is_file()
            assert any(
                mount.endswith(f"/{kind}/{service}:/run/{kind}:ro") for mount in services(BASE)[service]["volumes"]
            )


def test_only_its_owner_can_read_a_secret(tmp_path: Path) -> None:
    for file in ClusterSecrets(tmp_path / "secrets").generate():
        assert file.stat().st_mode & 0o077 == 0
        assert file.parent.stat().st_mode & 0o077 == 0


def test_services_share_the_keys_of_shared_settings_and_no_others(tmp_path: Path) -> None:
    keys = [file for file in ClusterSecrets(tmp_path).generate() if file.relative_to(tmp_path).parts[0] == "keys"]
    assert len({file.read_text() for file in keys}) == len({file.name for file in keys}) < len(keys)


def test_only_the_gateway_has_a_published_port() -> None:
    assert [name for name, service in services(BASE).items() if service.get("ports")] == ["gateway"]


@each("file", FILES, ids=lambda file: file.name)
def test_every_image_is_a_variable_whose_default_is_an_exact_version(file: Path) -> None:
    images = {name: service["image"] for name, service in services(file).items() if "image" in service}
    pinned = re.compile(r"\$\{[A-Z]+_IMAGE:-[a-z/]+:v?\d+\.\d+\.\d+(-[a-z]+)?\}")
    assert [name for name, image in images.items() if not pinned.fullmatch(image)] == []


def test_the_services_run_the_image_of_the_version_in_pyproject() -> None:
    version = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["version"]
    images = {services(BASE)[name]["image"] for name in (*SETTINGS, "operator")}
    assert images == {f"${{PKGREPO_IMAGE:-pkgrepo:{version}}}"}


@each("service", SETTINGS)
def test_two_replicas_of_each_service_run_by_default(service: str) -> None:
    assert services(BASE)[service]["scale"] == f"${{{service.upper()}_REPLICAS:-2}}"


@each("file", FILES, ids=lambda file: file.name)
@each("store", STORES)
def test_a_store_depends_on_no_other_container(file: Path, store: str) -> None:
    assert "depends_on" not in services(file).get(store, {})


@each("store", STORES)
def test_a_store_starts_when_its_generated_users_are_there(store: str, tmp_path: Path) -> None:
    *shell, script, file = services(BASE)[store]["entrypoint"]
    ClusterSecrets(tmp_path).generate()
    users, late = tmp_path / store / Path(file).name, tmp_path / "late"
    users.rename(late)
    for name, text in {"sleep": f"mv {late} {users}", "docker-entrypoint.sh": 'test -e "$USERS" && echo "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o700)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "USERS": str(users)}
    command = [*shell, script.replace("$$", "$"), str(users), "server", "--option"]
    assert subprocess.check_output(command, env=environment, text=True) == "server --option\n"
    assert not late.exists()


@each("name", ["secrets", "operator"])
def test_the_image_is_built_with_its_commit(name: str) -> None:
    assert services(BASE)[name]["build"]["args"] == {"COMMIT": "${COMMIT:-}"}


def test_one_service_builds_the_image_at_up() -> None:
    services_at_up = {name: service for name, service in services(BASE).items() if "profiles" not in service}
    assert [name for name, service in services_at_up.items() if "build" in service] == ["secrets"]


@each("file", FILES, ids=lambda file: file.name)
def test_operator_commands_depend_on_no_other_container(file: Path) -> None:
    assert "depends_on" not in services(file).get("operator", {})


def test_backup_folder_of_root_is_given_to_the_user_of_the_services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_owners: list[tuple[Path, int, int]] = []
    monkeypatch.setattr("deploy.cluster.secrets.ROOT", os.geteuid())
    monkeypatch.setattr("os.chown", lambda *owner: changed_owners.append(owner))
    folder = tmp_path / "backups"
    prepare_backup_folder(folder)
    assert changed_owners == [(folder, SERVICES_USER, SERVICES_USER)]
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("files", "owner"), [(["of another program"], 0), ([], 1)], ids=["not empty", "of another"])
def test_another_backup_folder_stays_as_it_is(
    files: list[str], owner: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.cluster.secrets.ROOT", os.geteuid() + owner)
    tmp_path.chmod(0o755)
    for name in files:
        (tmp_path / name).touch()
    prepare_backup_folder(tmp_path)
    assert (tmp_path.stat().st_uid, tmp_path.stat().st_mode & 0o777) == (os.geteuid(), 0o755)


def test_only_auth_service_and_the_operator_reach_identity_providers() -> None:
    changed = services(DEPLOY / "compose.identity-providers.yaml")
    networks: dict[str, dict[str, str]] = {"identity_providers": {}}
    assert {name: service["networks"] for name, service in changed.items()} == dict.fromkeys(
        ("auth_service", "operator"), networks
    )


def test_only_freshclam_leaves_the_networks_of_the_scanner() -> None:
    networks = {name: list(service["networks"]) for name, service in services(SCANNER).items()}
    assert networks == {"clamd": ["scan"], "freshclam": ["signatures"], "upload_service": ["scan"]}
    assert content(SCANNER)["networks"] == {"scan": {"internal": True}, "signatures": {}}


@each(("name", "service"), [*added(SCANNER).items(), *added(WATCHING).items()])
def test_an_additional_container_has_minimal_rights(name: str, service: dict[str, Any]) -> None:
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"].partition(":")[0] not in {"", "0", "root"}
    assert all(":-127.0.0.1:" in port for port in service.get("ports", []))
    assert ("ports" in service) is (name in added(WATCHING))
    assert {mount.rpartition(":")[2] for mount in service["volumes"] if mount.startswith((".", "$"))} == {"ro"}
    assert service.get("healthcheck", {}).get("test") or name not in added(SCANNER)


def test_the_scanner_reads_every_file_that_it_is_sent() -> None:
    lines = (DEPLOY / "scanner" / "clamd.conf").read_text().splitlines()
    settings = dict(line.split() for line in lines if line and not line.startswith("#"))
    limit = int(settings["StreamMaxLength"].removesuffix("M")) << 20
    assert settings["AlertExceedsMax"] == "yes"
    assert settings["MaxFileSize"] == settings["StreamMaxLength"]
    assert int(settings["MaxScanSize"].removesuffix("M")) << 20 >= limit
    variables = services(SCANNER)["upload_service"]["environment"]
    assert variables["SCANNER_LIMIT"] == f"${{SCANNER_LIMIT:-{limit}}}"
    [scanner] = [change for change in patches() if any("SCANNER" in str(row) for row in environment(change))]
    on_kubernetes = {row["name"]: row["value"] for row in environment(scanner)}
    assert on_kubernetes["SCANNER_LIMIT"] == str(limit)
    assert on_kubernetes["SCANNER_URL"] == variables["SCANNER_URL"]


def environment(change: dict[str, Any]) -> list[dict[str, str]]:
    """The variables that a patch of a Deployment adds."""
    spec = change["spec"].get("template", {}).get("spec", {})
    return [row for container in spec.get("containers", []) for row in container.get("env", [])]


def test_every_service_reaches_the_collector_by_a_separate_network() -> None:
    traced = services(DEPLOY / "compose.traces.yaml")
    assert set(traced) == set(SETTINGS)
    for service in traced.values():
        assert service["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"].startswith("${OTEL_EXPORTER_OTLP_ENDPOINT:?")
        assert service["networks"] == {"traces": {}}


@each("file", FILES, ids=lambda file: file.name)
def test_every_container_has_a_limit_of_memory_and_of_processes(file: Path) -> None:
    for name, service in services(file).items():
        if "image" in service:
            assert re.fullmatch(r"\d+[mg]|\$\{[A-Z_]+_MEMORY:-\d+[mg]\}", service["mem_limit"]), name
            assert service["pids_limit"] > 0, name


@each("service", SETTINGS)
def test_a_service_has_the_memory_that_it_has_on_kubernetes(service: str) -> None:
    [container] = pods(unpatched_resources())[NAMES[service]]["spec"]["containers"]
    limit = container["resources"]["limits"]["memory"].removesuffix("Mi")
    assert services(BASE)[service]["mem_limit"] == f"${{{service.upper()}_MEMORY:-{limit}m}}"


def test_the_operator_has_memory_for_a_full_tmp() -> None:
    operator = services(BASE)["operator"]
    [size] = re.findall(r"size=(\d+)g", operator["tmpfs"][0])
    [limit] = re.findall(r":-(\d+)g", operator["mem_limit"])
    assert int(limit) > int(size)


def test_prometheus_reaches_services_only_and_grafana_none_of_them() -> None:
    stores = {network for name in STORES for network in services(BASE)[name]["networks"]}
    every = set.intersection(*(set(services(BASE)[name]["networks"]) for name in SETTINGS))
    networks = {name: set(service["networks"]) for name, service in added(WATCHING).items()}
    assert networks == {"prometheus": every | {"observability"}, "grafana": {"observability"}}
    assert not networks["prometheus"] & stores


def test_the_dashboard_requires_the_generated_password(tmp_path: Path) -> None:
    grafana, secrets = added(WATCHING)["grafana"], services(WATCHING)["secrets"]
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "false"
    assert secrets["command"] == [*services(BASE)["secrets"]["command"], "--grafana"]
    generated_files = {
        file.relative_to(tmp_path).as_posix() for file in ClusterSecrets(tmp_path, grafana=True).generate()
    }
    _, _, mounted, name = grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"].split("/")
    [folder] = [mount.split("/")[-3].removesuffix(":") for mount in grafana["volumes"] if f"/run/{mounted}:" in mount]
    assert f"{folder}/{name}" in generated_files
    ClusterSecrets(tmp_path / "unwatched").generate()
    assert not (tmp_path / "unwatched" / folder).exists()


def test_external_stores_replace_every_container_of_a_store() -> None:
    removed = {name for name, service in content(EXTERNAL)["services"].items() if service is None}
    assert removed == {*STORES, "mongodb-user"}
    for name in services(BASE).keys() - removed:
        needed = services(EXTERNAL)[name].get("depends_on", services(BASE)[name].get("depends_on", {}))
        assert not removed & set(needed), name


def test_external_stores_are_outside_of_the_internal_networks() -> None:
    assert content(EXTERNAL)["networks"] == {store: {"internal": False} for store in STORES}


@each("name", [*SETTINGS, "first-tenant", "operator"])
def test_containers_read_certificates_of_external_stores(name: str) -> None:
    assert services(EXTERNAL)[name]["volumes"] == ["${STORES_CERTIFICATES:-./certificates}:/run/certificates:ro"]


def test_external_stores_need_no_secrets_of_stores(tmp_path: Path) -> None:
    [(variable, value)] = services(EXTERNAL)["secrets"]["environment"].items()
    command = ["secrets", "--folder", str(tmp_path)]
    missing = CliRunner().invoke(cluster_commands, command, env={variable: value})
    assert "write to each the store's address" in str(missing.exception)


def test_the_ports_of_the_proxy_are_variables() -> None:
    listens = ["${CADDY_HTTP_LISTEN:-80}:80", "${CADDY_LISTEN:-443}:443", "${CADDY_LISTEN:-443}:443/udp"]
    tls = services(DEPLOY / "compose.tls.yaml")
    assert tls["caddy"]["ports"] == listens
    assert tls["gateway"]["environment"]["PUBLIC_URL"] == "${PUBLIC_URL:-https://${PKGREPO_HOST}}"


def test_the_proxy_gets_every_variable_of_its_configuration() -> None:
    variables = set(re.findall(r"\{\$(\w+)\}", (DEPLOY / "Caddyfile").read_text()))
    assert variables == set(services(DEPLOY / "compose.tls.yaml")["caddy"]["environment"])


def test_the_proxy_reuses_the_connections_of_an_office() -> None:
    kept = re.search(r"keepalive_idle_conns_per_host (\d+)", (DEPLOY / "Caddyfile").read_text())
    assert kept is not None
    assert int(kept[1]) >= 300
