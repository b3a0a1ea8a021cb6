"""Reads YAML as manifests use it: plain data without aliases, every scalar a text.

YAML would read the version 1.10 as the number 1.1.
"""

from collections.abc import Iterator
from typing import Any

import yaml

from common.errors import Problem

MAX_BYTES = 1 << 20
MAX_VALUES = 50_000
MAX_DEPTH = 12
NULLS = frozenset(["", "~", "null", "Null", "NULL"])

Value = Any  # a text, a list of values, or a dict of values by texts; None within a list


class ManifestRefused(Problem):
    """A file is no manifest that can be published; the text has the place and the reason."""

    status = 400
    code = "manifest_refused"


def parse_yaml(content: bytes) -> Value:
    """Return a file's content. Raises ManifestRefused."""
    if len(content) > MAX_BYTES:
        raise ManifestRefused(f"is larger than {MAX_BYTES >> 20} MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestRefused(f"is not UTF-8, in byte {error.start}") from None
    try:
        return _Reader(yaml.parse(text, Loader=yaml.CSafeLoader)).document()
    except yaml.YAMLError as error:
        reason = getattr(error, "problem", None) or "is not YAML"
        raise _refused(getattr(error, "problem_mark", None), reason) from None


class _Reader:
    """Builds values from the parser's events, one at a time, and stops at the first that is refused."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._values = 0

    def document(self) -> Value:
        self._next()  # the start of the stream
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
            raise _refused(event.start_mark, "anchors and aliases are not read")
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None):
            raise _refused(event.start_mark, "tags are not read")
        return event

    def _value(self, event: yaml.Event, depth: int) -> Value:
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            raise _refused(event.start_mark, f"more than {MAX_DEPTH} levels or {MAX_VALUES} values")
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
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _refused(event.start_mark, "a field's name must be a text")
            if event.value in members:
                raise _refused(event.start_mark, f"{event.value} stands there twice")
            members[event.value] = self._value(self._next(), depth + 1)
        return {name: value for name, value in members.items() if value is not None}  # null is the same as no member


def _refused(mark: Any, reason: str) -> ManifestRefused:
    return ManifestRefused(f"line {mark.line + 1}: {reason}" if mark else reason)
