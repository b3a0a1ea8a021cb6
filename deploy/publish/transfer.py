"""The transfer of one file to the server, chunk by chunk; it resumes at the byte that the server expects."""

from dataclasses import dataclass

from common.errors import Problem, UpstreamProblem
from deploy.publish.files import LocalFile, suffix_of
from deploy.publish.problems import Unreachable, UploadCancelled
from deploy.publish.retrying_client import RetryingClient, TransferState
from deploy.terminal import FileProgress

MIN_CHUNK = 256 << 10  # bytes of the chunks over an unreliable connection


@dataclass
class Transfer:
    """Sends one file under one X-File-ID, in chunks of at most `chunk_size` bytes.

    `resumed_from` is the number of bytes that the server had before this run.
    """

    client: RetryingClient
    file: LocalFile
    file_id: str
    chunk_size: int
    progress: FileProgress
    resumed_from: int = 0

    async def send(self) -> TransferState:
        """Send the bytes that the server lacks; the state of the complete transfer.

        Raises:
            UploadCancelled: another client cancelled the transfer after this run began.
            Problem: the server refuses or does not answer for too long, or the file changed.
        """
        state = await self.client.state(self.file_id)
        self.resumed_from = state.received
        self.progress.start("sending", self.file.size, state.received)
        try:
            while not state.complete:
                state = await self._send_next_chunk(state)
        except UpstreamProblem as refusal:
            if refusal.code == "transfer_cancelled" and state.received:
                raise UploadCancelled(f"The upload of {self.file.path} was cancelled by another client.") from None
            raise
        return state

    async def _send_next_chunk(self, state: TransferState) -> TransferState:
        known: TransferState | None = state

        async def attempt() -> TransferState:
            nonlocal known
            before = known or await self.client.state(self.file_id)
            known = None  # After a failed attempt only the server knows the state.
            return before if before.complete else await self._send_from(before.received)

        return await self.client.retrying(attempt)

    async def _send_from(self, start: int) -> TransferState:
        self.progress.update(start)
        content = await self.file.read(start, min(self.chunk_size, self.file.size - start))
        try:
            return await self.client.send_chunk(
                self.file_id, start, self.file.size, content, suffix_of(self.file.path), self.progress.update
            )
        except UpstreamProblem as refusal:
            if refusal.code == "unexpected_chunk":  # Another client sends the same file, or has sent it.
                state = await self.client.state(self.file_id)
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
        self.chunk_size = max(MIN_CHUNK, self.chunk_size // 2)
        return Unreachable(problem.detail)
