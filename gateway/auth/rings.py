"""The ring of a client: new versions reach the rings of a tenant one after the other."""

from common.tenants import Address, Tenant, contains


def ring_of(tenant: Tenant, address: Address, chosen: str = "") -> str:
    """The ring of an identified client; "" for the tenant's last one.

    `chosen` is the ring that the client or its app roles have, else the first rule with the client's network decides. A
    ring that the tenant does not have counts as the last one.
    """
    earlier = tenant.rings[:-1]
    if not earlier:
        return ""
    networks = ((rule.network, rule.ring) for rule in tenant.ring_rules if rule.network)
    ring = chosen or next((ring for network, ring in networks if contains((network,), address)), "")
    return ring if ring in earlier else ""
