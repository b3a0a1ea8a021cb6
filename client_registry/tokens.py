"""Client tokens: shown once, kept as a digest under a key, so that a stolen database gives none (section 5.2)."""

import hashlib
import hmac
from dataclasses import dataclass
from uuid import uuid4

from client_registry.model import uuid_text

HINT_LENGTH = 4


@dataclass(frozen=True)
class IssuedToken:
    """A new token: `text` is for its client alone, `digest` and `hint` are kept."""

    text: str
    digest: str

    @property
    def hint(self) -> str:
        return self.text[-HINT_LENGTH:]


class ClientTokens:
    """Makes and recognises tokens."""

    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def issue(self) -> IssuedToken:
        text = str(uuid4())
        return IssuedToken(text, self._digest(text))

    def digest(self, token: str) -> str | None:
        """By what a token is found; None for what we never issue."""
        text = uuid_text(token)
        return self._digest(text) if text else None

    def _digest(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
