"""Client tokens: shown once, stored as a keyed digest, so that a stolen database reveals none."""

from dataclasses import dataclass
from uuid import uuid4

from client_registry.clients.model import uuid_text
from common.auth.signing import Keys

HINT_LENGTH = 4


@dataclass(frozen=True)
class IssuedToken:
    """A new token: `text` is for its client alone, `digest`, `key_id` and `hint` are stored."""

    text: str
    digest: str
    key_id: str

    @property
    def hint(self) -> str:
        return self.text[-HINT_LENGTH:]


class ClientTokens:
    """Issues tokens and computes their digests."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def issue(self) -> IssuedToken:
        text, key_id = str(uuid4()), self.key_id
        return IssuedToken(text, self._keys.digests(text)[0], key_id)

    @property
    def key_id(self) -> str:
        """The id of the current key. Read it before a digest: if the key changes in between, the old one is named."""
        return self._keys.signing_id

    def digests(self, token: str) -> tuple[str, ...]:
        """The digests under which the token may be stored, the current one first; none for an impossible token."""
        text = uuid_text(token)
        return self._keys.digests(text) if text else ()
