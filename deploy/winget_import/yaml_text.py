"""YAML as a manifest may be written in it: plain data without aliases, every scalar a text.

YAML would take the version 1.10 for the number 1.1, and a date for a date; here what is written is what is read.
"""

from collections.abc import Iterator
from typing import Any

import yaml

from deploy.winget_import.problems import ManifestRefused

MOST_BYTES = 1 << 20
MOST_VALUES = 50_000
DEEPEST = 12
NULLS = frozenset(["", "~", "null", "Null", "NULL"])

Value = Any  # a text, a list of values, or a dict of values by texts; None within a list


def read(content: bytes) -> Value:
    """What a file says. Raises ManifestRefused."""
    if len(content) > MOST_BYTES:
        raise ManifestRefused(f"is larger than {MOST_BYTES >> 20} MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestRefused(f"is not UTF-8, in byte {error.start}") from None
    try:
        return _Reader(yaml.parse(text, Loader=yaml.CSafeLoader)).document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise ManifestRefused(f"{where}{getattr(error, 'problem', None) or 'is not YAML'}") from None


class _Reader:
    """Builds values from the parser's events, one at a time: what is refused is not read any further."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._values = 0

    def document(self) -> Value:
        self._next()  # the stream's beginning
        if isinstance(self._next(), yaml.StreamEndEvent):
            raise ManifestRefused("is empty")
        value = self._value(self._next(), 0)
        self._next()
        if not isinstance(self._next(), yaml.StreamEndEvent):
            raise ManifestRefused("holds more than one document")
        return value

    def _next(self) -> yaml.Event:
        event = next(self._events)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise self._refused(event, "anchors and aliases are not read")
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None):
            raise self._refused(event, "tags are not read")
        return event

    def _value(self, event: yaml.Event, depth: int) -> Value:
        self._values += 1
        if depth > DEEPEST or self._values > MOST_VALUES:
            raise self._refused(event, f"more than {DEEPEST} levels or {MOST_VALUES} values")
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := self._next(), yaml.SequenceEndEvent):
                items.append(self._value(event, depth + 1))
            return items
        if isinstance(event, yaml.MappingStartEvent):
            return self._members(depth)
        if not isinstance(event, yaml.ScalarEvent):
            raise ManifestRefused("is empty")
        return None if event.implicit[0] and event.value in NULLS else event.value

    def _members(self, depth: int) -> Value:
        members: dict[str, Value] = {}
        names: set[str] = set()
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._refused(event, "a field's name must be a text")
            if event.value in names:
                raise self._refused(event, f"{event.value} stands there twice")
            names.add(event.value)
            value = self._value(self._next(), depth + 1)
            if value is not None:  # null is as if it were not there
                members[event.value] = value
        return members

    @staticmethod
    def _refused(event: yaml.Event, why: str) -> ManifestRefused:
        where = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
        return ManifestRefused(f"{where}{why}")
