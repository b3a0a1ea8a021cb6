"""The names of a server for its certificate and its messages."""

import pytest

from deploy.local import certificates
from deploy.local.certificates import LOOPBACK, is_host, server_names
from tests.support.tables import each


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "local_addresses", lambda: iter(["192.168.7.20"]))
    monkeypatch.setattr("socket.gethostname", lambda: "Build-7")
    monkeypatch.setattr("socket.getfqdn", lambda: "build-7.example")


def test_a_given_name_comes_first() -> None:
    assert server_names("0.0.0.0", ["PkgRepo.test"])[0] == "pkgrepo.test"


@each("host", ["0.0.0.0", "::"])
def test_a_wildcard_stands_for_the_addresses_of_the_machine(host: str) -> None:
    assert server_names(host, []) == ["192.168.7.20", "build-7", "build-7.example", *LOOPBACK]


def test_a_single_address_is_a_name() -> None:
    assert server_names("10.0.0.9", []) == ["10.0.0.9", "build-7", "build-7.example", *LOOPBACK]


def test_an_unusable_machine_name_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Büro 7")
    assert "Büro 7" not in server_names("127.0.0.1", [])


@each("text", ["pkgrepo.test", "PC-1", "a_b.example", "10.0.0.9", "fd00::9"])
def test_a_name_or_an_address_is_a_host(text: str) -> None:
    assert is_host(text)


@each("text", ["", "https://a.example", "a.example:8080", "*.example", "a b", "-a.example", "ä.example", "a." * 150])
def test_other_texts_are_no_hosts(text: str) -> None:
    assert not is_host(text)
