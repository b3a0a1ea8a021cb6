"""The pages' languages: English stands in them, others in the catalogues of `texts`."""

from functools import cache
from gettext import GNUTranslations
from importlib.resources import files
from io import BytesIO

from aiohttp import web
from babel import negotiate_locale
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from common.auth.callers import Caller
from common.errors import NotFound
from gateway.dashboard.redirects import safe_next_url
from gateway.routing.client_address import is_https

LANGUAGES = {"en": "English", "de": "Deutsch"}
ENGLISH = "en"
COOKIE = "language"
A_YEAR = 31_536_000  # seconds


def _(text: str) -> str:
    """Mark a text for the catalogues; it is looked up when it is told."""
    return text


def language_of(request: web.Request) -> str:
    """The language that a browser chose, else the first of those it prefers that there is."""
    chosen = request.cookies.get(COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    preferred = [part.partition(";")[0].strip() for part in request.headers.get("Accept-Language", "").split(",")]
    return (negotiate_locale(preferred, LANGUAGES, sep="-") or ENGLISH).casefold()


@cache
def translations(language: str) -> GNUTranslations:
    """The texts of a language."""
    compiled = BytesIO()
    with (files("gateway") / "dashboard" / "texts" / f"{language}.po").open("rb") as catalogue:
        write_mo(compiled, read_po(catalogue, locale=language))
    compiled.seek(0)
    return GNUTranslations(compiled)


def choose(request: web.Request, visitor: Caller, language: str) -> web.Response:
    """Remember a language in the browser, and lead back to the page. Raises NotFound."""
    if language not in LANGUAGES:
        raise NotFound("There is no such language.")
    response = web.Response(status=303, headers={"Location": safe_next_url(request.query.get("next", ""), visitor)})
    response.set_cookie(
        COOKIE, language, max_age=A_YEAR, httponly=True, samesite="Lax", secure=is_https(visitor.base_url)
    )
    return response
