"""The log of `pkgrepo up`: a file that keeps to a size, with what came before beside it."""

import os
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LIMIT = 16 << 20  # bytes of the file, and of the one before


class RotatingFile(FileIO):
    """A file that is moved to `NAME.1` before it would pass LIMIT, and begun anew."""

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
    """Text at the end of the file; each flush writes whole what came since the last."""
    return TextIOWrapper(BufferedWriter(RotatingFile(path)), encoding="utf-8")
