"""Applicability of blacklist entries: each part of an entry must match (section 5.2)."""

from datetime import UTC, datetime
from ipaddress import ip_address

from client_registry.blacklist.store import Entry
from tests.support.tables import each


def make_entry(client_id: str | None = None, network: str | None = None) -> Entry:
    return Entry("e1", client_id, network, ("a",), None, datetime(2026, 1, 1, tzinfo=UTC))


@each(
    ("entry", "client_id", "ip", "applies"),
    [
        (make_entry(), "c1", "192.0.2.1", True),
        (make_entry(client_id="c1"), "c1", "203.0.113.1", True),
        (make_entry(client_id="c1"), "c2", "203.0.113.1", False),
        (make_entry(network="192.0.2.0/24"), "c2", "192.0.2.1", True),
        (make_entry(network="192.0.2.0/24"), "c2", "203.0.113.1", False),
        (make_entry(network="192.0.2.1-192.0.2.9"), "c2", "192.0.2.9", True),
        (make_entry(network="2001:db8::/32"), "c2", "2001:db8::1", True),
        (make_entry(network="192.0.2.0/24"), "c2", "::ffff:192.0.2.1", True),
        (make_entry(client_id="c1", network="192.0.2.0/24"), "c1", "192.0.2.1", True),
        (make_entry(client_id="c1", network="192.0.2.0/24"), "c1", "203.0.113.1", False),
        (make_entry(client_id="c1", network="192.0.2.0/24"), "c2", "192.0.2.1", False),
    ],
)
def test_an_entry_applies_if_each_of_its_parts_matches(entry: Entry, client_id: str, ip: str, applies: bool) -> None:
    assert entry.applies_to(client_id, ip_address(ip)) is applies
