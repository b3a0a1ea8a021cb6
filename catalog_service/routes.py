"""The operations of catalog_service."""

from collections.abc import Sequence
from dataclasses import asdict, replace

import orjson
from aiohttp import web

from catalog_service import app_keys, forms, views
from catalog_service.catalog import response
from catalog_service.catalog.snapshot import View
from catalog_service.model.packages import PackageChanges
from catalog_service.model.versions import PackageVersion
from catalog_service.packages.service import logo_tag
from catalog_service.statistics import StatisticsFormat, csv_of
from catalog_service.versions.forms import form_identities, form_refusals, new_version
from common.http.forms import query_form, read_form
from common.http.middleware import REVISION_HEADER, audit, caller_of, json_response

routes = web.RouteTableDef()


@routes.post("/{tenant_id}/get_packages")
async def get_packages(request: web.Request) -> web.StreamResponse:
    include_disabled, ring = forms.include_disabled(request), caller_of(request).audience
    hidden = await request.app[app_keys.CLIENT_REGISTRY].hidden_from_caller(request)
    return await response.catalog(request, request.app[app_keys.CATALOG_CACHE], View(include_disabled, ring, hidden))


@routes.post("/{tenant_id}/add_package")
async def add_package(request: web.Request) -> web.Response:
    package = await forms.new_package(request)
    audit(request, package_id=package.package_id)
    await request.app[app_keys.PACKAGES].add(caller_of(request), package)
    return json_response({"Message": "Package was added successfully!"})


@routes.patch("/{tenant_id}/edit_package/{package_id:[^/]+}")
async def edit_package(request: web.Request) -> web.Response:
    package_id, changes = forms.package_in_path(request), await forms.package_changes(request)
    audit(request, package_id=package_id)
    changed = await request.app[app_keys.PACKAGES].edit(caller_of(request), package_id, changes)
    audit(request, changed, package_id=package_id)
    return json_response({"Message": "Package was updated successfully!"})


@routes.patch("/{tenant_id}/set_package_active/{package_id:[^/]+}")
async def set_package_active(request: web.Request) -> web.Response:
    package_id, active = forms.package_in_path(request), (await read_form(request)).flag("package_active")
    audit(request, package_id=package_id, active="1" if active else "0")
    changed = await request.app[app_keys.PACKAGES].edit(caller_of(request), package_id, PackageChanges(active=active))
    audit(request, changed, package_id=package_id)
    return json_response({"Message": "Package was updated successfully!"})


@routes.delete("/{tenant_id}/delete_package/{package_id:[^/]+}")
async def delete_package(request: web.Request) -> web.Response:
    package_id = forms.package_in_path(request)
    audit(request, package_id=package_id)
    await request.app[app_keys.PACKAGES].delete(caller_of(request), package_id)
    return json_response({"Message": "Package was deleted successfully!"})


@routes.get("/{tenant_id}/get_package_details/{package_id:[^/]+}")
async def get_package_details(request: web.Request) -> web.Response:
    package = await request.app[app_keys.PACKAGES].find(caller_of(request), forms.package_in_path(request))
    return json_response(views.package_details(package))


@routes.get("/{tenant_id}/find_packages")
async def find_packages(request: web.Request) -> web.Response:
    packages, total = await request.app[app_keys.PACKAGE_SEARCH].page(caller_of(request), forms.package_query(request))
    return json_response(views.packages_page(packages, total))


@routes.post("/{tenant_id}/check_names")
async def check_names(request: web.Request) -> web.Response:
    """Internal: refuse package ids and a ring that do not exist, for the gateway, which has a form with them."""
    caller, (package_ids, ring) = caller_of(request), await forms.names(request)
    if package_ids:
        await request.app[app_keys.PACKAGE_SEARCH].check_ids(caller, package_ids)
    if ring:
        await request.app[app_keys.RELEASES].check_ring(caller.tenant_id, ring)
    return json_response({})


@routes.get("/{tenant_id}/get_package_logo/{package_id:[^/]+}")
async def get_package_logo(request: web.Request) -> web.Response:
    logo = await request.app[app_keys.PACKAGE_SEARCH].logo(caller_of(request), forms.package_in_path(request))
    tag = logo_tag(logo)
    cache_control = response.IMMUTABLE if request.query.get("package_logo") == tag else response.REVALIDATE
    return response.png(request, logo, tag, cache_control)


@routes.get("/{tenant_id}/get_package_versions/{package_id:[^/]+}")
async def get_package_versions(request: web.Request) -> web.Response:
    caller, package_id, settings = caller_of(request), forms.package_in_path(request), request.app[app_keys.SETTINGS]
    expires = views.expiry_time(settings.download_lifetime)

    def render(versions: Sequence[PackageVersion]) -> bytes:
        return orjson.dumps([views.package_version(version, caller, settings, expires=expires) for version in versions])

    body, revision = await request.app[app_keys.LISTINGS].of_package(caller, package_id, render, expires=expires)
    headers = {REVISION_HEADER: revision} if revision else None
    return web.Response(body=body, headers=headers, content_type="application/json")


@routes.get("/{tenant_id}/get_specific_package_version/{version_uid:[^/]+}")
async def get_specific_package_version(request: web.Request) -> web.Response:
    caller, settings = caller_of(request), request.app[app_keys.SETTINGS]
    version = await request.app[app_keys.VERSIONS].find(caller, forms.uid_in_path(request))
    expires = views.expiry_time(settings.download_lifetime)
    return json_response(views.package_version(version, caller, settings, expires=expires))


@routes.get("/{tenant_id}/find_versions/{package_id:[^/]+}")
async def find_versions(request: web.Request) -> web.Response:
    caller, settings, package_id = caller_of(request), request.app[app_keys.SETTINGS], forms.package_in_path(request)
    offset, limit = forms.version_query(request)
    page = await request.app[app_keys.VERSIONS].page_with_refusals(caller, package_id, offset, limit)
    expires = views.expiry_time(settings.download_lifetime)
    uids = [version.uid for version, _ in page.rows]
    downloads = await request.app[app_keys.STATISTICS].downloads_of(caller, uids, forms.STATISTICS_DAYS)
    rows = [views.version_row(*row, caller, settings, downloads, expires=expires) for row in page.rows]
    return json_response({"versions": rows, "total": page.total, "winget_refusal": page.winget_refusal})


@routes.get("/{tenant_id}/check_version")
async def check_version(request: web.Request) -> web.Response:
    query = query_form(request)
    refusals, identities = form_refusals(query), form_identities(query)
    package_id = query.get("package_id") or ""
    shared = await request.app[app_keys.PACKAGES].shared_identities(caller_of(request), package_id, identities)
    return json_response({"winget_refusals": refusals, "shared_identities": views.shared_identities(shared)})


@routes.get("/{tenant_id}/get_version_details/{version_uid:[^/]+}")
async def get_version_details(request: web.Request) -> web.Response:
    caller, uid = caller_of(request), forms.uid_in_path(request)
    version, refused = await request.app[app_keys.VERSIONS].with_refusals(caller, uid)
    shared = await request.app[app_keys.VERSIONS].shared_identities(caller, version)
    return json_response(views.version_details(version, refused, shared))


@routes.post("/{tenant_id}/add_package_version/{package_id:[^/]+}")
async def add_package_version(request: web.Request) -> web.Response:
    package_id, form = forms.package_in_path(request), await read_form(request)
    inspections = request.app[app_keys.INSPECTIONS]
    version = new_version(await inspections.complete(caller_of(request), form), package_id)
    version = await inspections.with_identifiers(caller_of(request), version)
    version = replace(version, published_by=caller_of(request).username)
    details = {"package_id": package_id, "version": version.version, **views.external_installer(version)}
    audit(request, **details, uid=version.uid)
    uid = await request.app[app_keys.VERSIONS].add(caller_of(request), version)
    audit(request, **details, uid=uid)
    return json_response({"Message": "Package version was added successfully!", "UID": uid}, status=201)


@routes.delete("/{tenant_id}/delete_package_version/{package_id:[^/]+}")
async def delete_package_version(request: web.Request) -> web.Response:
    package_id, form = forms.package_in_path(request), await read_form(request)
    uids = forms.version_uids(form)
    audit(request, package_id=package_id, uids=uids)
    await request.app[app_keys.VERSIONS].delete(caller_of(request), package_id, uids)
    return json_response({"Message": "Package versions deleted successfully!"})


@routes.get("/{tenant_id}/get_finished_uploads")
async def get_finished_uploads(request: web.Request) -> web.Response:
    uploads = await request.app[app_keys.FINISHED_UPLOADS].unassigned(caller_of(request))
    return json_response([asdict(upload) for upload in uploads])


@routes.get("/{tenant_id}/get_statistics")
async def get_statistics(request: web.Request) -> web.Response:
    days, form = forms.statistics_query(request)
    versions = await request.app[app_keys.STATISTICS].downloads(caller_of(request), days)
    if form is StatisticsFormat.CSV:
        headers = {"Content-Disposition": 'attachment; filename="statistics.csv"'}
        return web.Response(text=csv_of(versions), content_type="text/csv", charset="utf-8", headers=headers)
    return json_response([{**vars(version), "downloads": version.downloads} for version in versions])


@routes.post("/{tenant_id}/catalog_summary")
async def catalog_summary(request: web.Request) -> web.Response:
    """Internal: the numbers of the catalog and the downloads of 30 days, for the gateway's overview."""
    summary = await request.app[app_keys.STATISTICS].summary(caller_of(request), forms.STATISTICS_DAYS)
    return json_response(asdict(summary))


@routes.get("/{tenant_id}/get_damaged_installers")
async def get_damaged_installers(request: web.Request) -> web.Response:
    files = await request.app[app_keys.VERSIONS].damaged(caller_of(request))
    return json_response([asdict(file) for file in files])
