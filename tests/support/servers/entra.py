"""A double of Entra ID: publishes its keys over HTTPS, and signs access tokens of both versions."""

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from auth_service.oidc.client import trusted
from common.tenants import EntraApp
from tests.support.servers.certificates import make_certificate
from tests.support.servers.ports import free_port

DIRECTORY = "11111111-2222-4333-8444-555555555555"
OTHER_DIRECTORY = "99999999-2222-4333-8444-555555555555"
CLIENT_ID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
WINGET = "7b8ea11a-7f45-4b3a-ab51-794d5863af15"
APP = EntraApp((DIRECTORY,), CLIENT_ID, f"api://{CLIENT_ID}", "access", (("Pilot", "pilot"), ("group-1", "broad")))


@dataclass
class Entra:
    """`published` are the ids of the keys that it publishes. `is_away`: it answers nothing but errors."""

    authority: str
    keys: dict[str, rsa.RSAPrivateKey] = field(default_factory=dict)
    published: list[str] = field(default_factory=list)
    is_away: bool = False
    reads: int = 0

    def add_key(self, kid: str, *, published: bool = True) -> None:
        self.keys[kid] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        if published:
            self.published.append(kid)

    def claims(self, version: int = 2, directory: str = DIRECTORY) -> dict[str, Any]:
        """The claims of an access token that winget gets for APP."""
        now = int(time.time())
        v1 = {"iss": f"https://sts.windows.net/{directory}/", "aud": APP.resource, "ver": "1.0", "appid": WINGET}
        v2 = {"iss": f"{self.authority}/{directory}/v2.0", "aud": APP.client_id, "ver": "2.0", "azp": WINGET}
        common = {"iat": now, "nbf": now, "exp": now + 3600, "sub": "subject", "oid": "object"}
        return {**common, **(v1 if version == 1 else v2), "tid": directory, "scp": APP.scope}

    def token(self, claims: dict[str, Any] | None = None, *, kid: str = "first", key: Any = None, **header: Any) -> str:
        algorithm = header.pop("alg", "RS256")
        return jwt.encode(
            self.claims() if claims is None else claims,
            self.keys[kid] if key is None else key,
            algorithm,
            {"kid": kid, **header},
        )

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{directory}/v2.0/.well-known/openid-configuration", self._metadata)
        app.router.add_get("/{directory}/discovery/v2.0/keys", self._keys)
        return app

    async def _metadata(self, request: web.Request) -> web.Response:
        if self.is_away:
            return web.Response(status=503)
        self.reads += 1
        base = f"{self.authority}/{request.match_info['directory']}"
        return web.json_response({"issuer": f"{base}/v2.0", "jwks_uri": f"{base}/discovery/v2.0/keys"})

    async def _keys(self, _: web.Request) -> web.Response:
        keys = [
            {"kid": kid, "use": "sig", **RSAAlgorithm.to_jwk(self.keys[kid].public_key(), as_dict=True)}
            for kid in self.published
        ]
        return web.json_response({"keys": keys})


@asynccontextmanager
async def running_entra(folder: Path) -> AsyncIterator[Entra]:
    """Run the double with the key `first`. This process trusts its certificate meanwhile."""
    certificate, port = make_certificate(folder, "127.0.0.1"), free_port()
    entra = Entra(f"https://127.0.0.1:{port}")
    entra.add_key("first")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    runner = web.AppRunner(entra.app())
    await runner.setup()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        trusted.cache_clear()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        try:
            yield entra
        finally:
            await runner.cleanup()
            trusted.cache_clear()
