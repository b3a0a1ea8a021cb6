"""Forged variants of a valid token. No service may accept one."""

import hmac
import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

FOREIGN_KEY = "a-foreign-key-that-is-long-enough-for-it"
HOUR = 3600  # seconds


def forgeries(token: str, key: str) -> Iterator[tuple[str, str]]:
    """Forged variants of a valid token with this key, each with a name."""
    head, payload, signature = token.split(".")
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    yield "nothing", ""
    yield "no token", "x.y.z"
    yield "one part too many", f"{token}.{signature}"
    yield "one part too few", f"{head}.{payload}"
    yield "no signature", f"{head}.{payload}."
    yield "only a signature", f"..{signature}"
    for spelling in ("none", "None", "NONE", "nOnE", "noNe"):
        unsigned = f"{_part({'alg': spelling, 'typ': 'JWT'})}.{payload}."
        yield f"{spelling}, unsigned", unsigned
        yield f"{spelling}, with the signature", unsigned + signature
    for longer in ("sha384", "sha512"):
        yield longer, _sign({"alg": f"HS{longer[3:]}"}, payload, key, longer)
    for name in ("RS256", "ES256", "PS256", "EdDSA", "hs256", "HS256 ", "", None, 256, ["HS256"]):
        yield f"{name!r} in name", _sign({"alg": name, "typ": "JWT"}, payload, key)
    yield "no algorithm", _sign({"typ": "JWT"}, payload, key)
    yield "another key", _sign({"alg": "HS256"}, payload, FOREIGN_KEY)
    for kid in ("/dev/null", "../../../dev/null", "' UNION SELECT '", "|echo", "0", 0, None):
        yield f"kid {kid!r}", _sign({"alg": "HS256", "kid": kid}, payload, "")
    jwk = {"kty": "oct", "k": _text(FOREIGN_KEY.encode())}
    for header in ({"jwk": jwk}, {"jku": "https://evil.example/keys"}, {"x5u": "https://evil.example/cert"}):
        yield f"own {min(header)}", _sign({"alg": "HS256", **header}, payload, FOREIGN_KEY)
    for index, part in enumerate((head, payload, signature)):
        for bit in (0, 4 * len(part), 6 * len(part) // 8 * 8 - 1):
            parts = [head, payload, signature]
            parts[index] = flip_bit(part, bit)
            yield f"bit {bit} of part {index}", ".".join(parts)
    now = int(time.time())
    for changes in ({"exp": now - HOUR}, {"exp": "x"}, {"exp": None}, {"nbf": now + HOUR}, {"iat": now + HOUR}):
        yield str(changes), jwt.encode({**claims, **changes}, key, algorithm="HS256")
    for missing in ("exp", "iat", "aud"):
        rest = {name: value for name, value in claims.items() if name != missing}
        yield f"without {missing}", jwt.encode(rest, key, algorithm="HS256")


def unsigned(claims: Mapping[str, Any], kid: str) -> str:
    """A token without a signature that names a key."""
    return f"{_part({'alg': 'none', 'kid': kid})}.{_part(claims)}."


def signed_with_public_key(claims: Mapping[str, Any], kid: str, key: RSAPrivateKey) -> str:
    """A token whose HMAC has the text of a public key as its secret, which PyJWT refuses to make."""
    text = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return _sign({"alg": "HS256", "kid": kid}, _part(claims), text)


def flip_bit(part: str, bit: int) -> str:
    """A part of a token with one bit flipped."""
    content = bytearray(urlsafe_b64decode(part + "=="))
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    return _text(bytes(content))


def _sign(head: Mapping[str, Any], payload: str, key: str, digest: str = "sha256") -> str:
    signed = f"{_part(head)}.{payload}"
    return f"{signed}.{_text(hmac.digest(key.encode(), signed.encode(), digest))}"


def _part(content: Mapping[str, Any]) -> str:
    return _text(json.dumps(content).encode())


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()
