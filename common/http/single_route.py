"""Calls the only route of an application directly, without the router."""

from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import hdrs, web

from common.http.aiohttp_private import set_match_info
from common.http.middleware import OPEN_PATHS

# The route that takes every path but the probes'.
CATCH_ALL_ROUTE: web.AppKey[web.AbstractRoute] = web.AppKey("everything", web.AbstractRoute)


def bypass_router(
    app: web.Application, default: Callable[..., Awaitable[web.StreamResponse]]
) -> Callable[..., Awaitable[web.StreamResponse]]:
    """The handler of `app`'s requests: the catch-all route, or `default`, which uses the router."""
    route = app[CATCH_ALL_ROUTE]
    match_info = web.UrlMappingMatchInfo({}, route)
    match_info.add_app(app)
    match_info.freeze()
    handler = route.handler
    for middleware in reversed(app.middlewares):
        handler = partial(middleware, handler=handler)

    def handle(request: web.Request) -> Awaitable[web.StreamResponse]:
        if request.path in OPEN_PATHS or request.method == hdrs.METH_CONNECT or hdrs.EXPECT in request.headers:
            return default(request)
        set_match_info(request, match_info)
        return handler(request)

    return handle
