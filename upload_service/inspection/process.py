"""Opens an installer as a local file, inspects it in a confined process, and verifies its signatures in another one."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Self, TypeVar

import orjson

from common.concurrency.confined_process import ConfinedProcessFailed, run_confined
from common.concurrency.confinement import OUT_OF_MEMORY
from common.settings import BadSetting
from upload_service.inspection.model import (
    DAMAGED_STATUS,
    MAGIC_LENGTH,
    MAGICS,
    Findings,
    Reason,
    Signature,
    SignatureState,
)
from upload_service.inspection.signatures.trust import fingerprint, read_trusted
from upload_service.model import StorageKind, Upload
from upload_service.storage.filesystem import FolderStorage, StorageBackends, open_file
from upload_service.storage.part_files import full_disk

END = 256 << 20  # bytes; a signature is verified in a file that is fetched as a whole


@dataclass(frozen=True)
class InstallerFiles:
    """Opens an installer in any storage. `scratch` is a folder for files that must be fetched."""

    backends: StorageBackends
    folder: FolderStorage
    scratch: Path

    @asynccontextmanager
    async def open(self, upload: Upload) -> AsyncIterator[BinaryIO]:
        """The open file. A long one from object storage has its two ends, 256 MiB each, and zeros in between.

        Raises InstallerMissing, StorageFull if it cannot be fetched, and Unavailable.
        """
        if upload.storage is StorageKind.FOLDER:
            await self.backends.of(upload).size(upload)  # Gives the file its final name, if it has none yet.
            file: BinaryIO = await open_file(self.folder.path(upload))
        else:
            file = await self._fetch(upload)
        with file:
            yield file

    async def _fetch(self, upload: Upload) -> BinaryIO:
        storage = self.backends.of(upload)
        file: BinaryIO = await asyncio.to_thread(TemporaryFile, dir=self.scratch)
        try:
            for start, length in ends_of(upload.size):
                file.seek(start)
                async with aclosing(storage.read(upload, start, length)) as blocks:
                    async for block in blocks:
                        await asyncio.to_thread(_write, file, block)
        except BaseException:
            file.close()
            raise
        return file


def ends_of(size: int) -> Sequence[tuple[int, int]]:
    """The parts of a file of so many bytes that are fetched: start and length."""
    return [(0, size)] if size <= 2 * END else [(0, END), (size - END, END)]


def _write(file: BinaryIO, block: bytes) -> None:
    with full_disk():
        file.write(block)
        file.flush()


WALL_TIME = 20.0  # seconds
OUTPUT_LIMIT = 1 << 18  # bytes
VERIFIED_SIZE = 2 * END  # bytes; of a longer file only the ends may be here
VERIFICATION = "1"  # to change with the rules: files are verified again
VERIFICATION_MODULE = "upload_service.inspection.signatures.verification"

_Result = TypeVar("_Result", Findings, Signature)
_REASONS: dict[int | None, Reason] = {  # by exit status
    DAMAGED_STATUS: Reason.DAMAGED,
    OUT_OF_MEMORY: Reason.TOO_MUCH_MEMORY,
    -signal.SIGXCPU: Reason.TOO_LONG,
}

_UNVERIFIED = {
    Reason.TOO_LONG: "The verification takes too long.",
    Reason.TOO_MUCH_MEMORY: "The verification needs too much memory.",
}


class Unreadable(Exception):
    """A file cannot be inspected."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


async def read_installer(file: BinaryIO, suffix: str) -> Findings:
    """Inspect a file. Raises Unreadable, and Unavailable if this machine can start no process now."""
    head = await asyncio.to_thread(os.pread, file.fileno(), MAGIC_LENGTH, 0)
    if not head.startswith(MAGICS):
        return Findings()
    return await _run(Findings.parse, "upload_service.inspection", suffix, file=file)


@dataclass(frozen=True)
class Verifier:
    """Verifies signatures by the certificates in a file or folder; without one, no signer is trusted.

    Verdicts of another `version` are out of date.
    """

    trust: Path | None = None
    version: str = ""

    @classmethod
    def load(cls, trust: Path | None) -> Self:
        """Raises BadSetting if the certificates cannot be read."""
        try:
            certificates = read_trusted(trust)
        except (OSError, ValueError) as error:
            raise BadSetting(f"SIGNATURE_TRUST: {trust} cannot be read: {error}") from None
        return cls(trust and trust.absolute(), f"{VERIFICATION}-{fingerprint(certificates)}")

    async def verify(self, file: BinaryIO) -> Signature:
        """The verdict about a file. Raises Unavailable if this machine can start no process now."""
        status = await asyncio.to_thread(os.fstat, file.fileno())
        if status.st_size > VERIFIED_SIZE:
            reason = f"Files of more than {VERIFIED_SIZE >> 20} MiB are not verified."
            return Signature(SignatureState.UNSUPPORTED, reason)
        arguments = [str(self.trust)] if self.trust else []
        try:
            return await _run(
                Signature.parse, "upload_service.inspection.signatures.verification", *arguments, file=file
            )
        except Unreadable as error:
            reason = _UNVERIFIED.get(error.reason, "The verification failed.")
            return Signature(SignatureState.UNSUPPORTED, reason)


async def _run(parse: Callable[[Mapping[str, Any]], _Result], module: str, *arguments: str, file: BinaryIO) -> _Result:
    """Run a module of which standard output is a document. Raises Unreadable and Unavailable."""
    try:
        output = await run_confined(module, *arguments, stdin=file, wall_time=WALL_TIME, output_limit=OUTPUT_LIMIT)
    except TimeoutError:
        raise Unreadable(Reason.TOO_LONG) from None
    except ConfinedProcessFailed as error:
        raise Unreadable(_REASONS.get(error.status, Reason.ENDED_EARLY)) from None
    try:
        return parse(orjson.loads(output))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unreadable(Reason.ENDED_EARLY) from None
