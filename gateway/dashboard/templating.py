"""What every template can use: texts of the page's language, and how figures and times are written."""

import re
from collections.abc import Callable
from datetime import datetime

import aiohttp_jinja2
from aiohttp import web
from babel.dates import format_datetime
from babel.numbers import format_decimal
from jinja2 import PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context

from common.errors import Problem
from gateway.dashboard.error_messages import localized, localized_sentence
from gateway.dashboard.languages import translations

MARK = re.compile(r"~[0-9a-f]{32}\Z")  # what uploads.js puts behind a file's name
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def set_up(app: web.Application) -> None:
    """Let the application render the dashboard's templates."""
    filters: dict[str, Callable[..., str]] = {
        "bytes": _bytes,
        "file_name": _file_name,
        "localized": _localized,
        "localized_sentence": _localized_sentence,
        "number": _number,
        "time": _time,
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


@pass_context
def _gettext(context: Context, text: str) -> str:
    return translations(context["language"]).gettext(text)


@pass_context
def _ngettext(context: Context, one: str, many: str, count: int) -> str:
    return translations(context["language"]).ngettext(one, many, count)


@pass_context
def _number(context: Context, value: float) -> str:
    return format_decimal(value, locale=context["language"])


@pass_context
def _bytes(context: Context, value: int) -> str:
    """A size in the largest unit of which there is one, such as `1.5 GiB`."""
    size, unit = float(value), UNITS[0]
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            break
        size /= 1024
    return f"{format_decimal(round(size, 1), locale=context['language'])} {unit}"


def _file_name(file_id: str) -> str:
    """What to call an upload: its file's name where a page sent it, else the X-File-ID as its sender chose it."""
    return MARK.sub("", file_id)


@pass_context
def _time(context: Context, value: str) -> str:
    """A time of the interface's, in UTC; scripts write it in the browser's own zone."""
    moment = datetime.fromisoformat(value)
    return f"{format_datetime(moment, 'medium', locale=context['language'])} UTC"


@pass_context
def _localized(context: Context, problem: Problem) -> str:
    return localized(problem, context["language"])


@pass_context
def _localized_sentence(context: Context, sentence: str) -> str:
    return localized_sentence(sentence, context["language"])
