"""The filters of the templates, and the languages of the pages.

English texts are in the pages, other languages in the catalogues in `texts`. The catalogues also have a message for a
code of a service, in the context `error`. Its placeholders are the `params` beside the code. A code without a message
is shown with the English text of its service.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import cache
from gettext import GNUTranslations
from importlib.resources import files
from io import BytesIO
from typing import Any

import aiohttp_jinja2
from aiohttp import web
from babel import negotiate_locale
from babel.dates import format_date, format_datetime, format_timedelta
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.numbers import format_decimal
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup

from common.errors import Problem

LANGUAGES = {"en": "English", "de": "Deutsch"}
ENGLISH = "en"
LANGUAGE_COOKIE = "language"
HEADING = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
ROW_OR_CELL = re.compile(r"<(tr|th|td)\b")
EMPTY_CELL = re.compile(r"[^>]*>\s*</td>")
TAG = re.compile(r"<[^>]*>")
UNIQUE_SUFFIX = re.compile(r"~[0-9a-f]{32}\Z")  # uploads.js appends it to the file name
ROWS_REFUSED = "rows_refused"
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def _(text: str) -> str:
    """Mark a text for the catalogues. Templates translate it."""
    return text


def language_of(request: web.Request) -> str:
    """The language in the browser's cookie, else the first supported language of its preferences."""
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    preferred = [part.partition(";")[0].strip() for part in request.headers.get("Accept-Language", "").split(",")]
    return (negotiate_locale(preferred, LANGUAGES, sep="-") or ENGLISH).casefold()


@cache
def translations(language: str) -> GNUTranslations:
    """The catalogue of a language."""
    compiled = BytesIO()
    with (files("gateway") / "dashboard" / "texts" / f"{language}.po").open("rb") as catalogue:
        write_mo(compiled, read_po(catalogue, locale=language))
    compiled.seek(0)
    return GNUTranslations(compiled)


# The labels of the fields that winget may refuse or confuse.
LABELS = {
    "package_id": _("Package id"),
    "package_version": _("Version"),
    "package_name": _("Name"),
    "productcode": _("Product code"),
    "upgradecode": _("Upgrade code"),
    "package_family_name": _("Package family name"),
    "file_type_nested": _("Nested type"),
    "file_nested_path": _("Path inside the archive"),
}
SHARED = _("%(field)s: the package %(package)s has the same. winget may offer one to machines that have the other.")


def localized(problem: Problem, language: str) -> str:
    """The message of a problem. The message of an invalid field begins with the field's name."""
    params, field = problem.params, problem.params.get("field")
    if problem.code == ROWS_REFUSED:  # Its params are lines of a file, by the code of their reason.
        reasons = [_message(reason, {"lines": lines}, language) for reason, lines in params.items()]
        return " ".join([_message(problem.code, {}, language), *reasons]) if all(reasons) else problem.detail
    if message := _message(params.get("reason", ""), params, language):
        return f"{field}: {message}" if field else message
    return _message(problem.code, params, language) or problem.detail


def localized_reason(state: Mapping[str, Any], language: str) -> str:
    """The `reason` of a gate, a release or an event of its history."""
    messages = [_message(code, state["params"], language) for code in state["codes"]]
    return " ".join(messages) if all(messages) and messages else state["reason"]


def localized_refusal(refusal: Mapping[str, Any], language: str) -> str:
    """One of `winget_refusals`, with the label of its field."""
    field, message = refusal["field"], _message(refusal["code"], refusal, language) or refusal["reason"]
    label = translations(language).gettext(LABELS[field]) if field in LABELS else field and f"{field}:"
    return f"{label} {message}".lstrip()


def localized_identity(identity: Mapping[str, str], language: str) -> str:
    """One of `shared_identities` as a sentence."""
    texts, label = translations(language), LABELS[identity["field"]]
    return texts.gettext(SHARED) % {"field": texts.gettext(label), "package": identity["package_id"]}


def _message(code: str, params: Mapping[str, str], language: str) -> str:
    """The message of a code, "" if there is none."""
    message = translations(language).pgettext("error", code)
    with suppress(KeyError):  # A service of another release sends other params.
        return message % params if message != code else ""
    return ""


def set_up_templates(app: web.Application) -> Environment:
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
    return environment


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
