"""The operations of upload_service: those of the interface, the downloads, and those for other services."""

from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

from aiohttp import web

from common.http.bodies import read_json
from common.http.middleware import CALLER, audit, caller_of, json_response
from upload_service import views
from upload_service.app_keys import (
    CLAIMS,
    DOWNLOAD_COUNTER,
    DOWNLOAD_STORE,
    DOWNLOADS,
    INSPECTOR,
    INSTALLER_CHECKS,
    QUOTA,
    SCRUB_STORE,
    TRANSFER_METRICS,
    TRANSFERS,
)
from upload_service.content_range import ContentRange, parse_file_id
from upload_service.downloads.service import Address
from upload_service.forms import ChunkForm, InstallerForm, days_of, text_of, texts_of, withholdings_of
from upload_service.metrics import count_bytes
from upload_service.model import Status, Upload
from upload_service.scanning.store import Withholding

TOP_VERSIONS = 300  # whose downloads `download_totals` answers

routes = web.RouteTableDef()


@routes.post("/{tenant_id}/upload_package_version")
async def upload_package_version(request: web.Request) -> web.Response:
    caller, transfers = caller_of(request), request.app[TRANSFERS]
    file_id = parse_file_id(request.headers.getall("X-File-ID", []))
    async with transfers.report_expected_offset(caller, file_id):
        span = ContentRange.parse(request.headers.getall("Content-Range", []))
        with count_bytes(request.app[TRANSFER_METRICS].received, lambda: request.content.total_bytes):
            upload = await transfers.append(caller, file_id, span, ChunkForm(request))
    if upload.status is not Status.OPEN:
        audit(request, server_filename=upload.server_filename, sha256=upload.sha256)
    return json_response(views.progress(upload))


@routes.get("/{tenant_id}/upload_package_version")
async def transfer_state(request: web.Request) -> web.Response:
    file_id = parse_file_id(request.headers.getall("X-File-ID", []))
    upload = await request.app[TRANSFERS].find(caller_of(request), file_id)
    return json_response(views.progress(upload))


@routes.delete("/{tenant_id}/upload_package_version")
async def cancel_transfer(request: web.Request) -> web.Response:
    file_id = parse_file_id(request.headers.getall("X-File-ID", []))
    audit(request, file_id=file_id)
    await request.app[TRANSFERS].cancel(caller_of(request), file_id)
    return json_response({"Message": "Transfer was deleted successfully!"})


@routes.get("/{tenant_id}/inspect_upload/{server_filename:[^/]+}")
async def inspect_upload(request: web.Request) -> web.Response:
    caller, server_filename = caller_of(request), request.match_info["server_filename"]
    await request.app[CLAIMS].check_uploader(caller, server_filename)
    inspection = await request.app[INSPECTOR].find(caller.tenant_id, server_filename)
    return json_response(views.inspection(inspection))


@routes.get("/{tenant_id}/download/{server_filename:[^/]+}/{file_name:[^/]+}")
async def download(request: web.Request) -> web.StreamResponse:
    address = Address(
        **request.match_info, expires=request.query.get("expires", ""), signature=request.query.get("signature", "")
    )
    downloads = request.app[DOWNLOADS]
    upload = await downloads.find(address)
    if location := await downloads.redirect_address(upload, request.method):
        if views.redirects_to_end(request, upload):
            _count_download(request, upload)
        return web.Response(status=307, headers={"Location": location, "Cache-Control": "no-store"})
    if not_modified := views.not_modified(request, upload.sha256):
        return not_modified
    byte_range = views.requested_range(request, upload.sha256, upload.size)
    length = 0 if request.method == "HEAD" else byte_range.length
    async with downloads.open(upload, byte_range.start, length) as file:
        with count_bytes(request.app[TRANSFER_METRICS].sent, lambda: request.writer.output_size):
            count = partial(_count_download, request, upload) if byte_range.reaches(upload.size) else None
            return await views.send_installer(request, file, byte_range, address.file_name, count)


def _count_download(request: web.Request, upload: Upload) -> None:
    """Count a download by the address of the client, which without a gateway is that of the connection."""
    if counter := request.app[DOWNLOAD_COUNTER]:
        caller = request.get(CALLER)
        counter.count(upload, caller.ip if caller else request.remote or "")


@routes.post("/{tenant_id}/store_installer")
async def store_installer(request: web.Request) -> web.Response:
    form = InstallerForm(request)
    with count_bytes(request.app[TRANSFER_METRICS].received, lambda: request.content.total_bytes):
        upload = await request.app[TRANSFERS].store_whole(
            caller_of(request), form, min_size=form.min_size, max_size=request.content_length
        )
    return json_response(views.stored(form, upload))


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
    if body.get("withheld"):
        # A repeated claim changes nothing: release control has counted on from this fence.
        first = Withholding(version_uid, is_withheld=True, fence=0)
        await request.app[INSTALLER_CHECKS].store.withhold(upload.tenant_id, [first])
    inspection = await request.app[INSPECTOR].find(upload.tenant_id, upload.server_filename)
    return json_response({"size": upload.size, "sha256": upload.sha256, **views.identifiers(inspection)})


@routes.post("/{tenant_id}/inspect_installer")
async def inspect_installer(request: web.Request) -> web.Response:
    caller, name = caller_of(request), text_of(await read_json(request), "server_filename")
    await request.app[CLAIMS].check_uploader(caller, name)
    return json_response(views.inspection(await request.app[INSPECTOR].inspect(caller.tenant_id, name)))


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
    return json_response({"installers": {check.version_uid: views.installer_check(check) for check in checks}})


@routes.post("/{tenant_id}/withhold_installers")
async def withhold_installers(request: web.Request) -> web.Response:
    changes = withholdings_of(await read_json(request))
    await request.app[INSTALLER_CHECKS].store.withhold(caller_of(request).tenant_id, changes)
    return json_response({})


@routes.post("/{tenant_id}/infected_installers")
async def infected_installers(request: web.Request) -> web.Response:
    version_uids = await request.app[INSTALLER_CHECKS].store.find_infected(caller_of(request).tenant_id)
    return json_response({"version_uids": version_uids})


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
