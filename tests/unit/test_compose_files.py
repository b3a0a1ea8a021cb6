"""The compose files say what the services read, and nothing that they do not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.cluster.secrets import SETTINGS, ClusterSecrets

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted(DEPLOY.glob("compose*.yaml"))
BASE = DEPLOY / "compose.yaml"
OF_PYTHON = {"PYTHONPATH"}


class _Loader(yaml.SafeLoader):
    """Knows the tags of compose."""


_Loader.add_constructor("!reset", lambda *_: None)


def services(file: Path) -> Mapping[str, dict[str, Any]]:
    read: Mapping[str, dict[str, Any]] = yaml.load(file.read_text(), _Loader)["services"]  # noqa: S506  a safe one
    return read


def setting(variable: str) -> str:
    return variable.removesuffix("_FILE").lower()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
@pytest.mark.parametrize("service", SETTINGS)
def test_every_variable_is_a_setting_of_its_service(file: Path, service: str) -> None:
    given = set(services(file).get(service, {}).get("environment", {})) - OF_PYTHON
    assert {setting(variable) for variable in given} <= set(SETTINGS[service].model_fields)


@pytest.mark.parametrize("service", SETTINGS)
def test_a_service_is_given_every_setting_that_names_another_place_or_a_secret(service: str) -> None:
    given = {setting(variable) for variable in services(BASE)[service]["environment"]}
    wanted = {name for name in SETTINGS[service].model_fields if name.endswith(("_key", "_url"))} - {"internal_key"}
    assert wanted - given <= {"download_url", "public_url", "s3_url", "s3_secret_access_key"}


@pytest.mark.parametrize("service", SETTINGS)
def test_a_secret_is_read_from_a_file_that_is_made_for_the_service(service: str, tmp_path: Path) -> None:
    ClusterSecrets(tmp_path).make()
    for variable, value in services(BASE)[service]["environment"].items():
        if variable.endswith("_FILE"):
            _, _, kind, name = value.split("/")
            assert (tmp_path / kind / service / name).is_file()
            assert any(
                mount.endswith(f"/{kind}/{service}:/run/{kind}:ro") for mount in services(BASE)[service]["volumes"]
            )


def test_secrets_that_are_there_stay_and_only_what_is_missing_is_made(tmp_path: Path) -> None:
    secrets = ClusterSecrets(tmp_path)
    made = {file: file.read_bytes() for file in secrets.make()}
    lost = tmp_path / "keys" / "gateway" / "session_key"
    lost.unlink()
    assert secrets.make() == [lost]
    assert {file: file.read_bytes() for file in made} == made


def test_secrets_are_their_owners_alone(tmp_path: Path) -> None:
    for file in ClusterSecrets(tmp_path / "secrets").make():
        assert file.stat().st_mode & 0o077 == 0
        assert file.parent.stat().st_mode & 0o077 == 0


def test_services_that_share_a_setting_share_its_key_and_no_others_are_alike(tmp_path: Path) -> None:
    keys = [file for file in ClusterSecrets(tmp_path).make() if file.relative_to(tmp_path).parts[0] == "keys"]
    assert len({file.read_text() for file in keys}) == len({file.name for file in keys}) < len(keys)


def test_only_the_gateway_is_reached_from_outside() -> None:
    assert [name for name, service in services(BASE).items() if service.get("ports")] == ["gateway"]
