"""Failed logins are counted. A count that reaches its limit refuses further logins for the rest of its 5 minutes.

| count | limit |
|---|---|
| all users at one place | 10 |
| one user at one place | 10 |
| one user at all known places, and at all other places | 200 each |

A place is an IPv4 address or the /64 network of an IPv6 address. A user's known places are those of the last logins, so
failures elsewhere do not lock the user out there.
"""

from collections.abc import Mapping
from typing import Protocol

from auth_service.model import TooManyFailures
from common.auth.callers import place_of
from common.telemetry import log

FAILURES = 10
USER_FAILURES = 200
WINDOW = 300  # seconds
REFUSALS = 60  # a minute and tenant that are on record, of those that are refused for it
MINUTE = 60  # seconds


class Failures(Protocol):
    """Counts failures by name; a count is forgotten `window` seconds after its first failure."""

    async def count(self, name: str, window: int) -> int:
        """One more failure; how many there are with it."""

    async def wait(self, limits: Mapping[str, int]) -> int:
        """Seconds until the count of each name is below its limit again."""

    async def forget(self, name: str) -> None:
        """Begin at nought."""


class KnownPlaces(Protocol):
    """The places of each user's last logins."""

    async def add(self, tenant_id: str, username: str, place: str) -> None: ...

    async def contains(self, tenant_id: str, username: str, place: str) -> bool: ...

    async def forget(self, tenant_id: str, username: str) -> None: ...


class Throttle:
    """Refuses to compare passwords after too many failures."""

    def __init__(self, failures: Failures, places: KnownPlaces) -> None:
        self._failures = failures
        self._places = places

    async def check(self, tenant_id: str, username: str, ip: str) -> None:
        """Raise TooManyFailures while a count is at its limit."""
        wait = await self._failures.wait(await self._limits(tenant_id, username, ip))
        if wait > 0:
            raise TooManyFailures(wait)

    async def failed(self, tenant_id: str, username: str, ip: str) -> None:
        for name in await self._limits(tenant_id, username, ip):
            await self._failures.count(name, WINDOW)

    async def is_on_record(self, tenant_id: str) -> bool:
        """Whether one more refusal is to be recorded: as many as show what goes on, and no flood of them."""
        count = await self._failures.count(f"refused:{tenant_id}", MINUTE)
        if count == REFUSALS + 1:
            log.warning("refusals_not_recorded", tenant_id=tenant_id, operation="login")
        return count <= REFUSALS

    async def succeeded(self, tenant_id: str, username: str, ip: str) -> None:
        """Add the place to the user's known ones and reset the user's count there.

        The other counts stay: one good password must not cover a search.
        """
        await self._failures.forget(_user_at_place(tenant_id, username, place_of(ip)))
        await self._places.add(tenant_id, username, place_of(ip))

    async def forget_places(self, tenant_id: str, username: str) -> None:
        await self._places.forget(tenant_id, username)

    async def _limits(self, tenant_id: str, username: str, ip: str) -> dict[str, int]:
        """The limits of three counts, whether the place is known or not: the time of an answer must not tell which."""
        place = place_of(ip)
        group = "known" if await self._places.contains(tenant_id, username, place) else "user"
        return {
            f"address:{place}": FAILURES,
            _user_at_place(tenant_id, username, place): FAILURES,
            f"{group}:{tenant_id}:{username}": USER_FAILURES,
        }


def _user_at_place(tenant_id: str, username: str, place: str) -> str:
    # The name is last: a name may hold any character.
    return f"place:{tenant_id}:{place}:{username}"
