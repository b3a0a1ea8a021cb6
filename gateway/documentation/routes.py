"""Routes of the documentation: the interface's page, its OpenAPI document, their files, and the sign-in."""

import json

from aiohttp import web

from common.auth.internal_tokens import Caller
from common.http.middleware import BytesResponse
from gateway.app_keys import STATIC_FILES
from gateway.dashboard.assets import asset_response
from gateway.dashboard.page_request import PAGE_HEADERS, load_page_request, redirect_to_sign_in
from gateway.dashboard.pages import oidc, sign_in
from gateway.routing.target import Target

SIGN_IN = {"sign_in": sign_in.handle, "sign_in/oidc": oidc.begin, "sign_in/oidc/callback": oidc.finish}


async def page(request: web.Request, caller: Caller, target: Target) -> web.Response:
    """Answer a browser's request for one of the pages."""
    target.check_complete()
    match target.operation.name, target.segments[1:]:
        case "docs/assets", (_, asset):
            return asset_response(request, asset)
        case name, _ if name in SIGN_IN:
            return await SIGN_IN[name](request, caller)
    sign_in.show_problems(request, caller, request.raw_path)
    if await load_page_request(request, caller) is None:
        return redirect_to_sign_in(request, caller)
    files = request.app[STATIC_FILES]
    if target.operation.name == "docs":
        return BytesResponse(text=files.docs_page, content_type="text/html", charset="utf-8", headers=PAGE_HEADERS)
    document = {**files.document, "servers": [{"url": caller.base_url}]}
    return BytesResponse(text=json.dumps(document), content_type="application/json", headers=PAGE_HEADERS)
