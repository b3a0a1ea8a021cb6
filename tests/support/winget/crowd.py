"""Many machines whose winget searches in the same moment, from one address."""

import asyncio
import ssl
from collections import Counter

from aiohttp import ClientSession, TCPConnector

SEARCH = {"Query": {"KeyWord": "Hello", "MatchType": "Substring"}}


async def search_at_once(source: str, trust: ssl.SSLContext, *, machines: int) -> Counter[int]:
    """Send one search for each machine at once, each on a TLS 1.2 connection of its own. Counts the statuses.

    Raises ClientError if a connection is refused or lost.
    """
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    connector = TCPConnector(ssl=trust, limit=0, force_close=True)
    async with ClientSession(connector=connector, headers={"Version": "1.10.0"}) as session:

        async def search() -> int:
            async with session.post(f"{source}/manifestSearch", json=SEARCH) as answer:
                return answer.status

        return Counter(await asyncio.gather(*(search() for _ in range(machines))))
