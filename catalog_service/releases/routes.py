"""The operations of release control."""

from aiohttp import web

from catalog_service import forms
from catalog_service.app_keys import RELEASES
from catalog_service.model.releases import VersionRelease
from catalog_service.releases import views
from catalog_service.releases.model import ReleaseQuery
from catalog_service.releases.policy import Policy
from catalog_service.releases.policy_edits import NAMES, policy_fields, to_audit_texts, to_settings
from common.errors import InvalidField
from common.http.forms import Form, query_form, read_form
from common.http.middleware import AUDIT, audit, caller_of, json_response
from common.tenants import RING_LIMIT

REASON_LIMIT = 1000  # characters
routes = web.RouteTableDef()


@routes.patch("/{tenant_id}/edit_release_policy")
async def edit_release_policy(request: web.Request) -> web.Response:
    """Internal: the part of `edit_settings` that this service owns, for the gateway."""
    fields = policy_fields(await read_form(request))
    audit(request, **fields)
    policies = await request.app[RELEASES].edit_policy(caller_of(request).tenant_id, fields)
    before, after = map(to_audit_texts, policies)
    # An edit of the rings can change the gates.
    names = [name for name in NAMES if name in fields or before[name] != after[name]]
    audit(request, {name: (before[name], after[name]) for name in names})
    return json_response({"Message": "Settings were updated successfully!"})


@routes.post("/{tenant_id}/find_release_policy")
async def find_release_policy(request: web.Request) -> web.Response:
    """Internal: the policy, for the gateway, which finds the rings of clients by it."""
    return json_response(to_settings(await request.app[RELEASES].policy(caller_of(request).tenant_id)))


@routes.get("/{tenant_id}/get_release/{version_uid:[^/]+}")
async def get_release(request: web.Request) -> web.Response:
    found = await request.app[RELEASES].find(caller_of(request), forms.uid_in_path(request))
    return json_response(views.release_with_history(*found))


@routes.get("/{tenant_id}/find_releases")
async def find_releases(request: web.Request) -> web.Response:
    query = _query(query_form(request))
    policy, versions, total = await request.app[RELEASES].page(caller_of(request), query)
    return json_response({"releases": [views.release(policy, version) for version in versions], "total": total})


@routes.post("/{tenant_id}/approve_version/{version_uid:[^/]+}")
async def approve_version(request: web.Request) -> web.Response:
    changed = await request.app[RELEASES].approve(caller_of(request), _audited_uid(request))
    return _answer(request, "Version was approved successfully!", *changed)


@routes.post("/{tenant_id}/promote_version/{version_uid:[^/]+}")
async def promote_version(request: web.Request) -> web.Response:
    uid, ring = forms.uid_in_path(request), (await read_form(request)).text("ring", limit=RING_LIMIT)
    audit(request, uid=uid, ring=ring)
    changed = await request.app[RELEASES].promote(caller_of(request), uid, ring)
    return _answer(request, "Version was promoted successfully!", *changed)


@routes.post("/{tenant_id}/pause_version/{version_uid:[^/]+}")
async def pause_version(request: web.Request) -> web.Response:
    changed = await request.app[RELEASES].pause(caller_of(request), _audited_uid(request))
    return _answer(request, "Version was paused successfully!", *changed)


@routes.post("/{tenant_id}/resume_version/{version_uid:[^/]+}")
async def resume_version(request: web.Request) -> web.Response:
    changed = await request.app[RELEASES].resume(caller_of(request), _audited_uid(request))
    return _answer(request, "Version was resumed successfully!", *changed)


@routes.post("/{tenant_id}/hold_version/{version_uid:[^/]+}")
async def hold_version(request: web.Request) -> web.Response:
    uid, reason = forms.uid_in_path(request), (await read_form(request)).text("reason", limit=REASON_LIMIT)
    audit(request, uid=uid, reason=reason)
    changed = await request.app[RELEASES].hold(caller_of(request), uid, reason)
    return _answer(request, "Version was held successfully!", *changed)


@routes.post("/{tenant_id}/roll_back_version/{version_uid:[^/]+}")
async def roll_back_version(request: web.Request) -> web.Response:
    uid = forms.uid_in_path(request)
    reason = (await read_form(request)).text("reason", limit=REASON_LIMIT, required=False)
    audit(request, uid=uid, reason=reason)
    policy, version, offered = await request.app[RELEASES].roll_back(caller_of(request), uid, reason)
    return _answer(request, "Version was rolled back successfully!", policy, version, offered=offered)


@routes.patch("/{tenant_id}/pin_version/{version_uid:[^/]+}")
async def pin_version(request: web.Request) -> web.Response:
    uid, pinned = forms.uid_in_path(request), (await read_form(request)).flag("pinned")
    audit(request, uid=uid, pinned="1" if pinned else "0")
    changed = await request.app[RELEASES].pin(caller_of(request), uid, pinned=pinned)
    return _answer(request, "Version was updated successfully!", *changed)


def _audited_uid(request: web.Request) -> str:
    uid = forms.uid_in_path(request)
    audit(request, uid=uid)
    return uid


def _answer(
    request: web.Request, message: str, policy: Policy, version: VersionRelease, **details: object
) -> web.Response:
    audit(request, package_id=version.package_id, version=version.version, **request[AUDIT]["target"])
    return json_response({"Message": message, "release": views.release(policy, version), **details})


def _query(query: Form) -> ReleaseQuery:
    state = query.get("state") or "in_flight"
    if state not in {"in_flight", "all"}:
        raise InvalidField("state", "must be one of in_flight, all", reason="not_a_choice", values="in_flight, all")
    return ReleaseQuery(
        in_flight=state == "in_flight",
        package_id=query.text("package_id", limit=forms.ID_LIMIT, required=False),
        offset=query.integer("offset", default=0),
        limit=query.integer("limit", default=forms.PAGE, least=1, most=forms.PAGE_LIMIT),
    )
