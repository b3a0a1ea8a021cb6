"""A chunk of a transfer: which bytes it may bring, and the comparison of one that was sent before."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol, TypeVar

from common.http.socket_body import SocketBody
from upload_service.content_range import ContentRange
from upload_service.model import InstallerMissing, Status, TransferNotFound, UnexpectedChunk, Upload
from upload_service.storage.filesystem import StorageBackends, read_blocks
from upload_service.storage.part_files import PartFiles
from upload_service.uploads.store import MongoUploadStore

B = TypeVar("B", bytes, bytes | SocketBody)


class Chunk(Protocol):
    """The body of a request. `suffix` is the ending of the file's name, known after all blocks were read."""

    suffix: str

    def blocks(self) -> AsyncIterator[bytes]: ...

    def large_blocks(self, length: int | None) -> AsyncIterator[bytes | SocketBody]:
        """As `blocks`; a body of `length` bytes, or of unknown length, may be a block that is still in the socket."""


def expect_total(upload: Upload, span: ContentRange) -> None:
    """Raise UnexpectedChunk if the chunk belongs to a file of another length."""
    if span.total != upload.total:
        raise UnexpectedChunk(f"The total was {upload.total} bytes before, not {span.total}", upload)


def expect_next(upload: Upload, span: ContentRange) -> None:
    """Raise UnexpectedChunk unless the chunk continues the transfer."""
    expect_total(upload, span)
    if span.start != upload.offset:
        kind = "leaves a gap" if span.start > upload.offset else "overlaps what is stored"
        raise UnexpectedChunk(f"A chunk that begins with byte {span.start} {kind}", upload)


async def expect_length(upload: Upload, span: ContentRange, blocks: AsyncIterator[B]) -> AsyncIterator[B]:
    """The blocks of a chunk. Raises UnexpectedChunk if they are longer or shorter than its range."""
    count = 0
    async for block in blocks:
        if count + len(block) > span.length:
            raise UnexpectedChunk(f"The body is longer than its range of {span.length} bytes", upload)
        yield block
        count += len(block)  # The length of a block in the socket is known from now on.
    if count != span.length:
        raise UnexpectedChunk(f"The body has {count} bytes, its range {span.length}", upload)


@dataclass(frozen=True)
class ResendCheck:
    """Compares a chunk that was sent before with the stored bytes."""

    store: MongoUploadStore
    parts: PartFiles
    backends: StorageBackends

    async def expect_same(self, upload: Upload, span: ContentRange, chunk: Chunk) -> None:
        """Read the whole chunk. Raises UnexpectedChunk if its total or its bytes differ from the stored ones."""
        expect_total(upload, span)
        if upload.status is Status.OPEN:
            stored = read_blocks(self.parts.path(upload), span.start, span.length)
        else:
            stored = self._read_installer(upload, span)
        if not await same_bytes(expect_length(upload, span, chunk.blocks()), stored):
            raise UnexpectedChunk("These bytes came before, and were others", upload)

    async def _read_installer(self, upload: Upload, span: ContentRange) -> AsyncGenerator[bytes, None]:
        """The stored bytes, also of a file that moves to its other storage before the first block is read."""
        has_begun = False
        try:
            async for block in self.backends.of(upload).read(upload, span.start, span.length):
                has_begun = True
                yield block
        except InstallerMissing:
            moved = await self.store.find(upload.tenant_id, upload.file_id)
            if moved is None or moved.is_gone:
                raise TransferNotFound from None
            if has_begun or moved.storage is upload.storage:
                raise
            async for block in self.backends.of(moved).read(moved, span.start, span.length):
                yield block


async def same_bytes(blocks: AsyncIterator[bytes], stored: AsyncGenerator[bytes, None]) -> bool:
    """Whether both are the same bytes; `blocks` is read to its end in any case."""
    same, known = True, bytearray()
    async with aclosing(stored):
        async for block in blocks:
            while same and len(known) < len(block):
                more = await anext(stored, b"")
                known += more
                same = bool(more)
            same = same and known.startswith(block)
            del known[: len(block)]
    return same
