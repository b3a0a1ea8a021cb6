"""The store addresses of the operator commands."""

from pathlib import Path

import pytest

from common.settings import BadSetting
from deploy.operator.stores import store_addresses

MONGO_URL, REDIS_URL = "mongodb://mongo:27017", "redis://redis:6379"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An empty environment."""
    for name in ("MONGO_URL", "REDIS_URL", "INSTALLERS"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)
    return monkeypatch


def test_store_addresses_come_from_variables_or_files(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "url").write_text(f"{MONGO_URL}\n")
    environment.setenv("MONGO_URL_FILE", str(tmp_path / "url"))
    environment.setenv("REDIS_URL", REDIS_URL)
    environment.setenv("INSTALLERS", str(tmp_path))

    addresses = store_addresses(None)

    assert (addresses.addresses.mongo_url, addresses.addresses.redis_url) == (MONGO_URL, REDIS_URL)
    assert addresses.installers == tmp_path


def test_an_invalid_address_is_named(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MONGO_URL", "foo")

    with pytest.raises(BadSetting, match=r"^MONGO_URL: "):
        store_addresses(None)


def test_missing_addresses_are_reported_with_the_remedy(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("MONGO_URL", MONGO_URL)

    with pytest.raises(BadSetting, match=r"--data DIR.*MONGO_URL and REDIS_URL"):
        store_addresses(None)
