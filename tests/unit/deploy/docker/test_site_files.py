"""The files of `deploy/sites` fit each other; `tests/system/deploy/test_site_cache.py` runs the configuration."""

import re
from typing import Any

import pytest
import yaml

from tests.support.processes.fork_server import ROOT
from tests.unit.deploy.docker.test_compose_files import content

SITES = ROOT / "deploy" / "sites"
BY_THE_IMAGE = {"NGINX_LOCAL_RESOLVERS"}


@pytest.fixture
def cache() -> dict[str, Any]:
    service: dict[str, Any] = yaml.safe_load((SITES / "compose.yaml").read_text())["services"]["cache"]
    return service


def test_the_container_sets_every_variable_of_the_configuration(cache: dict[str, Any]) -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)\}", (SITES / "nginx.conf.template").read_text()))
    settings = cache["environment"]

    assert used - BY_THE_IMAGE == {name for name in settings if name.startswith("SITE_")}
    assert all(re.search(settings["NGINX_ENVSUBST_FILTER"], name) for name in used)


def test_every_file_that_is_mounted_exists() -> None:
    mounted = {
        mount.partition(":")[0]
        for name in ("compose.yaml", "compose.tls.yaml")
        for mount in content(SITES / name)["services"]["cache"]["volumes"]
    }
    assert {path for path in mounted if path.startswith("./") and not (SITES / path).exists()} == {"./certificates"}


def test_the_certificate_is_where_the_configuration_looks_for_it(cache: dict[str, Any]) -> None:
    with_tls = content(SITES / "compose.tls.yaml")["services"]["cache"]["volumes"]
    folder = cache["environment"]["SITE_TLS"].removesuffix("*.conf")

    assert any(mount.partition(":")[2].startswith(folder) for mount in with_tls)
    assert "/certificates/site.pem" in (SITES / "tls.conf").read_text()


def test_the_image_has_an_exact_version(cache: dict[str, Any]) -> None:
    assert re.fullmatch(r"\$\{NGINX_IMAGE:-[a-z/-]+:\d+\.\d+\.\d+-alpine\}", cache["image"])
