"""An application whose one route takes whatever is asked: its requests need not look for it."""

from collections.abc import Awaitable, Callable
from functools import partial

from aiohttp import hdrs, web

from common.http.middleware import OPEN_PATHS

# The route of an application that takes every path but the probes'.
CATCH_ALL_ROUTE: web.AppKey[web.AbstractRoute] = web.AppKey("everything", web.AbstractRoute)


def bypass_router(route: web.AbstractRoute, app: web.Application) -> Callable[..., Awaitable[web.StreamResponse]]:
    """Answer requests by the route that takes everything, as `app` does, without looking for it among all."""
    looked_for = app._handle
    found = web.UrlMappingMatchInfo({}, route)
    found.add_app(app)
    found.freeze()
    answer = route.handler
    for middleware in reversed(app.middlewares):
        answer = partial(middleware, handler=answer)

    def handle(request: web.Request) -> Awaitable[web.StreamResponse]:
        if request.path in OPEN_PATHS or request.method == hdrs.METH_CONNECT or hdrs.EXPECT in request.headers:
            return looked_for(request)
        request._match_info = found
        return answer(request)

    return handle
