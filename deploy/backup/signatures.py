"""HMACs of a backup: fingerprints of the keys that it was made under, and its seal.

The seal is an HMAC-SHA256 of the manifest under AUDIT_KEY, which no backup contains. The manifest has the digest of
every file of records, and the records have the digest of every installer. A valid seal shows that nobody changed them.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from pydantic import SecretStr

from deploy.operator.stores import StoreAddresses

# AUDIT_KEY seals the audit log. Client tokens are stored as HMACs under CLIENT_TOKEN_KEY.
AUDIT, CLIENT_TOKEN = "AUDIT_KEY", "CLIENT_TOKEN_KEY"
FINGERPRINT = b"the fingerprint of a key of pkgrepo"
SEAL = b"the manifest of a backup of pkgrepo"  # No other HMAC under this key begins with these words.
Fingerprints = Mapping[str, Sequence[str]]


def key_fingerprints(where: StoreAddresses) -> dict[str, list[str]]:
    """The fingerprints of each setting's keys, without settings that are not given. They do not reveal the keys."""
    keys = {
        AUDIT: where.audit_key.get_secret_value().split() if where.audit_key else [],
        CLIENT_TOKEN: where.client_token_key.accepted if where.client_token_key else [],
    }
    return {name: [_hmac(key, FINGERPRINT)[:32] for key in values] for name, values in keys.items() if values}


def missing_keys(then: Fingerprints, now: Fingerprints) -> list[str]:
    """The settings that lack a key of the backup; settings that only one side knows are not compared."""
    return [name for name in sorted(then.keys() & now.keys()) if not set(then[name]) <= set(now[name])]


def uncompared_keys(then: Fingerprints, now: Fingerprints) -> list[str]:
    """The settings that only one side knows."""
    return sorted(then.keys() ^ now.keys())


def make_seals(audit_key: SecretStr, name: str, manifest: bytes) -> list[str]:
    """The seals of the backup `name` under each of these keys, in hexadecimal; the first is for a new backup."""
    keys = audit_key.get_secret_value().split()
    return [_hmac(key, b"\n".join([SEAL, name.encode(), manifest])) for key in keys]


def _hmac(key: str, content: bytes) -> str:
    return hmac.new(key.encode(), content, hashlib.sha256).hexdigest()
