"""Tenant ids, and the addresses in networks, ranges and lists."""

from ipaddress import ip_address

import pytest

from common.errors import InvalidField
from common.tenants import RESERVED, Site, Tenant, contains, is_tenant_id, parse_network
from tests.support.tables import each


@each("text", ["acme", "a", "0", "acme-2_x", "a" * 63])
def test_a_tenant_id_is_lower_case_letters_digits_and_two_marks(text: str) -> None:
    assert is_tenant_id(text)


INVALID_IDS = ["", "Acme", "-acme", "_acme", "a" * 64, "ac.me", "ac/me", "..", "acme\n", "ácme", "²"]


@each("text", [*INVALID_IDS, *sorted(RESERVED)])
def test_invalid_tenant_ids_and_the_first_parts_of_other_paths_are_refused(text: str) -> None:
    assert not is_tenant_id(text)


@each(
    ("text", "canonical"),
    [
        ("192.0.2.7", "192.0.2.7"),
        (" 192.0.2.7 ", "192.0.2.7"),
        ("192.0.2.7/32", "192.0.2.7"),
        ("192.0.2.0/24", "192.0.2.0/24"),
        ("192.0.2.7/24", "192.0.2.0/24"),
        ("192.0.2.0/255.255.255.0", "192.0.2.0/24"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("192.0.2.1-192.0.2.9", "192.0.2.1-192.0.2.9"),
        ("192.0.2.1 - 192.0.2.9", "192.0.2.1-192.0.2.9"),
        ("192.0.2.1-192.0.2.1", "192.0.2.1-192.0.2.1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("2001:db8:0::/32", "2001:db8::/32"),
        ("2001:db8::1-2001:db8::ff", "2001:db8::1-2001:db8::ff"),
        ("::/0", "::/0"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ("::ffff:192.0.2.1-::ffff:192.0.2.9", "192.0.2.1-192.0.2.9"),
    ],
)
def test_a_network_has_one_spelling(text: str, canonical: str) -> None:
    assert parse_network("network", text) == canonical


@each(
    "text",
    [
        "",
        "-",
        "192.0.2",
        "192.0.2.256",
        "192.0.2.0/33",
        "192.0.2.9-192.0.2.1",
        "192.0.2.1-2001:db8::1",
        "192.0.2.1-",
        "-192.0.2.1",
        "192.0.2.1-192.0.2.5-192.0.2.9",
        "192.0.2.0/24-192.0.3.0/24",
        "192.0 .2.7",
        "192.0.2.7\n192.0.2.8",
        "fe80::1%eth0",
        "fe80::1%1-fe80::5%1",
        "example.com",
        "3221225985",
        "\uff1192.0.2.7",
        "*",
    ],
)
def test_an_invalid_network_is_refused(text: str) -> None:
    with pytest.raises(InvalidField, match=r"^network: "):
        parse_network("network", text)


@each(
    ("network", "inside", "outside"),
    [
        ("192.0.2.7", ["192.0.2.7"], ["192.0.2.8"]),
        ("192.0.2.0/24", ["192.0.2.255", "::ffff:192.0.2.7"], ["192.0.3.0", "::ffff:192.0.3.7"]),
        ("192.0.2.1-192.0.2.9", ["192.0.2.1", "192.0.2.5", "192.0.2.9"], ["192.0.2.0", "192.0.2.10"]),
        ("0.0.0.0/0", ["203.0.113.1"], ["2001:db8::1"]),
        ("::/0", ["2001:db8::1"], ["192.0.2.1"]),
        ("2001:db8::/32", ["2001:db8:ffff::1"], ["2001:db9::1"]),
        ("2001:db8::1-2001:db8::ff", ["2001:db8::80"], ["2001:db8::100"]),
        ("::ffff:192.0.2.0/120", ["192.0.2.7", "::ffff:192.0.2.7"], ["192.0.3.7"]),
        ("fe80::/10", ["fe80::1%eth0"], ["fec0::1"]),
    ],
)
def test_a_network_contains_its_addresses_only(network: str, inside: list[str], outside: list[str]) -> None:
    networks = ("198.51.100.1", parse_network("network", network))
    assert [text for text in (*inside, *outside) if contains(networks, ip_address(text))] == inside


@each(
    ("networks", "address", "is_allowed"),
    [((), "203.0.113.1", True), (("192.0.2.0/24",), "192.0.2.1", True), (("192.0.2.0/24",), "203.0.113.1", False)],
)
def test_a_tenant_with_networks_allows_no_other_address(
    networks: tuple[str, ...], address: str, is_allowed: bool
) -> None:
    assert Tenant("acme", allowed_networks=networks).allows(ip_address(address)) is is_allowed


GRAZ = Site("Graz", ("10.20.0.0/16", "2001:db8:20::/48"), "https://graz.example.com")
WIEN = Site("Wien", ("10.0.0.0/8",), "https://wien.example.com")


@each(
    ("address", "site_url"),
    [
        ("10.20.3.4", GRAZ.downloads),
        ("::ffff:10.20.3.4", GRAZ.downloads),
        ("2001:db8:20::1", GRAZ.downloads),
        ("10.21.0.1", WIEN.downloads),
        ("192.0.2.1", ""),
    ],
)
def test_the_first_site_with_the_address_of_a_caller_counts(address: str, site_url: str) -> None:
    assert Tenant("acme", sites=(GRAZ, WIEN)).site_url(ip_address(address)) == site_url


def test_a_tenant_with_other_sites_is_another_one() -> None:
    tenant = Tenant("acme", sites=(GRAZ,))

    assert Tenant.from_document(tenant.to_document()) == tenant
    assert Tenant("acme", sites=(WIEN,)) != tenant
