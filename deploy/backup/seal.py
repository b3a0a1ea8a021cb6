"""The seal of a backup: an HMAC-SHA256 of its manifest under AUDIT_KEY, which no backup contains.

The manifest has the digest of every file of records, and the records have the digest of every installer. A backup with
a valid seal is therefore as its installation wrote it.
"""

import hashlib
import hmac

PURPOSE = b"the manifest of a backup of pkgrepo"  # No other HMAC under this key begins with these words.


def make_seal(keys: str, name: str, manifest: bytes) -> str:
    """The seal of a manifest under the first of these keys, in hexadecimal; `name` is the backup's."""
    return _seals(keys, name, manifest)[0]


def verify_seal(keys: str, name: str, manifest: bytes, seal: str) -> bool:
    """Whether a seal was made of this manifest, under this name, with any of these keys."""
    return any(hmac.compare_digest(expected.encode(), seal.encode()) for expected in _seals(keys, name, manifest))


def _seals(keys: str, name: str, manifest: bytes) -> list[str]:
    content = b"\n".join([PURPOSE, name.encode(), manifest])
    return [hmac.new(key.encode(), content, hashlib.sha256).hexdigest() for key in keys.split()]
