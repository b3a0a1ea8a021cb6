"""Addresses of the pages: paths of this origin, below the path of the tenant."""

import re
from urllib.parse import quote, unquote, urlsplit

from aiohttp import web

from common.auth.internal_tokens import Caller
from gateway.routing.target import Target

# Printable characters of a path or query; never `//host`, `\\host` or a control character, which lead to other sites.
_SAFE_URL = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@?-]|%[0-9A-Fa-f]{2}|/(?!/))*")
MAX_URL = 2048  # characters


def tenant_path(caller: Caller) -> str:
    """The path of the tenant's operations and pages, such as `/acme`."""
    return urlsplit(caller.base_url).path


def safe_next_url(url: str, caller: Caller) -> str:
    """The address of a page of the tenant; the overview for every other address."""
    home, docs = (f"{tenant_path(caller)}/{page}" for page in ("dashboard", "docs"))
    path = url.partition("?")[0]
    is_safe = len(url) <= MAX_URL and _SAFE_URL.fullmatch(url) and not {".", ".."} & set(unquote(path).split("/"))
    return url if is_safe and (path in {home, docs} or path.startswith(f"{home}/")) else home


def sign_in_url(request: web.Request, caller: Caller) -> str:
    """The address of the sign-in page, which redirects to the requested page afterwards."""
    next_url = request.raw_path if request.method in {"GET", "HEAD"} else ""
    return f"{tenant_path(caller)}/sign_in?next={quote(safe_next_url(next_url, caller), safe='/')}"


def url_without_alias(request: web.Request, caller: Caller, target: Target) -> str:
    """The path and query of a page below the tenant's own path, for a request to the path of the alias."""
    path = "/".join([tenant_path(caller), *(quote(segment, safe="") for segment in target.segments)])
    query = request.rel_url.raw_query_string
    return f"{path}?{query}" if query else path
