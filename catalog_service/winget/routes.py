"""The routes of winget clients."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import orjson
from aiohttp import web

from catalog_service import app_keys
from catalog_service.catalog.reader import WholeEntry
from catalog_service.catalog.routes import IMMUTABLE, png
from catalog_service.model.versions import PackageVersion
from catalog_service.model.winget_rules import PACKAGE_ID
from catalog_service.packages.service import LogoNotFound
from catalog_service.versions.routes import client_expiry, client_url, expiry_time
from catalog_service.winget import requests
from catalog_service.winget.contracts import Contract
from catalog_service.winget.index import Record
from catalog_service.winget.manifest import (
    Address,
    file_name,
    icon_url,
    manifest,
    signature_of,
    stored_name,
    with_logo_icon,
)
from catalog_service.winget.requests import Query
from common.auth.downloads import INSTALLATION_LIFETIME, check_download
from common.auth.internal_tokens import HIDDEN, hidden_digest
from common.http.bodies import read_body
from common.http.middleware import REVISION_HEADER, BytesResponse, caller_of
from common.redis import TENANT_VERSION_HEADER

routes = web.RouteTableDef()
BODY_LIMIT = 64 << 10  # bytes
MANY = 50  # versions; a response with more is built in a thread
PAGE_SIZE = 256 << 10  # bytes of results in JSON; a page has at least one result


@routes.post("/{tenant_id}/winget/manifestSearch")
async def manifest_search(request: web.Request) -> web.Response:
    caller, contract = caller_of(request), Contract.parse(request.headers.get("Version"))
    search = requests.parse_search(await read_body(request, BODY_LIMIT))
    if token := request.headers.get("ContinuationToken"):
        search = search.continued(token)
    hidden = await request.app[app_keys.CLIENT_REGISTRY].hidden_from_caller(request)
    async with request.app[app_keys.SEARCH_LIMIT].acquire(caller) if search.scans_texts else nullcontext():
        records, revision = await request.app[app_keys.WINGET_SEARCH].find(
            caller.tenant_id, search, caller.audience, hidden, contract, request.headers.get(TENANT_VERSION_HEADER, "")
        )
    page = records[: search.page]
    rebuilt = sum(len(record.since) for record in page if not record.is_supported_by(contract))
    results = await asyncio.to_thread(_page, contract, page) if rebuilt > MANY else _page(contract, page)
    body = [b'{"Data":[', b",".join(results), b"]"]
    if len(records) > len(results):
        body += [b',"ContinuationToken":', orjson.dumps(search.token(records[len(results) - 1].package_id))]
    return _response(b"".join([*body, b"}"]) if records else b"", hidden, revision)


@routes.get("/{tenant_id}/winget/packageManifests/{package_id:[^/]+}")
async def package_manifest(request: web.Request) -> web.Response:
    caller, settings = caller_of(request), request.app[app_keys.SETTINGS]
    contract, query = Contract.parse(request.headers.get("Version")), requests.parse_query(request.query)
    package_id = request.match_info["package_id"]
    if not PACKAGE_ID.fullmatch(package_id):  # Clients request any text that their user typed.
        return BytesResponse(status=204)
    hidden = await request.app[app_keys.CLIENT_REGISTRY].hidden_from_caller(request)
    revision = (await request.app[app_keys.CATALOG_CACHE].check(caller.tenant_id)).state.stable_revision
    entry = await request.app[app_keys.SOURCE_ENTRIES].find(caller.tenant_id, package_id, caller.audience, hidden)
    expires = expiry_time(settings.download_lifetime)

    def address(version: PackageVersion) -> str:
        least = INSTALLATION_LIFETIME if signature_of(version) else 0
        return client_url(request, version, client_expiry(request, least))

    body = b""
    if entry and query.has_supported_channel:
        if logo := entry.package.logo:
            url = icon_url(caller, settings.download_key, entry.package.package_id, logo, expires=expires)
            entry = with_logo_icon(entry, url)
        build = partial(_manifest, entry, contract, query, address)
        body = await asyncio.to_thread(build) if len(entry.names) > MANY else build()
    return _response(body, hidden, revision)


@routes.get("/{tenant_id}/icon/{package_id:[^/]+}/{file_name:[^/]+}")
async def icon(request: web.Request) -> web.Response:
    caller, package_id, name = caller_of(request), request.match_info["package_id"], request.match_info["file_name"]
    check_download(
        request.app[app_keys.SETTINGS].download_key,
        tenant_id=caller.tenant_id,
        server_filename=stored_name(package_id),
        file_name=name,
        expires=request.query.get("expires", ""),
        signature=request.query.get("signature", ""),
        now=time.time(),
    )
    logo = await request.app[app_keys.PACKAGES].logo(caller, package_id)
    if file_name(logo) != name:
        raise LogoNotFound(package_id=package_id)
    return png(request, logo, name, IMMUTABLE)


def _manifest(entry: WholeEntry, contract: Contract, query: Query, address: Address) -> bytes:
    """Return a package's manifest in JSON, empty if the client can install nothing."""
    data = manifest(entry, contract, query, address)
    return orjson.dumps({"Data": data}) if data else b""


def _page(contract: Contract, records: Sequence[Record]) -> Sequence[bytes]:
    """Return the first records in JSON that fit into a page."""
    results: list[bytes] = []
    size = 0
    for record in records:
        result = record.json_for(contract)
        size += len(result)
        if results and size > PAGE_SIZE:
            break
        results.append(result)
    return results


def _response(body: bytes, hidden: frozenset[str], revision: str) -> web.Response:
    """Return a JSON response, 204 without a body. Its headers let the gateway cache it."""
    response = BytesResponse(body=body, content_type="application/json") if body else BytesResponse(status=204)
    response.headers.update({HIDDEN: hidden_digest(hidden), **({REVISION_HEADER: revision} if revision else {})})
    return response
