"""One file into the server's storage, chunk by chunk, from wherever the server stands."""

from dataclasses import dataclass

from common.errors import Problem, UpstreamProblem
from deploy.publish.files import LocalFile
from deploy.publish.guesses import suffix
from deploy.publish.interface import Interface, State
from deploy.publish.problems import Unreachable, UploadCancelled
from deploy.publish.progress import Row

SMALLEST = 256 << 10  # bytes of the chunks over a line that breaks again and again


@dataclass(frozen=True)
class Stored:
    """A file that the server has whole. `resumed_from` is how many bytes it had before this run."""

    server_filename: str
    sha256: str
    resumed_from: int


class Transfer:
    """Sends one file under one X-File-ID, in chunks of at most `chunk_size` bytes."""

    def __init__(self, interface: Interface, file: LocalFile, file_id: str, chunk_size: int, row: Row) -> None:
        self._interface = interface
        self._file = file
        self._file_id = file_id
        self._chunk_size = chunk_size
        self._row = row

    async def send(self) -> Stored:
        """Send what the server does not have yet.

        Raises:
            UploadCancelled: another client cancelled the transfer after this run began.
            Problem: the server refuses, or was away for too long; or the file changed.
        """
        state = await self._interface.state(self._file_id)
        resumed_from = state.received
        self._row.sending(self._file.size, resumed_from)
        try:
            while not state.complete:
                state = await self._go_on(state)
        except UpstreamProblem as refusal:
            if refusal.code == "transfer_cancelled" and state.received:
                raise UploadCancelled(self._file.path) from None
            raise
        return Stored(state.server_filename, state.sha256, resumed_from)

    async def _go_on(self, state: State) -> State:
        """Where the transfer stands after one more chunk."""
        known: State | None = state

        async def attempt() -> State:
            nonlocal known
            before = known or await self._interface.state(self._file_id)
            known = None  # After a try that failed, only the server knows.
            return before if before.complete else await self._send_from(before.received)

        return await self._interface.patiently(attempt)

    async def _send_from(self, start: int) -> State:
        self._row.at(start)
        content = await self._file.read(start, min(self._chunk_size, self._file.size - start))
        try:
            return await self._interface.send_chunk(
                self._file_id, start, self._file.size, content, suffix(self._file.path), self._row.at
            )
        except UpstreamProblem as refusal:
            if refusal.code == "unexpected_chunk":
                return await self._after_refusal(start, refusal)
            if refusal.code == "invalid_request":
                # Said of a body that came too slowly or broke on its way; nothing of it was kept.
                raise self._broken(refusal) from None
            raise
        except Unreachable as problem:
            raise self._broken(problem) from None

    async def _after_refusal(self, start: int, refusal: UpstreamProblem) -> State:
        """Where the server stands that expected another byte: someone else sends the same file, or did."""
        state = await self._interface.state(self._file_id)
        if state.received == start and not state.complete:
            raise refusal
        return state

    def _broken(self, problem: Problem) -> Unreachable:
        """A chunk is kept whole or not at all: on a line that breaks, smaller ones get through."""
        self._chunk_size = max(SMALLEST, self._chunk_size // 2)
        return Unreachable(problem.detail)
