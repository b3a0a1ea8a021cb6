"""The running SHA-256 of transfers, so that the last chunk needs no second reading of the file."""

import hashlib
from collections import OrderedDict

from upload_service.storage.part_files import Digest

MAX_DIGESTS = 4096  # of transfers


class Digests:
    """The running SHA-256 of transfers whose chunks this process has seen in order from the first byte on."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[int, Digest]] = OrderedDict()

    def get(self, upload_id: str, offset: int) -> Digest | None:
        """A copy of the digest of the first `offset` bytes; None if this process has not seen all of them."""
        if not offset:
            return hashlib.sha256()
        known_offset, digest = self._known.get(upload_id, (0, None))
        return digest.copy() if digest and known_offset == offset else None

    def put(self, upload_id: str, offset: int, digest: Digest) -> None:
        self._known[upload_id] = offset, digest
        self._known.move_to_end(upload_id)
        if len(self._known) > MAX_DIGESTS:
            self._known.popitem(last=False)

    def delete(self, upload_id: str) -> None:
        self._known.pop(upload_id, None)
