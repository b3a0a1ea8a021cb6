"""The MongoDB commands of requests, recorded by a listener of the driver."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from common.telemetry import request_id
from common.tenants import ALL_TENANTS
from tests.support.services.tenant_first import TenantFilterCheck


class CommandRecorder(CommandListener):
    """Records the commands of requests within `record`, without background work of the services."""

    def __init__(self) -> None:
        self._recording: RecordedCommands | None = None

    @contextmanager
    def record(self) -> Iterator["RecordedCommands"]:
        self._recording = RecordedCommands()
        try:
            yield self._recording
        finally:
            self._recording = None

    def started(self, event: CommandStartedEvent) -> None:
        # A service asks about all tenants in the background, and says so in the comment.
        is_background = not request_id() or event.command.get("comment") == ALL_TENANTS
        if self._recording is not None and not is_background:
            self._recording.add(event)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass


class RecordedCommands:
    """The recorded commands."""

    def __init__(self) -> None:
        self._tenant_first = TenantFilterCheck()
        self._commands: list[Mapping[str, Any]] = []

    def add(self, event: CommandStartedEvent) -> None:
        self._tenant_first.started(event)
        self._commands.append(event.command)

    @property
    def without_tenant(self) -> list[str]:
        """The commands whose filter or document does not begin with the tenant."""
        return self._tenant_first.violations

    def names(self) -> set[str]:
        """All names in the commands, including operators."""
        return {name for path, _ in self._leaves() for name in path} - {PIPELINE}

    def strings(self) -> set[str]:
        """All texts in the commands."""
        return {value for _, value in self._leaves() if isinstance(value, str)}

    def containing(self, text: str) -> list[str]:
        """The commands that contain a text."""
        return [str(command) for command in self._commands if text in str(command)]

    def evaluated(self, text: str) -> list[str]:
        """The paths at which a text is an operator's argument, or part of an evaluated expression."""
        return [
            ".".join(path)
            for path, value in self._leaves()
            if (value == text and _operators(path) - LITERAL_OPERATORS)
            or (text in str(value) and set(path) & EVALUATING_OPERATORS and "$literal" not in path)
        ]

    def _leaves(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        for command in self._commands:
            yield from _leaves(command, ())


PIPELINE = "$pipeline"  # no operator: an update that is evaluated
EVALUATING_OPERATORS = {PIPELINE, "$expr"}
LITERAL_OPERATORS = {"$set", "$setOnInsert", "$in", "$eq", "$and", "$or", "$literal"}


def _operators(path: Sequence[str]) -> set[str]:
    return {name for name in path if name.startswith("$")}


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(node, Mapping):
        for name, child in node.items():
            yield from _leaves(child, (*path, str(name)))
    elif isinstance(node, list | tuple):
        steps = (PIPELINE,) if path[-1:] in {("u",), ("update",)} else ()
        for child in node:
            yield from _leaves(child, (*path, *steps))
    else:
        yield path, node
