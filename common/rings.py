"""The rings of a tenant's clients: which client is in which ring."""

from collections.abc import Mapping, Sequence

from common.errors import InvalidField
from common.tenants import Address, bounds, plain_address


class RingRules:
    """A tenant's rings in order, and the rules that choose one by the network of a client."""

    def __init__(self, rings: Sequence[str], rules: Sequence[Mapping[str, str]]) -> None:
        self.rings = tuple(rings)
        # Version of IP, first and last address as numbers, and the ring.
        self._ranges = tuple(
            (first.version, int(first), int(last), rule["ring"])
            for rule in rules
            if "network" in rule
            for first, last in [bounds(rule["network"])]
        )

    @property
    def has_networks(self) -> bool:
        """Whether the address of a client can choose its ring."""
        return bool(self._ranges)

    def ring_of(self, address: Address | None, chosen: str = "") -> str:
        """The ring of an identified client; "" for the last one, which has all clients without another ring.

        `chosen` is the ring that the client or its app roles have, else the first rule with the client's network
        decides. A ring that the tenant does not have counts as the last one.
        """
        earlier = self.rings[:-1]
        if not earlier:
            return ""
        ring = chosen or (self._ring_of_network(plain_address(address)) if address else "")
        return ring if ring in earlier else ""

    def _ring_of_network(self, address: Address) -> str:
        number, version = int(address), address.version
        ranges = self._ranges
        return next((ring for its, first, last, ring in ranges if its == version and first <= number <= last), "")


def unknown_ring(field: str, rings: Sequence[str]) -> InvalidField:
    """The error of a field that names a ring which the tenant does not have."""
    if not rings:
        return InvalidField(field, "is not for a tenant without rings", reason="no_rings")
    names = ", ".join(rings)
    return InvalidField(field, f"must be one of the rings: {names}", reason="no_such_ring", rings=names)
