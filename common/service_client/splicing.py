"""Moves the rest of a request's body from its caller's socket to a service's socket, inside the kernel.

What holds:

- Nobody else reads the caller's socket: its transport is paused. Nobody else writes to the service's socket: its
  transport has sent all its bytes.
- At most `left` bytes are taken, all of this request. The pipe belongs to this request alone, and is closed with it.
- The next block is taken once the service's socket has the one before: a slow service slows its caller down.
- The descriptors are duplicates, closed after the last callback. The system cannot reuse their numbers before.
- A socket stays registered with the event loop until the other one must be waited for.
"""

import asyncio

from common.concurrency.byte_sources import PIPE, duplicate, pipe, splice_nonblocking
from common.errors import InvalidRequest
from common.http import bodies
from common.http.zero_copy import MAX_CHUNK


class Splice:
    """A move of `left` bytes, which are counted down. The service may take nothing for `stall_timeout` seconds."""

    def __init__(self, left: int, *, stall_timeout: float) -> None:
        self.left = left
        self._held = 0  # bytes in the pipe
        self._progress = 0  # bytes of the caller since its time limit began
        self._remaining = bodies.TIMEOUT  # seconds to wait for more of them
        self._stall_timeout = stall_timeout
        self._loop = asyncio.get_running_loop()
        self._done = self._loop.create_future()
        self._watched = -1  # the registered descriptor
        self._deadline = 0.0  # of the current wait

    async def run(self, source: asyncio.BaseTransport, sink: asyncio.BaseTransport) -> None:
        """Move all bytes.

        Raises:
            InvalidRequest: the caller has gone, or is too slow by the limit of `common.http.bodies.body`.
            ConnectionResetError: the service has gone.
            TimeoutError: the service takes nothing.
        """
        with duplicate(source) as self._source, duplicate(sink) as self._sink, pipe() as (self._outlet, self._inlet):
            self._timer = self._loop.call_later(min(self._remaining, self._stall_timeout), self._check_deadline)
            try:
                self._move()
                await self._done
            finally:
                self._timer.cancel()
                self._watch(-1)

    def _move(self) -> None:
        """Move what can be moved now, and wait for the socket that is not ready. Callback of both."""
        if self._watched == self._source:
            self._remaining = self._deadline - self._loop.time()
        try:
            self._move_available()
        except BlockingIOError:
            self._wait_for(self._sink if self._held else self._source)
        except InvalidRequest as error:
            self._finish(error)
        except OSError:  # The network may be gone, too, or the connection timed out.
            self._finish(ConnectionResetError("The service has gone.") if self._held else _broken())

    def _move_available(self) -> None:
        moved = 0
        while self._held or self.left:
            if self._held:
                self._held -= splice_nonblocking(self._outlet, self._sink, self._held)
            elif moved >= MAX_CHUNK:  # Other tasks run first. The caller's socket may be ready already.
                self._wait_for(self._source)
                return
            else:
                self._held = splice_nonblocking(self._source, self._inlet, min(self.left, PIPE))
                if not self._held:
                    raise _broken()
                moved += self._held
                self.left -= self._held
                self._progress += self._held
        self._finish(None)

    def _finish(self, error: Exception | None) -> None:
        self._watch(-1)
        if self._done.done():
            return
        if error:
            self._done.set_exception(error)
        else:
            self._done.set_result(None)

    def _wait_for(self, descriptor: int) -> None:
        if self._progress >= bodies.PROGRESS:
            self._progress, self._remaining = 0, bodies.TIMEOUT
        self._watch(descriptor)
        timeout = self._remaining if descriptor == self._source else self._stall_timeout
        self._deadline = self._loop.time() + timeout

    def _watch(self, descriptor: int) -> None:
        """Register a descriptor instead of the current one; -1 is none."""
        if descriptor == self._watched:
            return
        if self._watched == self._source:
            self._loop.remove_reader(self._source)
        elif self._watched == self._sink:
            self._loop.remove_writer(self._sink)
        if descriptor == self._source:
            self._loop.add_reader(self._source, self._move)
        elif descriptor == self._sink:
            self._loop.add_writer(self._sink, self._move)
        self._watched = descriptor

    def _check_deadline(self) -> None:
        """End a wait that takes too long. The timer is not moved by each wait: it comes early, and again."""
        remaining = self._deadline - self._loop.time()
        if self._watched == -1 or remaining > 0:
            # The next wait may be for the service, whose limit can be shorter.
            self._timer = self._loop.call_later(min(max(remaining, 0), self._stall_timeout), self._check_deadline)
        elif self._watched == self._source:
            self._finish(InvalidRequest("The body came too slowly."))
        else:
            self._finish(TimeoutError("The service takes nothing."))


def _broken() -> InvalidRequest:
    return InvalidRequest("The body is broken or ended early.")
