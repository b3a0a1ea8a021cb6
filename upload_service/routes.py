"""The operations of upload_service for other services, and the inspection and deletion of an upload."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from common.errors import InvalidField
from common.http.bodies import read_json
from common.http.middleware import audit, caller_of, json_response
from upload_service.downloads.routes import DOWNLOAD_COUNTER, DOWNLOAD_STORE
from upload_service.inspection.inspector import Inspector
from upload_service.inspection.model import Inspection, Signature, SignatureState, State
from upload_service.maintenance.store import MongoScrubStore
from upload_service.quota.store import MongoQuotaStore
from upload_service.scanning.service import InstallerCheck, InstallerChecks
from upload_service.scanning.store import Withholding
from upload_service.uploads.claims import Claims

TOP_VERSIONS = 300  # whose downloads `download_totals` answers
IDENTIFIERS = ("product_code", "upgrade_code", "package_family_name", "signature_sha256")

CLAIMS = web.AppKey("claims", Claims)
INSPECTOR = web.AppKey("inspector", Inspector)
QUOTA = web.AppKey("quota", MongoQuotaStore)
INSTALLER_CHECKS = web.AppKey("installer_checks", InstallerChecks)
SCRUB_STORE = web.AppKey("scrub_store", MongoScrubStore)

routes = web.RouteTableDef()


@routes.get("/{tenant_id}/inspect_upload/{server_filename:[^/]+}")
async def inspect_upload(request: web.Request) -> web.Response:
    caller, server_filename = caller_of(request), request.match_info["server_filename"]
    await request.app[CLAIMS].check_uploader(caller, server_filename)
    inspection = await request.app[INSPECTOR].find(caller.tenant_id, server_filename)
    scan = await request.app[INSTALLER_CHECKS].scan(caller.tenant_id, server_filename)
    return json_response({**inspection_fields(inspection), "scan": scan})


@routes.delete("/{tenant_id}/delete_upload/{server_filename:[^/]+}")
async def delete_upload(request: web.Request) -> web.Response:
    server_filename = request.match_info["server_filename"]
    audit(request, server_filename=server_filename)
    upload = await request.app[CLAIMS].delete(caller_of(request), server_filename)
    audit(request, server_filename=server_filename, file_id=upload.file_id, sha256=upload.sha256)
    return json_response({"Message": "Upload was deleted successfully!"})


@routes.post("/{tenant_id}/discard_installer")
async def discard_installer(request: web.Request) -> web.Response:
    body = await read_json(request)
    await request.app[CLAIMS].discard(caller_of(request), text_of(body, "server_filename"))
    return json_response({})


@routes.post("/{tenant_id}/claim_installer")
async def claim_installer(request: web.Request) -> web.Response:
    body = await read_json(request)
    version_uid = text_of(body, "version_uid")
    upload = await request.app[CLAIMS].claim(caller_of(request), text_of(body, "server_filename"), version_uid)
    is_withheld = upload.is_withheld
    if body.get("withheld"):
        # A repeated claim changes nothing: release control has counted on from this fence.
        first = Withholding(version_uid, is_withheld=True, fence=0)
        await request.app[INSTALLER_CHECKS].store.withhold(upload.tenant_id, [first])
        is_withheld = True
    inspection = await request.app[INSPECTOR].find(upload.tenant_id, upload.server_filename)
    fields = {"size": upload.size, "sha256": upload.sha256, "is_withheld": is_withheld}
    return json_response({**fields, **identifiers(inspection)})


@routes.post("/{tenant_id}/inspect_installer")
async def inspect_installer(request: web.Request) -> web.Response:
    caller, name = caller_of(request), text_of(await read_json(request), "server_filename")
    await request.app[CLAIMS].check_uploader(caller, name)
    return json_response(inspection_fields(await request.app[INSPECTOR].inspect(caller.tenant_id, name)))


@routes.post("/{tenant_id}/release_installers")
async def release_installers(request: web.Request) -> web.Response:
    body = await read_json(request)
    tenant_id, version_uids = caller_of(request).tenant_id, texts_of(body, "version_uids")
    await request.app[CLAIMS].release(tenant_id, version_uids)
    await request.app[DOWNLOAD_STORE].delete(tenant_id, version_uids)
    return json_response({})


@routes.post("/{tenant_id}/unclaimed_installers")
async def unclaimed_installers(request: web.Request) -> web.Response:
    body = await read_json(request)
    names = texts_of(body, "server_filenames")
    unclaimed = await request.app[CLAIMS].unclaimed(caller_of(request), names)
    return json_response({"server_filenames": unclaimed})


@routes.post("/{tenant_id}/damaged_installers")
async def damaged_installers(request: web.Request) -> web.Response:
    installers = await request.app[SCRUB_STORE].damaged_installers(caller_of(request).tenant_id)
    return json_response({"installers": [asdict(installer) for installer in installers]})


@routes.post("/{tenant_id}/installer_checks")
async def installer_checks(request: web.Request) -> web.Response:
    version_uids = texts_of(await read_json(request), "version_uids")
    checks = await request.app[INSTALLER_CHECKS].find(caller_of(request).tenant_id, version_uids)
    return json_response({"installers": {check.version_uid: installer_check(check) for check in checks}})


@routes.post("/{tenant_id}/withhold_installers")
async def withhold_installers(request: web.Request) -> web.Response:
    changes = withholdings_of(await read_json(request))
    await request.app[INSTALLER_CHECKS].store.withhold(caller_of(request).tenant_id, changes)
    return json_response({})


@routes.post("/{tenant_id}/infected_installers")
async def infected_installers(request: web.Request) -> web.Response:
    """Those of the tenant, or of `ALL_TENANTS`."""
    installers = await request.app[INSTALLER_CHECKS].store.find_infected(caller_of(request).tenant_id)
    return json_response({"installers": installers})


@routes.post("/{tenant_id}/download_counts")
async def download_counts(request: web.Request) -> web.Response:
    body = await read_json(request)
    tenant_id, days, uids = caller_of(request).tenant_id, days_of(body), texts_of(body, "version_uids")
    counts = await request.app[DOWNLOAD_STORE].counts(tenant_id, days, datetime.now(UTC), uids)
    counter = request.app[DOWNLOAD_COUNTER]
    since = counter.since.date() if counter and counter.since else None
    return json_response({"versions": counts, "since": since})


@routes.post("/{tenant_id}/download_totals")
async def download_totals(request: web.Request) -> web.Response:
    days = days_of(await read_json(request))
    by_day, by_version = await request.app[DOWNLOAD_STORE].totals(
        caller_of(request).tenant_id, days, datetime.now(UTC), TOP_VERSIONS
    )
    return json_response({"days": by_day, "versions": by_version})


@routes.post("/{tenant_id}/storage_usage")
async def storage_usage(request: web.Request) -> web.Response:
    used, reserved, damaged = await request.app[QUOTA].usage(caller_of(request).tenant_id)
    return json_response({"storage_used": used, "storage_reserved": reserved, "damaged_installers": damaged})


def text_of(body: Mapping[str, Any], name: str) -> str:
    """The text under a name. Raises InvalidField."""
    value = body.get(name)
    if not isinstance(value, str) or not value or len(value) > 128:
        raise InvalidField(name, "must be text of 1 to 128 characters")
    return value


def texts_of(body: Mapping[str, Any], name: str) -> list[str]:
    """The list of texts under a name. Raises InvalidField."""
    values = body.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) and 0 < len(value) <= 128 for value in values):
        raise InvalidField(name, "must be a list of texts of 1 to 128 characters")
    return values


def days_of(body: Mapping[str, Any]) -> int:
    """The number of days under `days`. Raises InvalidField."""
    days = body.get("days")
    if not isinstance(days, int) or not 1 <= days <= 400:
        raise InvalidField("days", "must be a whole number from 1 to 400")
    return days


def withholdings_of(body: Mapping[str, Any]) -> list[Withholding]:
    """The files to withhold, under `versions`. Raises InvalidField."""
    rows = body.get("versions")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidField("versions", "must be a list of objects")
    changes = [Withholding(text_of(row, "uid"), row.get("withheld"), row.get("fence")) for row in rows]
    if not all(type(change.is_withheld) is bool and type(change.fence) is int for change in changes):
        raise InvalidField("versions", "must have `withheld`, true or false, and `fence`, a whole number")
    return changes


def inspection_fields(result: Inspection) -> dict[str, Any]:
    """The findings about an installer, under the names of the form fields that they fill."""
    findings = result.findings
    return {
        "server_filename": result.server_filename,
        "state": result.state,
        "reason": result.reason,
        "file_type": findings.format,
        "file_architect": findings.machine,
        "file_scope": findings.reach,
        "package_version": findings.version,
        "package_name": findings.product_name,
        "package_publisher": findings.publisher,
        "productcode": findings.product_code,
        "upgradecode": findings.upgrade_code,
        "package_family_name": findings.package_family_name,
        "signature_sha256": findings.signature_sha256,
        "nested": [{"file_nested_path": file.path, "file_type_nested": file.format} for file in findings.nested],
        "signer": {**asdict(findings.signer), "verified": False} if findings.signer else None,
        "signature": signature_check(result),
    }


def signature_check(result: Inspection) -> dict[str, Any]:
    """The verdict about the signatures of an installer. Times are null where there are none."""
    signature = result.findings.signature if result.state is State.DONE else None
    if result.state is State.FAILED:
        signature = Signature(SignatureState.UNSUPPORTED, f"The file cannot be inspected: {result.reason}.")
    elif signature is None:
        signature = Signature(SignatureState.PENDING, "The signature is still being verified.")
    times = {"signed_at": signature.signed_at or None, "at": signature.at or None}
    return {**asdict(signature), **times, "revocation": "not checked"}


def identifiers(result: Inspection) -> dict[str, str]:
    """The Windows identifiers of the installed product, as far as the inspection has found them."""
    findings = result.findings.to_document()
    return {name: findings[name] for name in IDENTIFIERS if findings[name]}


def installer_check(check: InstallerCheck) -> dict[str, Any]:
    """The checks of the file of a version, for release control."""
    return {"sha256": check.sha256, "scan": check.scan, "signature": signature_check(check.inspection)}
