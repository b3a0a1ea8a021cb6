"""Failed logins slow down: 10 in 5 minutes for one user of a tenant, or from one address, and no more are tried."""

from typing import Protocol

from auth_service.model import TooManyFailures
from common.caller import place_of
from common.telemetry import log

FAILURES = 10
WINDOW = 300  # seconds
REFUSALS = 60  # a minute and tenant that are on record, of those that are refused for it
MINUTE = 60  # seconds


class Failures(Protocol):
    """Counts failures by name; a count is forgotten `window` seconds after its first failure."""

    async def count(self, name: str, window: int) -> int:
        """One more failure; how many there are with it."""

    async def wait(self, names: tuple[str, ...], limit: int) -> int:
        """Seconds until each of these names has fewer than `limit` failures again."""

    async def forget(self, name: str) -> None:
        """Begin at nought."""


class Throttle:
    """Refuses to compare passwords after too many failures."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures

    async def check(self, tenant_id: str, username: str, ip: str) -> None:
        """Raise TooManyFailures while the user or the address has failed too often."""
        wait = await self._failures.wait(_names(tenant_id, username, ip), FAILURES)
        if wait > 0:
            raise TooManyFailures(wait)

    async def failed(self, tenant_id: str, username: str, ip: str) -> None:
        for name in _names(tenant_id, username, ip):
            await self._failures.count(name, WINDOW)

    async def is_on_record(self, tenant_id: str) -> bool:
        """Whether one more refusal is to be recorded: as many as show what goes on, and no flood of them."""
        count = await self._failures.count(f"refused:{tenant_id}", MINUTE)
        if count == REFUSALS + 1:
            log.warning("refusals_not_recorded", tenant_id=tenant_id, operation="login")
        return count <= REFUSALS

    async def succeeded(self, tenant_id: str, username: str) -> None:
        """The user's count begins anew; the address's does not: one good password must not cover a search."""
        await self._failures.forget(_user(tenant_id, username))


def _names(tenant_id: str, username: str, ip: str) -> tuple[str, ...]:
    return _user(tenant_id, username), f"address:{place_of(ip)}"


def _user(tenant_id: str, username: str) -> str:
    return f"user:{tenant_id}:{username}"
