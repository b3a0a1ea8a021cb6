"""The languages of the pages: English texts are in the pages, other languages in the catalogues in `texts`."""

from functools import cache
from gettext import GNUTranslations
from importlib.resources import files
from io import BytesIO

from aiohttp import web
from babel import negotiate_locale
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from common.auth.internal_tokens import Caller
from common.errors import NotFound
from gateway.dashboard.redirects import safe_next_url
from gateway.routing.client_address import is_https

LANGUAGES = {"en": "English", "de": "Deutsch"}
ENGLISH = "en"
COOKIE = "language"
COOKIE_LIFETIME = 31_536_000  # seconds


def _(text: str) -> str:
    """Mark a text for the catalogues. Templates translate it."""
    return text


def language_of(request: web.Request) -> str:
    """The language in the browser's cookie, else the first supported language of its preferences."""
    chosen = request.cookies.get(COOKIE, "")
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


def set_language(request: web.Request, caller: Caller, language: str) -> web.Response:
    """Store a language in the browser and redirect back to the page. Raises NotFound."""
    if language not in LANGUAGES:
        raise NotFound("There is no such language.")
    response = web.Response(status=303, headers={"Location": safe_next_url(request.query.get("next", ""), caller)})
    response.set_cookie(
        COOKIE, language, max_age=COOKIE_LIFETIME, httponly=True, samesite="Lax", secure=is_https(caller.base_url)
    )
    return response
