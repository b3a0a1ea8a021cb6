"""The log of `pkgrepo up`: a file of limited size, rotated once."""

import os
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LIMIT = 16 << 20  # bytes of the file, and of the previous one


class RotatingFile(FileIO):
    """A file that is moved to `NAME.1` before it exceeds LIMIT."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "ab")
        self._path = path

    def write(self, data: "ReadableBuffer", /) -> int:
        if os.fstat(self.fileno()).st_size + memoryview(data).nbytes > LIMIT:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            with FileIO(self._path, "ab") as new:
                os.dup2(new.fileno(), self.fileno(), inheritable=False)
        return super().write(data)


def open_log(path: Path) -> TextIO:
    """Open the log for appending text; each flush writes complete lines."""
    return TextIOWrapper(BufferedWriter(RotatingFile(path)), encoding="utf-8")
