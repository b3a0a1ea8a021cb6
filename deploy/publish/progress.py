"""How far each file has come: a bar for each on a terminal, a line now and then in a pipeline's log."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as RichProgress

from deploy.publish.terminal import say, visible

STEP = 10  # percent from one line to the next


class Row(Protocol):
    """One file's progress, in bytes."""

    def reading(self, total: int) -> None:
        """The file's digest is being made."""

    def sending(self, total: int, done: int) -> None:
        """The file is being sent, from byte `done` on."""

    def checking(self, total: int) -> None:
        """Existing copies are being checked; `total` is the size of all files in bytes."""

    def copying(self, total: int, done: int) -> None:
        """Files are being copied, from byte `done` of all of them on."""

    def at(self, done: int) -> None:
        """This number of bytes is read, sent, checked or copied."""


class Progress(Protocol):
    """Shows the progress of several files."""

    def row(self, name: str) -> AbstractContextManager[Row]:
        """A row for a file, for as long as the block lasts."""


class Bars:
    """On a terminal; `keep` those of the files that are done."""

    def __init__(self, progress: RichProgress, *, keep: bool) -> None:
        self._progress = progress
        self._keep = keep

    @contextmanager
    def row(self, name: str) -> Iterator[Row]:
        bar = _Bar(self._progress, name)
        try:
            yield bar
        finally:
            bar.end(keep=self._keep)


class _Bar:
    def __init__(self, progress: RichProgress, name: str) -> None:
        self._progress = progress
        self._task = progress.add_task(visible(name), what="waiting", total=None)

    def reading(self, total: int) -> None:
        self._progress.reset(self._task, total=total, what="reading")

    def sending(self, total: int, done: int) -> None:
        # Reset, so that bytes of before do not count as speed.
        self._progress.reset(self._task, total=total, completed=done, what="sending")

    def checking(self, total: int) -> None:
        self._progress.reset(self._task, total=total, what="checking")

    def copying(self, total: int, done: int) -> None:
        self._progress.reset(self._task, total=total, completed=done, what="copying")

    def at(self, done: int) -> None:
        self._progress.update(self._task, completed=done)

    def end(self, *, keep: bool) -> None:
        if keep:
            self._progress.stop_task(self._task)
        else:
            self._progress.remove_task(self._task)


class Lines:
    """Where nobody watches: what is sent, and each tenth of it."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def row(self, name: str) -> Iterator[Row]:
        yield _Line(self._console, name)


class _Line:
    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._total = 0
        self._told = 0

    def reading(self, total: int) -> None:
        self._total = 0

    def sending(self, total: int, done: int) -> None:
        self._begin("sending", total, done)

    def checking(self, total: int) -> None:
        self._begin("checking", total, 0)

    def copying(self, total: int, done: int) -> None:
        self._begin("copying", total, done)

    def at(self, done: int) -> None:
        if not self._total:
            return
        percent = done * 100 // self._total
        if percent // STEP > self._told // STEP:
            self._told = percent
            self._say(f"{percent} %")

    def _begin(self, what: str, total: int, done: int) -> None:
        self._total, self._told = total, done * 100 // max(total, 1)
        self._say(f"{what} {decimal(total)}{f', from byte {done} on' if done else ''}")

    def _say(self, text: str) -> None:
        say(self._console, f"{self._name}: {text}")


@contextmanager
def shown(console: Console, *, keep: bool = True) -> Iterator[Progress]:
    """The progress that suits where the console writes to; `keep` the bars of files that are done."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[what]}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=console) as progress:
        yield Bars(progress, keep=keep)
