"""The ring of a client: its own, else by a rule, else the tenant's last one."""

from ipaddress import ip_address

from gateway.auth.directories import ReleasePolicy
from tests.support.tables import every_cell

RULES = [
    {"ring": "pilot", "app_role": "Pilot"},
    {"ring": "gone", "network": "10.9.0.0/16"},
    {"ring": "broad", "network": "::/96"},  # Its numbers are those of all IPv4 addresses.
    {"ring": "pilot", "network": "10.1.0.0/16"},
    {"ring": "broad", "network": "10.0.0.0/8"},
    {"ring": "pilot", "network": "0.0.0.0/1"},
    {"ring": "everyone", "network": "2001:db8::/32"},
]
CONTROLLED = ReleasePolicy({"rings": ["pilot", "broad", "everyone"], "ring_rules": RULES})
PLAIN = ReleasePolicy({"rings": [], "ring_rules": RULES})
ONE_RING = ReleasePolicy({"rings": ["everyone"], "ring_rules": [{"ring": "everyone", "network": "10.0.0.0/8"}]})


def test_the_own_ring_precedes_the_first_matching_network() -> None:
    with every_cell() as cell:
        for policy, address, chosen, expected in (
            (CONTROLLED, "192.0.2.1", "", ""),
            (CONTROLLED, "192.0.2.1", "pilot", "pilot"),
            (CONTROLLED, "192.0.2.1", "broad", "broad"),
            (CONTROLLED, "10.1.2.3", "", "pilot"),
            (CONTROLLED, "::ffff:10.1.2.3", "", "pilot"),
            (CONTROLLED, "10.2.2.3", "", "broad"),
            (CONTROLLED, "10.9.0.1", "", ""),
            (CONTROLLED, "11.0.0.1", "", "pilot"),
            (CONTROLLED, "2001:db8::1", "", ""),
            (CONTROLLED, "10.1.2.3", "broad", "broad"),
            (CONTROLLED, "10.1.2.3", "everyone", ""),
            (CONTROLLED, "10.1.2.3", "gone", ""),
            (CONTROLLED, "10.1.2.3", "*", ""),
            (CONTROLLED, "10.1.2.3", "Pilot", ""),
            (PLAIN, "10.1.2.3", "pilot", ""),
            (PLAIN, "10.1.2.3", "", ""),
            (ONE_RING, "10.1.2.3", "everyone", ""),
            (ONE_RING, "10.1.2.3", "", ""),
        ):
            with cell(policy.rings, address, chosen):
                assert policy.ring_of(ip_address(address), chosen) == expected
