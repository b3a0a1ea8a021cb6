"""Patterns of package ids, such as `Acme.*`: `*` stands for any characters, everything else for itself."""

import json
import re
from collections.abc import Iterable
from fnmatch import translate
from functools import lru_cache

from common.errors import InvalidField

EVERY_PACKAGE = ("*",)  # the patterns of a caller who may change all packages
PATTERN_LIMIT = 128  # characters
MOST_PATTERNS = 30
TOTAL_LIMIT = 3500  # bytes of all patterns as JSON: they are part of internal tokens, which are one header of 8 KB
_NOT_IN_PATTERNS = frozenset('/\\:?"<>|,')


def parse_patterns(field: str, texts: Iterable[str]) -> tuple[str, ...]:
    """Different patterns, sorted. Raises InvalidField for none, or one that matches no package id."""
    patterns = tuple(sorted(set(texts)))
    if not patterns:
        raise InvalidField(field, "must have at least one pattern, such as Acme.*", reason="no_pattern")
    for pattern in patterns:
        if _NOT_IN_PATTERNS.intersection(pattern) or pattern in {".", ".."}:
            message = f"{pattern!r} is no package id and no pattern such as Acme.*"
            raise InvalidField(field, message, reason="not_a_pattern", pattern=pattern)
    if len(json.dumps(patterns)) > TOTAL_LIMIT:
        raise InvalidField(field, f"is longer than {TOTAL_LIMIT} characters", reason="too_long", limit=TOTAL_LIMIT)
    return patterns


def matches(patterns: tuple[str, ...], package_id: str) -> bool:
    """Whether one of the patterns matches a package id, in its letter case."""
    return patterns == EVERY_PACKAGE or _compiled(patterns).fullmatch(package_id) is not None


@lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> re.Pattern[str]:
    # The translation never tries a `*` twice, so a match takes linear time. `[` would begin a set.
    return re.compile("|".join(translate(pattern.replace("[", "[[]")) for pattern in patterns))
