"""A double of an identity provider: HTTPS, keys that change, and tokens that a test spoils."""

import asyncio
import base64
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from auth_service.oidc.model import Provider
from common.auth.roles import Role
from common.http.server import serving
from tests.support.servers.certificates import make_certificate

CLIENT_ID, CLIENT_SECRET = "pkgrepo", "a secret of the provider"
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
Handler = Callable[[web.Request], web.StreamResponse]


@dataclass
class IdentityProvider:
    """The provider. `claims` change its next ID tokens; a claim of None is left out.

    `replies` are the answers to paths that a test spoils. `hangs` stops all answers.
    """

    issuer: str
    certificate: str
    claims: dict[str, Any] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)
    replies: dict[str, Handler] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    keys: dict[str, Any] = field(default_factory=lambda: {"rsa": RSA_KEY, "ec": EC_KEY})
    signer: str = "rsa"
    forge: Callable[[dict[str, Any]], str] | None = None
    hangs: bool = False
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def provider(self, tenant_id: str, **options: Any) -> Provider:
        """The provider as the operator of a tenant sets it."""
        defaults = {
            "roles_claim": "groups",
            "role_map": (("Packagers", Role.PUBLISHER), ("Admins", Role.ADMINISTRATOR)),
            "allowed_networks": ("127.0.0.0/8",),
            "ca_certificate": self.certificate,
        }
        return Provider(tenant_id, self.issuer, CLIENT_ID, CLIENT_SECRET, **{**defaults, **options})

    def sign_in(self, url: str) -> dict[str, str]:
        """Sign in as the browser does at this address; the query of the callback."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        code = uuid4().hex
        self.codes[code] = query
        return {"code": code, "state": query["state"], "iss": self.issuer}

    def sign(self, claims: dict[str, Any], **headers: Any) -> str:
        key, algorithm = self.keys[self.signer], "ES256" if self.signer.startswith("ec") else "RS256"
        return jwt.encode(claims, key, algorithm, headers={"kid": self.signer, **headers})

    def public_key(self, kid: str) -> dict[str, Any]:
        """A key as the provider publishes it."""
        key = self.keys[kid]
        algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
        return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"}

    def logout_token(self, **claims: Any) -> str:
        now = int(time.time())
        default = {"iss": self.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 120, "jti": uuid4().hex}
        return self.sign(_without_none({**default, "events": {LOGOUT_EVENT: {}}, **claims}), typ="logout+jwt")

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.calls.append(request.path)
        if self.hangs:
            await self.stopped.wait()
        if request.path in self.replies:
            return self.replies[request.path](request)
        match request.path:
            case "/.well-known/openid-configuration":
                return web.json_response(self._document())
            case "/jwks":
                return web.json_response({"keys": [self.public_key(kid) for kid in self.keys]})
            case "/token":
                return self._token({name: str(value) for name, value in (await request.post()).items()}, request)
        raise web.HTTPNotFound

    def _document(self) -> dict[str, Any]:
        names = {"authorization_endpoint": "auth", "token_endpoint": "token", "jwks_uri": "jwks"}
        addresses = {name: f"{self.issuer}/{path}" for name, path in names.items()}
        addresses["end_session_endpoint"] = f"{self.issuer}/end"
        both = {"issuer": self.issuer, "authorization_response_iss_parameter_supported": True}
        return {**addresses, **both, **self.document}

    def _token(self, form: dict[str, str], request: web.Request) -> web.Response:
        pending = self.codes.pop(form.get("code", ""), {})
        challenge = base64.urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest()).decode()
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET.replace(' ', '%20')}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {basic}":
            return web.json_response({"error": "invalid_client"}, status=401)
        sent = (challenge.rstrip("="), form.get("redirect_uri"))
        if sent != (pending.get("code_challenge"), pending.get("redirect_uri")):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": "erika",
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 600,
            "nonce": pending["nonce"],
            "name": "Erika Muster",
            "email": "erika@example.com",
            "groups": ["Packagers"],
            "sid": "session-1",
            **self.claims,
        }
        token = (self.forge or self.sign)(_without_none(claims))
        return web.json_response({"id_token": token, "access_token": "opaque", "token_type": "Bearer"})


def from_now(seconds: int) -> Callable[[], int]:
    """A time in a table of claims. `current` sets it when the test runs, which may be long after the table was read."""
    return lambda: int(time.time()) + seconds


def current(claims: dict[str, Any]) -> dict[str, Any]:
    """Claims with the times of `from_now`."""
    return {name: value() if callable(value) else value for name, value in claims.items()}


def _without_none(claims: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in claims.items() if value is not None}


@asynccontextmanager
async def identity_provider(folder: Path, host: str = "127.0.0.1") -> AsyncIterator[IdentityProvider]:
    """Run a provider on a free port, with its own certificate."""
    path = make_certificate(folder, host)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    text = path.read_text()
    certificate = text[: text.index("-----BEGIN PRIVATE KEY")]
    running = IdentityProvider("", certificate)
    async with serving(running.app(), "127.0.0.1:0", tls=tls) as address:
        running.issuer = address.replace("127.0.0.1", host)
        yield running
        running.stopped.set()
