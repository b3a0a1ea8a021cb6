"""The ring of a client: new versions reach the rings of a tenant one after the other."""

from common.tenants import Address, Tenant, plain_address


def ring_of(tenant: Tenant, address: Address, chosen: str = "") -> str:
    """The ring of an identified client; "" for the tenant's last one.

    `chosen` is the ring that the client or its app roles have, else the first rule with the client's network decides. A
    ring that the tenant does not have counts as the last one.
    """
    earlier = tenant.rings[:-1]
    if not earlier:
        return ""
    ring = chosen or _ring_of_network(tenant, plain_address(address))
    return ring if ring in earlier else ""


def _ring_of_network(tenant: Tenant, address: Address) -> str:
    number, version = int(address), address.version
    ranges = tenant.ring_ranges
    return next((ring for its, first, last, ring in ranges if its == version and first <= number <= last), "")
