"""The public keys with which Entra ID signs the tokens of each directory."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import jwt

from auth_service.oidc.client import fetch_keys
from auth_service.oidc.http import bad_answer, get_json
from auth_service.oidc.model import Provider, ProviderUnavailable
from auth_service.settings import PUBLIC_ENTRA
from common.caching import FifoCache
from common.errors import Problem
from common.telemetry import log

ALGORITHM = "RS256"
MAX_AGE = 3600.0  # seconds until keys are read again
MAX_STALE = 86400.0  # seconds that keys count while Entra ID does not answer
REFRESH_PAUSE = 60.0  # seconds between two reads, whatever `kid` tokens name
RETRY_PAUSE = 5.0  # seconds after a failed read, while no key is known
MAX_DIRECTORIES = 10_000
EVERY_NETWORK = ("0.0.0.0/0", "::/0")


class EntraUnavailable(Problem):
    status = 503  # winget tries again after `Retry-After`.
    code = "entra_unavailable"
    text = "The keys of Entra ID cannot be read: {problem}. Try again soon."
    retry_after = 5


class SigningKeys:
    """Reads keys at an authority, and keeps them. Each directory has its own address there."""

    def __init__(self, authority: str) -> None:
        self._authority = authority
        self._directories: FifoCache[str, _Directory] = FifoCache(MAX_DIRECTORIES)

    async def find(self, directory: str, kid: str) -> tuple[str, Any]:
        """The issuer of version 2 tokens of a directory, and its key `kid`, or None. Raises EntraUnavailable."""
        known = self._directories.get(directory)
        if known is None:
            known = _Directory(self._authority, directory)
            self._directories.put(directory, known)
        return await known.find(kid)


class _Directory:
    def __init__(self, authority: str, directory: str) -> None:
        # The operator names an authority other than the public one, so its address may be private.
        networks = () if authority == PUBLIC_ENTRA else EVERY_NETWORK
        self._provider = Provider(directory, f"{authority}/{directory}/v2.0", "", "", allowed_networks=networks)
        self._authority, self._id = authority, directory
        self._issuer = ""
        self._keys: Mapping[str, Any] = {}
        self._read_at = self._tried_at = float("-inf")  # by the monotonic clock
        self._problem = ""
        self._refresh: asyncio.Task[None] | None = None

    async def find(self, kid: str) -> tuple[str, Any]:
        """Concurrent callers share one read. A caller with a known `kid` does not wait for it."""
        now = time.monotonic()
        if now - self._read_at >= MAX_STALE:
            self._keys = {}
        is_due = kid not in self._keys or now - self._read_at >= MAX_AGE
        pause = REFRESH_PAUSE if self._keys else RETRY_PAUSE
        if is_due and self._refresh is None and now - self._tried_at >= pause:
            self._tried_at = now
            self._refresh = asyncio.create_task(self._read())
        if kid not in self._keys and self._refresh:
            await asyncio.shield(self._refresh)
        if not self._keys:
            raise EntraUnavailable(problem=self._problem)
        return self._issuer, self._keys.get(kid)

    async def _read(self) -> None:
        try:
            document = await get_json(self._provider, f"{self._provider.issuer}/.well-known/openid-configuration")
            issuer, address = str(document.get("issuer")), str(document.get("jwks_uri"))
            if not issuer.endswith(f"/{self._id}/v2.0") or not address.startswith(f"{self._authority}/"):
                raise bad_answer("it describes another directory")
            self._keys = _parse_keys(await fetch_keys(self._provider, address))
            self._issuer, self._read_at = issuer, time.monotonic()
        except ProviderUnavailable as problem:
            self._problem = problem.params["problem"]
            log.warning("entra_keys_unavailable", directory=self._id, problem=self._problem)
        finally:
            self._refresh = None


def _parse_keys(keys: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The RSA keys, by `kid`. Raises ProviderUnavailable if there is none."""
    parsed = {}
    for kid, key in keys.items():
        with suppress(jwt.PyJWTError, ValueError, TypeError):  # Another key may be valid.
            parsed[kid] = jwt.PyJWK.from_dict(dict(key), ALGORITHM).key
    if not parsed:
        raise bad_answer("it publishes no keys")
    return parsed
