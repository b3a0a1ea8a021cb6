"""The operations of versions and their installers, and the bodies of their responses."""

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from catalog_service.app_keys import (
    LISTINGS,
    PACKAGES,
    RELEASES,
    SETTINGS,
    STATISTICS,
    VERSIONS,
)
from catalog_service.model.enumerations import Switch
from catalog_service.model.identities import SharedIdentity
from catalog_service.model.manifest import VersionManifest
from catalog_service.model.manifest_fields import all_fields
from catalog_service.model.packages import audit_text
from catalog_service.model.releases import VersionRelease
from catalog_service.model.versions import PackageVersion, VersionEdit, revision_of
from catalog_service.model.winget_rules import Refusal
from catalog_service.statistics import StatisticsFormat, csv_of
from catalog_service.versions.forms import (
    FORM_NAMES,
    IDENTIFIERS,
    PAGE,
    PAGE_LIMIT,
    accepted,
    completed_form,
    form_identities,
    form_refusals,
    new_version,
    package_in_path,
    parse_version,
    uid_in_path,
    version_uids,
    with_identifiers,
)
from common.auth.downloads import download_url, site_address, site_expiry
from common.auth.internal_tokens import Caller
from common.errors import InvalidField
from common.http.bodies import if_match, read_json
from common.http.forms import Form, query_form, read_form
from common.http.middleware import REVISION_HEADER, audit, caller_of, json_response

STATISTICS_DAYS, MAX_STATISTICS_DAYS = 30, 400
# The fields that a row of a version has by their names in forms, and the further ones of its details.
ROW = "uid version channel architecture installer_type scope locale size published_at published_by"
DETAILS = f"{ROW} package_id product_code upgrade_code package_family_name nested_paths upgrades installer_url"
# The fields of a version that no edit changes.
KEPT = ("uid", "version", "server_filename", "installer_url", "sha256", "size", "published_at", "published_by", "stage")
# Those that a form may repeat.
FIXED = ("package_version", "installer_url", "installer_sha256")
routes = web.RouteTableDef()


@routes.get("/{tenant_id}/get_package_versions/{package_id:[^/]+}")
async def get_package_versions(request: web.Request) -> web.Response:
    package_id, expires = package_in_path(request), client_expiry(request)

    def render(versions: Sequence[PackageVersion]) -> bytes:
        return orjson.dumps([package_version(each, client_url(request, each, expires)) for each in versions])

    body, revision = await request.app[LISTINGS].of_package(caller_of(request), package_id, render, expires=expires)
    headers = {REVISION_HEADER: revision} if revision else None
    return web.Response(body=body, headers=headers, content_type="application/json")


@routes.get("/{tenant_id}/get_specific_package_version/{version_uid:[^/]+}")
async def get_specific_package_version(request: web.Request) -> web.Response:
    version = await request.app[VERSIONS].find(caller_of(request), uid_in_path(request))
    return json_response(package_version(version, client_url(request, version, client_expiry(request))))


@routes.get("/{tenant_id}/find_versions/{package_id:[^/]+}")
async def find_versions(request: web.Request) -> web.Response:
    caller, package_id, query = caller_of(request), package_in_path(request), query_form(request)
    offset = query.integer("offset", default=0)
    limit = query.integer("limit", default=PAGE, least=1, most=PAGE_LIMIT)
    page = await request.app[VERSIONS].page_with_refusals(caller, package_id, offset, limit)
    uids = [version.uid for version, _ in page.rows]
    downloads = await request.app[STATISTICS].downloads_of(caller, uids, STATISTICS_DAYS)
    expires = expiry_time(request.app[SETTINGS].download_lifetime)
    rows = [version_row(*row, installer_url(request, row[0], expires), downloads) for row in page.rows]
    return json_response({"versions": rows, "total": page.total, "winget_refusal": page.winget_refusal})


@routes.get("/{tenant_id}/check_version")
async def check_version(request: web.Request) -> web.Response:
    caller, query = caller_of(request), query_form(request)
    refusals, identities = form_refusals(query), form_identities(query)
    if package_id := query.get("package_id") or "":
        caller.require_package(package_id)
    shared = await request.app[PACKAGES].shared_identities(caller, package_id, identities)
    return json_response({"winget_refusals": refusals, "shared_identities": shared_identities(shared)})


@routes.get("/{tenant_id}/get_version_details/{version_uid:[^/]+}")
async def get_version_details(request: web.Request) -> web.Response:
    caller, uid = caller_of(request), uid_in_path(request)
    version, refused = await request.app[VERSIONS].with_refusals(caller, uid)
    shared = await request.app[VERSIONS].shared_identities(caller, version)
    headers = {"ETag": f'"{revision_of(version)}"'}
    return json_response(version_details(version, refused, shared), headers=headers)


@routes.post("/{tenant_id}/add_package_version/{package_id:[^/]+}")
async def add_package_version(request: web.Request) -> web.Response:
    package_id, form = package_in_path(request), await read_form(request)
    installers = request.app[VERSIONS].installers
    version = new_version(await completed_form(installers, caller_of(request), form), package_id)
    version = await with_identifiers(installers, caller_of(request), version)
    version = replace(version, published_by=caller_of(request).username)
    details = {"package_id": package_id, "version": version.version, **external_installer(version)}
    audit(request, **details, uid=version.uid)
    uid = await request.app[VERSIONS].add(caller_of(request), version)
    audit(request, **details, uid=uid)
    return json_response({"Message": "Package version was added successfully!", "UID": uid}, status=201)


@routes.patch("/{tenant_id}/edit_package_version/{version_uid:[^/]+}")
async def edit_package_version(request: web.Request) -> web.Response:
    uid = uid_in_path(request)
    audit(request, uid=uid)
    read = partial(_read_edit, request, await read_form(request))
    edit = await request.app[RELEASES].edit(caller_of(request), uid, read)
    audit(request, edit.texts, package_id=edit.after.package_id, version=edit.after.version, uid=uid)
    headers = {"ETag": f'"{revision_of(edit.after)}"'}
    return json_response({"Message": "Package version was updated successfully!"}, headers=headers)


async def _read_edit(request: web.Request, form: Form, release: VersionRelease) -> VersionEdit:
    """Return the edit of a version by a form, checked as a new version is.

    Raises VersionChanged if `If-Match` names an earlier record, IdentityTaken for a restricted token, or InvalidField,
    also for a field that no edit changes.
    """
    versions, caller = request.app[VERSIONS], caller_of(request)
    before = await versions.find(caller, release.uid)
    if not if_match(request, revision_of(before)):
        raise release.changed
    own = version_details(before, (), ())
    if others := [name for name in FIXED if name in form.fields and form.get(name) != own[name]]:
        message = f"cannot change ({', '.join(FIXED)} stay as they are); publish a new version"
        raise InvalidField(others[0], message, reason="fixed_field", names=", ".join(FIXED))
    # Read as by a service: a restricted token may edit a version whose file another token uploaded.
    service, filled = Caller.service(caller.tenant), filled_form(form, before)
    await completed_form(versions.installers, service, filled)
    after = edited_version(filled, form.fields.keys(), before)
    if after.installer_type is not before.installer_type or form.fields.keys() & set(IDENTIFIERS):
        after = await with_identifiers(versions.installers, service, after)
    await versions.require_free_identities(caller, after)
    new = version_details(after, (), ())
    names = [name for name in new if own[name] != new[name] and name != "revision"]
    return VersionEdit(before, after, {name: (audit_text(own[name]), audit_text(new[name])) for name in names})


@routes.delete("/{tenant_id}/delete_package_version/{package_id:[^/]+}")
async def delete_package_version(request: web.Request) -> web.Response:
    package_id, form = package_in_path(request), await read_form(request)
    uids = version_uids(form)
    audit(request, package_id=package_id, uids=uids)
    await request.app[VERSIONS].delete(caller_of(request), package_id, uids)
    return json_response({"Message": "Package versions deleted successfully!"})


@routes.get("/{tenant_id}/get_finished_uploads")
async def get_finished_uploads(request: web.Request) -> web.Response:
    uploads = await request.app[VERSIONS].unassigned(caller_of(request))
    return json_response([asdict(upload) for upload in uploads])


@routes.get("/{tenant_id}/get_damaged_installers")
async def get_damaged_installers(request: web.Request) -> web.Response:
    files = await request.app[VERSIONS].damaged(caller_of(request))
    return json_response([asdict(file) for file in files])


@routes.get("/{tenant_id}/get_statistics")
async def get_statistics(request: web.Request) -> web.Response:
    query = query_form(request)
    days = query.integer("days", default=STATISTICS_DAYS, least=1, most=MAX_STATISTICS_DAYS)
    form = query.choice("format", StatisticsFormat, default=StatisticsFormat.JSON)
    versions = await request.app[STATISTICS].downloads(caller_of(request), days)
    if form is StatisticsFormat.CSV:
        headers = {"Content-Disposition": 'attachment; filename="statistics.csv"'}
        return web.Response(text=csv_of(versions), content_type="text/csv", charset="utf-8", headers=headers)
    return json_response([{**vars(version), "downloads": version.downloads} for version in versions])


@routes.post("/{tenant_id}/catalog_summary")
async def catalog_summary(request: web.Request) -> web.Response:
    """Internal: the numbers of the catalog and the downloads of some `days`, for the gateway's overview."""
    days = (await read_json(request)).get("days", STATISTICS_DAYS)
    summary = await request.app[STATISTICS].summary(caller_of(request), days)
    return json_response(asdict(summary))


def expiry_time(lifetime: int) -> int:
    """Return the expiry of an address with this lifetime in seconds, as seconds since 1970.

    It stays the same for some seconds, so that responses with it can be cached.
    """
    now = int(time.time())
    return now - now % max(1, lifetime // 360) + lifetime


def client_expiry(request: web.Request, least: int = 0) -> int:
    """Return the expiry of an address for a client, which lives at least so many seconds."""
    lifetime = max(request.app[SETTINGS].download_lifetime, least)
    return site_expiry(lifetime) if caller_of(request).site_url else expiry_time(lifetime)


def package_version(version: PackageVersion, url: str) -> dict[str, Any]:
    """Return a Package_Version object with the address of its installer."""
    return {
        "PACKAGE_ID": version.package_id,
        "VERSION": version.version,
        "LOCALE": version.locale,
        "ARCHITECTURE": version.architecture,
        "INSTALLER_TYPE": version.installer_type,
        "INSTALLER_URL": url,
        "INSTALLER_SHA256": version.sha256,
        "INSTALLER_SCOPE": version.scope,
        "UID": version.uid,
        "INSTALLER_NESTED_TYPE": version.nested_type or "",
        "PRODUCTCODE": version.product_code,
        "UPGRADECODE": version.upgrade_code,
        "PACKAGE_FAMILY_NAME": version.package_family_name,
        "CHANNEL": version.channel,
        "NESTED_PACKAGE_INSTALLER_PATHS": [{"RelativeFilePath": path} for path in version.nested_paths],
    }


def version_details(
    version: PackageVersion, refused: Sequence[Refusal], shared: Sequence[SharedIdentity]
) -> dict[str, Any]:
    """Return all fields of a version; `refused` has the reasons why winget clients refuse it.

    `shared` has its identities that other packages have, too.
    """
    dependencies = version.dependencies
    return {
        **_by_form_names(version, DETAILS),
        **{f"switch_{switch}": getattr(version.switches, switch.name.lower()) for switch in Switch},
        "file_type_nested": version.nested_type or "",
        "dep_windows_features": dependencies.windows_features,
        "dep_windows_libraries": dependencies.windows_libraries,
        "dep_external": dependencies.external,
        "dep_pkg_identifier": [package.package_id for package in dependencies.packages],
        "dep_pkg_min_version": [package.min_version for package in dependencies.packages],
        **all_fields(version.manifest),
        "installer_sha256": version.sha256 if version.installer_url else "",
        "revision": revision_of(version),
        "winget_refusals": refused,
        "shared_identities": shared_identities(shared),
    }


def shared_identities(shared: Sequence[SharedIdentity]) -> list[dict[str, str]]:
    """Return the identities that other packages have, by the names of form fields."""
    return [{"field": identity.kind, "value": identity.value, "package_id": identity.package_id} for identity in shared]


def filled_form(form: Form, version: PackageVersion) -> Form:
    """Return the form with the version's values in the fields that were not sent, except those of the manifest.

    The file is always the version's own.
    """
    shown = version_details(version, (), ())
    if "dep_pkg_identifier" in form.fields:
        del shown["dep_pkg_min_version"]  # They are pairs.
    lists = {name: value if isinstance(value, list | tuple) else (value or "",) for name, value in shown.items()}
    names = shown.keys() - VersionManifest.model_fields.keys()
    own = {"server_filename": (version.server_filename,)}
    return Form({**{name: tuple(map(str, lists[name])) for name in names}, **form.fields, **own})


def edited_version(filled: Form, sent: Set[str], version: PackageVersion) -> PackageVersion:
    """Return the version of a filled form, in whose manifest only the sent fields change. Raises InvalidField."""
    edited = parse_version(filled, version.package_id)
    texts = {name: getattr(edited.manifest, name) for name in sent & VersionManifest.model_fields.keys()}
    kept = {name: getattr(version, name) for name in KEPT}
    return accepted(replace(edited, **kept, manifest=version.manifest.model_copy(update=texts)))


def version_row(
    version: PackageVersion, refused: Sequence[Refusal], url: str, downloads: Mapping[str, int] | None
) -> dict[str, Any]:
    """Return a row of a package's versions; `downloads` are by uid, None if they are not known now."""
    return {
        **_by_form_names(version, ROW),
        "file_type_nested": version.nested_type or "",
        "sha256": version.sha256,
        "download_url": url,
        "downloads": downloads[version.uid] if downloads else None,
        "winget_refusals": refused,
    }


def _by_form_names(version: PackageVersion, fields: str) -> dict[str, Any]:
    return {FORM_NAMES.get(field, field): getattr(version, field) for field in fields.split()}


def installer_url(request: web.Request, version: PackageVersion, expires: int) -> str:
    """Return the external address of an installer, or an address here that is valid until `expires`."""
    settings = request.app[SETTINGS]
    return version.installer_url or download_url(
        caller_of(request),
        settings.download_key,
        direct=settings.download_url,
        server_filename=version.server_filename,
        file_name=f"{version.package_id}-{version.version}{version.suffix}",
        expires=expires,
    )


def client_url(request: web.Request, version: PackageVersion, expires: int) -> str:
    """Return the address of an installer for a client: at the host of the client's site, if it has one."""
    url, site_url = installer_url(request, version, expires), caller_of(request).site_url
    return url if version.installer_url or not site_url else site_address(url, site_url)


def external_installer(version: PackageVersion) -> dict[str, str]:
    """Return the host and the digest of an external installer. The rest of its address may have a secret."""
    if not version.installer_url:
        return {}
    return {"installer_host": urlsplit(version.installer_url).netloc, "sha256": version.sha256}
