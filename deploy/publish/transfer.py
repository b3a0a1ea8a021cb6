"""The transfer of one file to the server, chunk by chunk; it resumes at the byte that the server expects."""

from dataclasses import dataclass

from common.errors import Problem, UpstreamProblem
from deploy.publish.files import LocalFile, suffix_of
from deploy.publish.interface import Interface, TransferState
from deploy.publish.problems import Unreachable, UploadCancelled
from deploy.terminal import FileProgress

MIN_CHUNK = 256 << 10  # bytes of the chunks over an unreliable connection


@dataclass(frozen=True)
class StoredFile:
    """A file that the server has completely. `resumed_from` is the number of bytes that it had before this run."""

    server_filename: str
    sha256: str
    resumed_from: int


class Transfer:
    """Sends one file under one X-File-ID, in chunks of at most `chunk_size` bytes."""

    def __init__(
        self, interface: Interface, file: LocalFile, file_id: str, chunk_size: int, progress: FileProgress
    ) -> None:
        self._interface = interface
        self._file = file
        self._file_id = file_id
        self._chunk_size = chunk_size
        self._progress = progress

    async def send(self) -> StoredFile:
        """Send the bytes that the server lacks.

        Raises:
            UploadCancelled: another client cancelled the transfer after this run began.
            Problem: the server refuses or does not answer for too long, or the file changed.
        """
        state = await self._interface.state(self._file_id)
        resumed_from = state.received
        self._progress.start("sending", self._file.size, resumed_from)
        try:
            while not state.complete:
                state = await self._send_next_chunk(state)
        except UpstreamProblem as refusal:
            if refusal.code == "transfer_cancelled" and state.received:
                raise UploadCancelled(self._file.path) from None
            raise
        return StoredFile(state.server_filename, state.sha256, resumed_from)

    async def _send_next_chunk(self, state: TransferState) -> TransferState:
        known: TransferState | None = state

        async def attempt() -> TransferState:
            nonlocal known
            before = known or await self._interface.state(self._file_id)
            known = None  # After a failed attempt only the server knows the state.
            return before if before.complete else await self._send_from(before.received)

        return await self._interface.retrying(attempt)

    async def _send_from(self, start: int) -> TransferState:
        self._progress.update(start)
        content = await self._file.read(start, min(self._chunk_size, self._file.size - start))
        try:
            return await self._interface.send_chunk(
                self._file_id, start, self._file.size, content, suffix_of(self._file.path), self._progress.update
            )
        except UpstreamProblem as refusal:
            if refusal.code == "unexpected_chunk":  # Another client sends the same file, or has sent it.
                state = await self._interface.state(self._file_id)
                if state.received == start and not state.complete:
                    raise
                return state
            if refusal.code == "invalid_request":  # The body was too slow or incomplete; the server kept nothing of it.
                raise self._connection_failure(refusal) from None
            raise
        except Unreachable as problem:
            raise self._connection_failure(problem) from None

    def _connection_failure(self, problem: Problem) -> Unreachable:
        """Halve the chunks: the server keeps only whole chunks, and small ones pass an unreliable connection."""
        self._chunk_size = max(MIN_CHUNK, self._chunk_size // 2)
        return Unreachable(problem.detail)
