"""Digests that go on from chunk to chunk, so that a file need not be read again at its end."""

import hashlib
from collections import OrderedDict

from upload_service.uploads.part_files import Digest

REMEMBERED = 4096  # transfers


class Digests:
    """The running SHA-256 of transfers whose chunks this process has seen in order from the first byte on."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, Digest]] = OrderedDict()

    def at(self, upload_id: str, offset: int) -> Digest | None:
        """A digest of the first `offset` bytes to go on with, or None where they would have to be read again."""
        if not offset:
            return hashlib.sha256()
        known_offset, digest = self._known.get(upload_id, (0, None))
        return digest.copy() if digest and known_offset == offset else None

    def remember(self, upload_id: str, offset: int, digest: Digest) -> None:
        self._known[upload_id] = offset, digest
        self._known.move_to_end(upload_id)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, upload_id: str) -> None:
        self._known.pop(upload_id, None)
