"""The operations that winget asks for."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import orjson
from aiohttp import web

from catalog_service import views
from catalog_service.app_keys import (
    CATALOG_CACHE,
    PACKAGE_SEARCH,
    PACKAGES,
    SEARCH_LIMIT,
    SETTINGS,
    SOURCE_ENTRIES,
    WINGET_SEARCH,
)
from catalog_service.catalog.reader import WholeEntry
from catalog_service.catalog.response import IMMUTABLE
from catalog_service.model.manifest.rules import PACKAGE_ID
from catalog_service.model.versions import PackageVersion
from catalog_service.packages.search import LogoNotFound
from catalog_service.winget.contracts import Contract
from catalog_service.winget.manifest.icons import check_icon_url, file_name, icon_url, with_logo_icon
from catalog_service.winget.manifest.installers import signature_of
from catalog_service.winget.manifest.manifest import Address, manifest
from catalog_service.winget.search import requests
from catalog_service.winget.search.index_segment import Record
from catalog_service.winget.search.requests import Query
from common.auth.callers import HIDDEN, hidden_word
from common.http.bodies import if_none_match, read_body
from common.http.middleware import REVISION_HEADER, BytesResponse, caller_of

routes = web.RouteTableDef()
BODY_LIMIT = 64 << 10  # bytes
MANY = 50  # versions of which an answer takes long enough to be made beside the event loop
# Seconds. Windows itself reads a package of known signature from its address, in many requests until it is installed.
INSTALLATION_LIFETIME = 25 * 3600
PAGE_SIZE = 256 << 10  # bytes of hits in JSON; a page has one at least, however long


@routes.post("/{tenant_id}/winget/manifestSearch")
async def search(request: web.Request) -> web.Response:
    caller, contract = caller_of(request), Contract.parse(request.headers.get("Version"))
    wanted = requests.parse_search(await read_body(request, BODY_LIMIT))
    if token := request.headers.get("ContinuationToken"):
        wanted = wanted.continued(token)
    hidden = await request.app[PACKAGES].hidden_from(caller)
    async with request.app[SEARCH_LIMIT].acquire(caller) if wanted.scans_texts else nullcontext():
        found, revision = await request.app[WINGET_SEARCH].find(caller.tenant_id, wanted, hidden, contract)
    page = found[: wanted.page]
    anew = sum(len(record.since) for record in page if not contract.supports_all(record))
    hits = await asyncio.to_thread(_page, contract, page) if anew > MANY else _page(contract, page)
    body = [b'{"Data":[', b",".join(hits), b"]"]
    if len(found) > len(hits):
        body += [b',"ContinuationToken":', orjson.dumps(wanted.token(found[len(hits) - 1].package_id))]
    return _answer(b"".join([*body, b"}"]) if found else b"", hidden, revision)


@routes.get("/{tenant_id}/winget/packageManifests/{package_id:[^/]+}")
async def package_manifest(request: web.Request) -> web.Response:
    caller, settings = caller_of(request), request.app[SETTINGS]
    contract, query = Contract.parse(request.headers.get("Version")), requests.parse_query(request.query)
    package_id = request.match_info["package_id"]
    if not PACKAGE_ID.fullmatch(package_id):  # The client asks for whatever its user typed.
        return BytesResponse(status=204)
    hidden = await request.app[PACKAGES].hidden_from(caller)
    revision = (await request.app[CATALOG_CACHE].check(caller.tenant_id)).state.stable_revision
    entry = await request.app[SOURCE_ENTRIES].find(caller.tenant_id, package_id, hidden)
    expires = views.expiry_time(settings.download_lifetime)

    def address(version: PackageVersion) -> str:
        lifetime = settings.download_lifetime
        if signature_of(version):
            lifetime = max(lifetime, INSTALLATION_LIFETIME)
        return views.installer_url(version, caller, settings, expires=views.expiry_time(lifetime))

    found = b""
    if entry and query.of_our_channel:
        if logo := entry.package.package.logo:
            url = icon_url(
                caller, settings.download_key, package_id=entry.package.package_id, logo=logo, expires=expires
            )
            entry = with_logo_icon(entry, url)
        made = partial(_manifest, entry, contract, query, address)
        found = await asyncio.to_thread(made) if len(entry.names) > MANY else made()
    return _answer(found, hidden, revision)


@routes.get("/{tenant_id}/icon/{package_id:[^/]+}/{file_name:[^/]+}")
async def icon(request: web.Request) -> web.Response:
    caller, package_id, name = caller_of(request), request.match_info["package_id"], request.match_info["file_name"]
    check_icon_url(
        request.app[SETTINGS].download_key,
        tenant_id=caller.tenant_id,
        package_id=package_id,
        name=name,
        expires=request.query.get("expires", ""),
        signature=request.query.get("signature", ""),
        now=time.time(),
    )
    logo = await request.app[PACKAGE_SEARCH].logo(caller, package_id)
    if file_name(logo) != name:
        raise LogoNotFound(package_id)
    headers = {"ETag": f'"{name}"', "Cache-Control": IMMUTABLE}
    if if_none_match(request, headers["ETag"]):
        return web.Response(status=304, headers=headers)
    return web.Response(body=logo, headers=headers, content_type="image/png")


def _manifest(entry: WholeEntry, contract: Contract, query: Query, address: Address) -> bytes:
    """A package's manifest in JSON; empty where there is nothing to tell."""
    found = manifest(entry, contract, query, address)
    return orjson.dumps({"Data": found}) if found else b""


def _page(contract: Contract, found: Sequence[Record]) -> Sequence[bytes]:
    """The first of what was found, in JSON, as far as it fits."""
    hits: list[bytes] = []
    size = 0
    for hit in map(contract.hit, found):
        size += len(hit)
        if hits and size > PAGE_SIZE:
            break
        hits.append(hit)
    return hits


def _answer(body: bytes, hidden: frozenset[str], revision: str) -> web.Response:
    """An answer in JSON; without one there is nothing to tell. The gateway is told what it depends on."""
    answer = BytesResponse(body=body, content_type="application/json") if body else BytesResponse(status=204)
    answer.headers.update({HIDDEN: hidden_word(hidden), **({REVISION_HEADER: revision} if revision else {})})
    return answer
