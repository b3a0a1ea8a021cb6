"""Addresses between the pages: paths of this origin, below the tenant's own."""

import re
from urllib.parse import quote, unquote, urlsplit

from aiohttp import web

from common.auth.callers import Caller
from gateway.routing.target import Target

# What is printed and begins no other address: no `//host`, no `\\host`, no control character.
_WAY = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@?-]|%[0-9A-Fa-f]{2}|/(?!/))*")
WAY_LIMIT = 2048  # characters


def prefix_of(caller: Caller) -> str:
    """The path below which the tenant's operations and pages stand, such as `/acme`."""
    return urlsplit(caller.base_url).path


def safe_next_url(wanted: str, caller: Caller) -> str:
    """The page that a browser wanted before it was led elsewhere; the overview for what is no page of the tenant's."""
    home, docs = (f"{prefix_of(caller)}/{page}" for page in ("dashboard", "docs"))
    path = wanted.partition("?")[0]
    plain = len(wanted) <= WAY_LIMIT and _WAY.fullmatch(wanted) and not {".", ".."} & set(unquote(path).split("/"))
    return wanted if plain and (path in {home, docs} or path.startswith(f"{home}/")) else home


def to_sign_in(request: web.Request, caller: Caller) -> str:
    """The sign-in page, which leads back to the page that this request is for."""
    wanted = request.raw_path if request.method in {"GET", "HEAD"} else ""
    return f"{prefix_of(caller)}/sign_in?next={quote(safe_next_url(wanted, caller), safe='/')}"


def short_address(request: web.Request, caller: Caller, target: Target) -> str:
    """The path and query of a page below the tenant's own path, for a request that came by the alias."""
    path = "/".join([prefix_of(caller), *(quote(segment, safe="") for segment in target.segments)])
    query = request.rel_url.raw_query_string
    return f"{path}?{query}" if query else path
