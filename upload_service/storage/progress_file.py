"""The progress file of a transfer: its offset between two updates of the record, beside its part file.

A chunk under a kept lease is acknowledged from this file, without an update in MongoDB. What holds:

- The bytes before an offset are on the disk before the offset is written here. The offset is on the disk before the
  chunk is acknowledged. The part file is never truncated below an offset that was written here.
- A holder acknowledges from here only within `CERTAIN_SECONDS` after it sent its last successful update. The lease
  lasts `KEPT_SECONDS` from that update on. The rest is the margin for a database clock that jumps forward.
- So every acknowledged offset is on the disk before another process can acquire the lease. That process reads this
  file after it has acquired its own lease, and copies the bytes before the offset to a folder of its own.
- A late holder may still write here. It acknowledges nothing, and nobody reads its offset any more.
- An offset counts only for the lease that wrote it, the `kept_fence` of the record. A holder that releases its lease
  puts the offset into the record, and its offsets here count no more.
- Two slots are written in turn. A torn slot fails its checksum, and the other slot has the offset before it.

Everything here blocks: call it in a worker thread.
"""

import os
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from upload_service.storage.disk import sync_folder

CERTAIN_SECONDS = 1.0  # KEPT_SECONDS less 5 for jumps of the database's clock; also the age of the record's offset

_SLOTS = (0, 4096)  # positions in the file; no write of a disk changes both
_VALUES = struct.Struct("<QQ")  # fence, offset
_DIGEST = 16  # bytes
_LENGTH = _VALUES.size + _DIGEST


def certain_until(sent: float) -> float:
    """The time until which a lease is certain whose last update was sent at `sent`, by `clock`."""
    return sent + CERTAIN_SECONDS


def clock() -> float:
    """Seconds that also pass while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class ProgressFile:
    """The offsets that the holder of the lease `fence` has written. Its lease is certain until `certain_until`."""

    path: Path
    fence: int
    certain_until: float = 0

    @property
    def is_certain(self) -> bool:
        return clock() < self.certain_until

    def read(self) -> int:
        """The last offset of this lease, 0 without one."""
        with suppress(FileNotFoundError):
            content = self.path.read_bytes()
            return max((offset for fence, offset in map(_parse, _slots(content)) if fence == self.fence), default=0)
        return 0

    def write(self, offset: int) -> None:
        """Write an offset and wait until it is on the disk."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o640)
        try:
            content = os.pread(descriptor, _SLOTS[-1] + _LENGTH, 0)
            if not content:  # The name is on the disk before the first offset: a failure in between leaves it empty.
                sync_folder(self.path.parent)
            newest = max(range(len(_SLOTS)), key=lambda number: _parse(_slots(content)[number]))
            values = _VALUES.pack(self.fence, offset)
            os.pwrite(descriptor, values + _checksum(values), _SLOTS[1 - newest])
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)


def _slots(content: bytes) -> list[bytes]:
    return [content[position : position + _LENGTH] for position in _SLOTS]


def _parse(slot: bytes) -> tuple[int, int]:
    """Fence and offset of a slot; zeros for one that is empty or torn."""
    values = slot[: _VALUES.size]
    if len(slot) < _LENGTH or slot[_VALUES.size :] != _checksum(values):
        return 0, 0
    fence, offset = _VALUES.unpack(values)
    return fence, offset


def _checksum(values: bytes) -> bytes:
    return blake2b(values, digest_size=_DIGEST).digest()
