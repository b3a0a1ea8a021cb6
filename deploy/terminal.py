"""Terminal output: text from outside made safe to print, and the progress of each file."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unicodedata import category

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Column, Table
from rich.text import Text

LOG_STEP = 10  # percent from one line of a log to the next


def visible(text: object) -> str:
    r"""Escape what a terminal would obey or hide: control and bidirectional characters, and bytes that are not UTF-8.

    They become `\x1b` and the like. Spaces of any width stay.
    """

    def escape(character: str) -> str:
        is_visible = character.isprintable() or category(character) == "Zs"
        return character if is_visible else character.encode("unicode_escape").decode()

    return "".join(map(escape, str(text)))


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print a line in which rich interprets no markup."""
    console.print(Text(visible(text), style))


def json_text(document: Any) -> str:
    """JSON in ASCII, with everything else escaped."""
    return json.dumps(document, indent=2).replace("\x7f", "\\u007f")


def folding_table(*headings: str | Column) -> Table:
    """A table that folds long cells and cuts none."""
    table = Table(*headings)
    for column in table.columns:
        column.overflow = "fold"
    return table


class FileProgress:
    """The progress of one file, in bytes. This class shows nothing; its subclasses do."""

    done = 0

    def start(self, phase: str, total: int, done: int = 0) -> None:
        """Begin a phase, such as "sending", of `total` bytes; `done` of them were done before."""
        self.done = done

    def update(self, done: int) -> None:
        self.done = done

    def advance(self, size: int) -> None:
        self.update(self.done + size)


Rows = Callable[[str], AbstractContextManager[FileProgress]]
"""Shows a file by its name, for as long as the block lasts."""


class _Bar(FileProgress):
    def __init__(self, progress: Progress, name: str) -> None:
        self._progress = progress
        self.task = progress.add_task(visible(name), phase="waiting", total=None)

    def start(self, phase: str, total: int, done: int = 0) -> None:
        super().start(phase, total, done)
        # Reset, because bytes of an earlier run must not count as speed.
        self._progress.reset(self.task, total=total, completed=done, phase=phase)

    def update(self, done: int) -> None:
        super().update(done)
        self._progress.update(self.task, completed=done)


class _LogLines(FileProgress):
    """A line when a phase begins, and one for each tenth of it."""

    def __init__(self, console: Console, name: str) -> None:
        self._console, self._name = console, name
        self._total = self._percent = 0

    def start(self, phase: str, total: int, done: int = 0) -> None:
        super().start(phase, total, done)
        self._total, self._percent = total, done * 100 // max(total, 1)
        self._print(f"{phase} {decimal(total)}{f', from byte {done} on' if done else ''}")

    def update(self, done: int) -> None:
        super().update(done)
        percent = done * 100 // self._total if self._total else 0
        if percent // LOG_STEP > self._percent // LOG_STEP:
            self._percent = percent
            self._print(f"{percent} %")

    def _print(self, text: str) -> None:
        print_line(self._console, f"{self._name}: {text}")


@contextmanager
def show_progress(console: Console, *, keep: bool = True) -> Iterator[Rows]:
    """Show bars on a terminal, else lines; `keep` the bars of files that are done."""
    if not console.is_terminal:
        yield lambda name: nullcontext(_LogLines(console, name))
        return

    @contextmanager
    def row(name: str) -> Iterator[FileProgress]:
        bar = _Bar(progress, name)
        try:
            yield bar
        finally:
            end = progress.stop_task if keep else progress.remove_task
            end(bar.task)

    text, phase = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[phase]}")
    columns = (text, phase, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        yield row
