"""The operations of packages: their forms, and the bodies of their responses."""

import asyncio
import json
from collections.abc import Coroutine, Sequence
from hashlib import sha256
from typing import Any
from uuid import uuid4

from aiohttp import web

from catalog_service.app_keys import LOGOS, PACKAGES, RELEASES
from catalog_service.catalog.routes import IMMUTABLE, REVALIDATE, png
from catalog_service.logos import LOGO_LIMIT
from catalog_service.model.manifest import PackageManifest
from catalog_service.model.manifest_fields import all_fields, parse_changes, parse_manifest
from catalog_service.model.packages import Order, Package, PackageChanged, PackageChanges, PackageQuery, PackageSummary
from catalog_service.packages.service import logo_tag
from catalog_service.versions.forms import ID_LIMIT, NAME_LIMIT, PAGE, PAGE_LIMIT, package_id, package_in_path
from common.errors import InvalidField, InvalidRequest
from common.http.bodies import FORM_LIMIT, if_match, read_json
from common.http.forms import Form, flag, query_form, read_form
from common.http.middleware import audit, caller_of, json_response

DESCRIPTION_LIMIT = 10_000  # characters
PACKAGE_FORM_LIMIT = LOGO_LIMIT + FORM_LIMIT  # bytes
CONNECTION_CHECK = 0.2  # seconds

routes = web.RouteTableDef()


@routes.post("/{tenant_id}/add_package")
async def add_package(request: web.Request) -> web.Response:
    package = await new_package(request)
    audit(request, package_id=package.package_id)
    await request.app[PACKAGES].add(caller_of(request), package)
    return json_response({"Message": "Package was added successfully!"})


@routes.patch("/{tenant_id}/edit_package/{package_id:[^/]+}")
async def edit_package(request: web.Request) -> web.Response:
    package_id, changes = package_in_path(request), await package_changes(request)
    audit(request, package_id=package_id)
    before = await request.app[PACKAGES].find(caller_of(request), package_id)
    if not if_match(request, package_details(before)["revision"]):
        raise PackageChanged
    edits = None if if_match(request, "") else before.edits
    changed = await request.app[PACKAGES].edit(caller_of(request), package_id, changes, edits)
    audit(request, changed, package_id=package_id)
    return json_response({"Message": "Package was updated successfully!"})


@routes.patch("/{tenant_id}/set_package_active/{package_id:[^/]+}")
async def set_package_active(request: web.Request) -> web.Response:
    package_id, active = package_in_path(request), (await read_form(request)).flag("package_active")
    audit(request, package_id=package_id, active="1" if active else "0")
    changed = await request.app[PACKAGES].edit(caller_of(request), package_id, PackageChanges(active=active))
    audit(request, changed, package_id=package_id)
    return json_response({"Message": "Package was updated successfully!"})


@routes.delete("/{tenant_id}/delete_package/{package_id:[^/]+}")
async def delete_package(request: web.Request) -> web.Response:
    package_id = package_in_path(request)
    audit(request, package_id=package_id)
    await request.app[PACKAGES].delete(caller_of(request), package_id)
    return json_response({"Message": "Package was deleted successfully!"})


@routes.get("/{tenant_id}/get_package_details/{package_id:[^/]+}")
async def get_package_details(request: web.Request) -> web.Response:
    package = await request.app[PACKAGES].find(caller_of(request), package_in_path(request))
    return json_response(package_details(package))


@routes.get("/{tenant_id}/find_packages")
async def find_packages(request: web.Request) -> web.Response:
    packages, total = await request.app[PACKAGES].page(caller_of(request), package_query(request))
    return json_response(packages_page(packages, total))


@routes.post("/{tenant_id}/search_catalog")
async def search_catalog(request: web.Request) -> web.Response:
    """Internal: the packages and versions for the gateway's `search`."""
    query = await read_json(request)
    packages, versions = await request.app[PACKAGES].search(caller_of(request), str(query["text"]), int(query["limit"]))
    names = [{"package_id": name.package_id, "version": name.version, "version_uid": name.uid} for name in versions]
    return json_response({"packages": [_summary(package) for package in packages], "versions": names})


@routes.post("/{tenant_id}/check_names")
async def check_names(request: web.Request) -> web.Response:
    """Internal: refuse package ids and a ring that do not exist, for the gateway, which has a form with them."""
    caller, names = caller_of(request), await read_json(request)
    ids, ring = names.get("package_ids", []), names.get("ring", "")
    if not isinstance(ids, list) or not all(isinstance(text, str) for text in [*ids, ring]):
        raise InvalidRequest("`package_ids` must be a list of texts, `ring` a text.")
    if ids:
        await request.app[PACKAGES].check_ids(caller, ids)
    if ring:
        await request.app[RELEASES].check_ring(caller.tenant_id, ring)
    return json_response({})


@routes.get("/{tenant_id}/get_package_logo/{package_id:[^/]+}")
async def get_package_logo(request: web.Request) -> web.Response:
    logo = await request.app[PACKAGES].logo(caller_of(request), package_in_path(request))
    tag = logo_tag(logo)
    cache_control = IMMUTABLE if request.query.get("package_logo") == tag else REVALIDATE
    return png(request, logo, tag, cache_control)


async def new_package(request: web.Request) -> Package:
    """Return the package that `add_package` creates.

    Raises InvalidField for a missing or forbidden field, Overloaded while other logos are decoded, or ConnectionError
    if the caller closed the connection while the logo was decoded.
    """
    form = await read_form(request, limit=PACKAGE_FORM_LIMIT)
    logo = await _logo(request, form) or b""
    return Package(
        package_id=package_id(form.text("package_id", limit=ID_LIMIT)),
        package_uid=str(uuid4()),
        name=form.text("package_name", limit=NAME_LIMIT),
        publisher=form.text("package_publisher", limit=NAME_LIMIT),
        description=form.text("package_description", limit=DESCRIPTION_LIMIT, required=False, lines=True),
        logo=logo,
        manifest=parse_manifest(PackageManifest, form),
    )


async def package_changes(request: web.Request) -> PackageChanges:
    """Return the changes of `edit_package`: the fields that are sent. Raises as `new_package` does."""
    form = await read_form(request, limit=PACKAGE_FORM_LIMIT)
    return PackageChanges(
        name=_sent(form, "package_name", NAME_LIMIT),
        publisher=_sent(form, "package_publisher", NAME_LIMIT),
        description=_sent(form, "package_description", DESCRIPTION_LIMIT, required=False, lines=True),
        logo=await _logo(request, form),
        manifest=parse_changes(PackageManifest, form),
    )


def package_query(request: web.Request) -> PackageQuery:
    """Return the query of `find_packages`. Raises InvalidField."""
    query = query_form(request)
    return PackageQuery(
        text=query.text("text", limit=NAME_LIMIT, required=False),
        package_ids=query.texts("package_id", limit=ID_LIMIT, most=PAGE_LIMIT),
        active=query.flag("active") if query.get("active") else None,
        order=query.choice("sort", Order, default=Order.ID),
        descending=flag("descending", query.get("descending") or "false"),
        offset=query.integer("offset", default=0),
        limit=query.integer("limit", default=PAGE, least=1, most=PAGE_LIMIT),
    )


def _sent(form: Form, name: str, limit: int, *, required: bool = True, lines: bool = False) -> str | None:
    return form.text(name, limit=limit, required=required, lines=lines) if name in form.fields else None


async def _logo(request: web.Request, form: Form) -> bytes | None:
    """Return the logo or None. Browsers send an empty file if none was chosen."""
    for name in ("Logo", "logo"):
        if image := form.files.get(name):
            decoding = request.app[LOGOS].decode(caller_of(request).tenant_id, "Logo", image)
            return await _while_connected(request, decoding)
        if form.get(name):
            raise InvalidField("Logo", "must be a file", reason="not_a_file")
    return None


async def _while_connected(request: web.Request, work: Coroutine[Any, Any, bytes]) -> bytes:
    """Run `work`, but cancel it when the caller closes the connection. Raises ConnectionError then."""
    task = asyncio.create_task(work)
    try:
        while not task.done() and request.transport is not None:
            await asyncio.wait({task}, timeout=CONNECTION_CHECK)
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled():
        result = task.result()
        if request.transport is not None:
            return result
    raise ConnectionResetError("The caller closed the connection.")


def packages_page(packages: Sequence[PackageSummary], total: int) -> dict[str, Any]:
    """Return a page of packages, and the number of packages on all pages."""
    rows = [
        {
            **_summary(package),
            "versions": package.versions,
            "newest_version": package.newest_version,
            "package_logo": package.logo,
            "winget_refusal": package.winget_refusal,
        }
        for package in packages
    ]
    return {"packages": rows, "total": total}


def package_details(package: Package) -> dict[str, Any]:
    """Return all fields of a package by their names in the form; of the logo only its tag."""
    details = {
        **_summary(package),
        "package_description": package.description,
        "package_logo": logo_tag(package.logo),
        **all_fields(package.manifest),
    }
    edited = json.dumps({**details, "package_active": ""}).encode()  # The switch is no part of the form.
    return {**details, "revision": sha256(edited).hexdigest()[:32]}


def _summary(package: Package | PackageSummary) -> dict[str, Any]:
    return {
        "package_id": package.package_id,
        "package_name": package.name,
        "package_publisher": package.publisher,
        "package_active": "1" if package.active else "0",
    }
