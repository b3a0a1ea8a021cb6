"""Many questions to one store, asked together."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")
AT_ONCE = 512  # questions
PAUSE = 0.002  # seconds, for more to come in a crowd


class Batcher(Generic[Question, Answer]):
    """Asks whatever is waiting at once, and what comes meanwhile next: a crowd costs the store few commands.

    A question is never answered by what was asked before it came.
    """

    def __init__(self, ask_all: Callable[[Sequence[Question]], Awaitable[Sequence[Answer]]]) -> None:
        """`ask_all` gives the answers to at most `AT_ONCE` questions, in their order."""
        self._ask_all = ask_all
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._work: asyncio.Task[None] | None = None

    async def submit(self, question: Question) -> Answer:
        """Raises what `ask_all` raises; that ends the waiting of all, for the store is away."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, answer))
        if self._work is None:
            self._work = asyncio.create_task(self._ask_waiting())
        return await answer

    async def _ask_waiting(self) -> None:
        asked: list[tuple[Question, asyncio.Future[Answer]]] = []
        try:
            while self._waiting:
                asked, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
                answers = await self._ask_all([question for question, _ in asked])
                for (_, waiting), answer in zip(asked, answers, strict=True):
                    if not waiting.done():  # Who asked may have gone.
                        waiting.set_result(answer)
                if 1 < len(asked) < AT_ONCE:
                    await asyncio.sleep(PAUSE)
        except Exception as error:  # noqa: BLE001  it is theirs who asked
            for _, waiting in [*asked, *self._waiting]:
                if not waiting.done():
                    waiting.set_exception(error)
            self._waiting = []
        finally:
            self._work = None
