"""Which keys a backup was made under, told without telling a key.

The audit log is sealed under AUDIT_KEY and client tokens are kept as HMACs under CLIENT_TOKEN_KEY. A fingerprint is an
HMAC too, of words that are the same for all, so it says no more than those do.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from deploy.operator.stores import StoreAddresses

AUDIT, CLIENT_TOKEN = "AUDIT_KEY", "CLIENT_TOKEN_KEY"
WORDS = b"the fingerprint of a key of pkgrepo"
Fingerprints = Mapping[str, Sequence[str]]


def fingerprints(where: StoreAddresses) -> dict[str, list[str]]:
    """Of the keys that are known here; a setting that was not given is left out."""
    words = {
        AUDIT: where.audit_key.get_secret_value().split() if where.audit_key else [],
        CLIENT_TOKEN: where.client_token_key.accepted if where.client_token_key else [],
    }
    return {name: [_fingerprint(key) for key in keys] for name, keys in words.items() if keys}


def missing_keys(then: Fingerprints, now: Fingerprints) -> list[str]:
    """The settings that lack a key which was there then; those that only one of the two knows are not compared."""
    return [name for name in sorted(then.keys() & now.keys()) if not set(then[name]) <= set(now[name])]


def not_compared(then: Fingerprints, now: Fingerprints) -> list[str]:
    """The settings of which one of the two knows nothing."""
    return sorted(then.keys() ^ now.keys())


def _fingerprint(key: str) -> str:
    return hmac.new(key.encode(), WORDS, hashlib.sha256).hexdigest()[:32]
