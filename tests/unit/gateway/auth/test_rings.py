"""The ring of a client: its own, else by a rule, else the tenant's last one."""

from ipaddress import ip_address

from common.tenants import RingRule, Tenant
from gateway.auth.rings import ring_of
from tests.support.tables import every_cell

RULES = (
    RingRule("pilot", app_role="Pilot"),
    RingRule("gone", network="10.9.0.0/16"),
    RingRule("pilot", network="10.1.0.0/16"),
    RingRule("broad", network="10.0.0.0/8"),
    RingRule("pilot", network="0.0.0.0/1"),
    RingRule("everyone", network="2001:db8::/32"),
)
CONTROLLED = Tenant("acme", rings=("pilot", "broad", "everyone"), ring_rules=RULES)
PLAIN = Tenant("acme", ring_rules=RULES)
ONE_RING = Tenant("acme", rings=("everyone",), ring_rules=(RingRule("everyone", network="10.0.0.0/8"),))


def test_the_own_ring_precedes_the_first_matching_network() -> None:
    with every_cell() as cell:
        for tenant, address, chosen, expected in (
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
            with cell(tenant.rings, address, chosen):
                assert ring_of(tenant, ip_address(address), chosen) == expected
