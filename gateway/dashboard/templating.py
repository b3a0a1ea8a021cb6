"""The filters and translations of the templates."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import aiohttp_jinja2
from aiohttp import web
from babel.dates import format_date, format_datetime, format_timedelta
from babel.numbers import format_decimal
from jinja2 import PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from gateway.dashboard.error_messages import localized, localized_identity, localized_reason, localized_refusal
from gateway.dashboard.languages import translations

HEADING = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
ROW_OR_CELL = re.compile(r"<(tr|th|td)\b")
EMPTY_CELL = re.compile(r"[^>]*>\s*</td>")
TAG = re.compile(r"<[^>]*>")
UNIQUE_SUFFIX = re.compile(r"~[0-9a-f]{32}\Z")  # uploads.js appends it to the file name
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def set_up_templates(app: web.Application) -> None:
    """Let the application render the templates of the dashboard."""
    filters: dict[str, Callable[..., str]] = {
        "age": _with_language(_age),
        "bytes": _with_language(_bytes),
        "date": _with_language(lambda value, language: format_date(date.fromisoformat(value), locale=language)),
        "file_name": _file_name,
        "label_cells": label_cells,
        "localized": _with_language(localized),
        "localized_identity": _with_language(localized_identity),
        "localized_reason": _with_language(localized_reason),
        "localized_refusal": _with_language(localized_refusal),
        "number": _with_language(lambda value, language: format_decimal(value, locale=language)),
        "time": _with_language(_time),
    }
    environment = aiohttp_jinja2.setup(
        app,
        loader=PackageLoader("gateway.dashboard"),
        extensions=["jinja2.ext.i18n"],
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        filters=filters,
    )
    environment.install_gettext_callables(_gettext, _ngettext, newstyle=True)  # type: ignore[attr-defined]


def _with_language(function: Callable[[Any, str], str]) -> Callable[..., str]:
    """Pass the language of the page as the second argument."""

    @pass_context
    def with_language(context: Context, value: object) -> str:
        return function(value, context["language"])

    return with_language


@pass_context
def _gettext(context: Context, text: str) -> str:
    return translations(context["language"]).gettext(text)


@pass_context
def _ngettext(context: Context, singular: str, plural: str, count: int) -> str:
    return translations(context["language"]).ngettext(singular, plural, count)


def _bytes(value: int, language: str) -> str:
    """A size in the largest unit that gives at least 1, such as `1.5 GiB`."""
    size, unit = float(value), UNITS[0]
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            break
        size /= 1024
    return f"{format_decimal(round(size, 1), locale=language)} {unit}"


def _file_name(file_id: str) -> str:
    """The file name of an upload from a page; the X-File-ID of any other upload."""
    return UNIQUE_SUFFIX.sub("", file_id)


def _time(value: str, language: str) -> str:
    """A UTC time. Scripts convert it to the time zone of the browser."""
    return f"{format_datetime(datetime.fromisoformat(value), 'medium', locale=language)} UTC"


def _age(value: str, language: str) -> str:
    """A UTC time as its distance from now, such as `3 hours ago`."""
    return format_timedelta(datetime.fromisoformat(value) - datetime.now(UTC), add_direction=True, locale=language)


def label_cells(rows: str, headings: str) -> Markup:
    """Give each cell the heading of its column, which a phone shows beside it. Both texts are HTML."""
    texts = [
        "" if "visually-hidden" in heading else TAG.sub("", heading).strip() for heading in HEADING.findall(headings)
    ]
    column = 0

    def label(match: re.Match[str]) -> str:
        nonlocal column
        column = 0 if match[1] == "tr" else column + 1
        is_labelled = match[1] == "td" and column <= len(texts) and not EMPTY_CELL.match(rows, match.end())
        text = texts[column - 1].replace('"', "&quot;") if is_labelled else ""
        return f'{match[0]} data-label="{text}"' if text else match[0]

    return Markup(ROW_OR_CELL.sub(label, rows))  # noqa: S704  # The template has escaped all values.
