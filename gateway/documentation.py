"""The documentation pages, and what they load (section 5.2, rule 5)."""

import json

from aiohttp import web

from common.auth.callers import Caller
from common.http.middleware import BytesResponse
from gateway.app_keys import PAGES
from gateway.dashboard.assets import asset_response
from gateway.dashboard.page_request import PAGE_HEADERS, load_page_request, redirect_to_sign_in
from gateway.dashboard.pages import sign_in
from gateway.routing.target import Target


async def page(request: web.Request, caller: Caller, target: Target) -> web.Response:
    """Answer a browser's request for one of the pages."""
    target.check_complete()
    match target.operation.word, target.segments[1:]:
        case "docs/assets", (_, asset):
            return asset_response(request, asset)
        case "sign_in", _:
            return await sign_in.handle(request, caller)
    sign_in.show_problems(request, caller, request.raw_path)
    if await load_page_request(request, caller) is None:
        return redirect_to_sign_in(request, caller)
    pages = request.app[PAGES]
    if target.operation.word == "docs":
        return BytesResponse(
            text=pages.text("docs.html"), content_type="text/html", charset="utf-8", headers=PAGE_HEADERS
        )
    document = {**pages.document, "servers": [{"url": caller.base_url}]}
    return BytesResponse(text=json.dumps(document), content_type="application/json", headers=PAGE_HEADERS)
