"""The operations of release control."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from aiohttp import web

from catalog_service.app_keys import RELEASES, RETENTION
from catalog_service.model.releases import GateState, GateStatus, Reason, VersionRelease, is_offered
from catalog_service.releases.effects import version_rows
from catalog_service.releases.gates import Policy, gates_of, kinds
from catalog_service.releases.policy_edits import NAMES, policy_fields, to_audit_texts, to_settings
from catalog_service.releases.store import ReleaseQuery
from catalog_service.versions.forms import ID_LIMIT, PAGE, PAGE_LIMIT, uid_in_path
from common.errors import InvalidField
from common.http.forms import Form, flag, query_form, read_form
from common.http.middleware import audit, caller_of, json_response
from common.tenants import RING_LIMIT

REASON_LIMIT = 1000  # characters
UNCHANGED = "Nothing was changed."
UNKNOWN = Reason(("not_looked_at",))
SHOWN = ("uid", "package_id", "version", "channel", "sha256", "published_at", "published_by", "status")
routes = web.RouteTableDef()


@routes.patch("/{tenant_id}/edit_release_policy")
async def edit_release_policy(request: web.Request) -> web.Response:
    """Internal: the part of `edit_settings` that this service owns, for the gateway."""
    form = await read_form(request)
    fields, tenant_id = policy_fields(form), caller_of(request).tenant_id
    if _is_preview(form):
        audit(request, preview="true", **fields)
        return json_response({"Message": UNCHANGED, "effect": await _policy_effect(request, fields)})
    audit(request, **fields)
    policies = await request.app[RELEASES].edit_policy(tenant_id, fields)
    before, after = map(to_audit_texts, policies)
    # An edit of the rings can change the gates.
    names = [name for name in NAMES if name in fields or before[name] != after[name]]
    audit(request, {name: (before[name], after[name]) for name in names})
    return json_response({"Message": "Settings were updated successfully!"})


async def _policy_effect(request: web.Request, fields: Mapping[str, str]) -> Mapping[str, Any]:
    """The effect of an edit on the versions in flight, and the versions that retention would then hide."""
    effect = await request.app[RELEASES].preview_policy(caller_of(request).tenant_id, fields)
    retired: Mapping[str, Any] = {"retired": [], "retired_total": 0}
    if "retention" in fields and effect.after.retention != effect.before.retention:
        preview = await request.app[RETENTION].preview(caller_of(request), effect.after)
        retired = {
            "retired": version_rows(version for version, _ in preview.expired),
            "retired_total": len(preview.expired),
        }
    return {**effect.to_json(), **retired}


@routes.post("/{tenant_id}/find_release_policy")
async def find_release_policy(request: web.Request) -> web.Response:
    """Internal: the policy, for the gateway, which finds the rings of clients by it."""
    return json_response(to_settings(await request.app[RELEASES].policies.find(caller_of(request).tenant_id)))


@routes.get("/{tenant_id}/get_release/{version_uid:[^/]+}")
async def get_release(request: web.Request) -> web.Response:
    found = await request.app[RELEASES].find(caller_of(request), uid_in_path(request))
    return json_response(release_with_history(*found))


@routes.get("/{tenant_id}/find_releases")
async def find_releases(request: web.Request) -> web.Response:
    query = _query(query_form(request))
    policy, versions, total = await request.app[RELEASES].page(caller_of(request), query)
    return json_response({"releases": [release(policy, version) for version in versions], "total": total})


@routes.post("/{tenant_id}/approve_version/{version_uid:[^/]+}")
async def approve_version(request: web.Request) -> web.Response:
    return await _change(request, "approve", "approved", edited_at=lambda form: form.get("edited_at"))


@routes.post("/{tenant_id}/promote_version/{version_uid:[^/]+}")
async def promote_version(request: web.Request) -> web.Response:
    return await _change(request, "promote", "promoted", ring=lambda form: form.text("ring", limit=RING_LIMIT))


@routes.post("/{tenant_id}/pause_version/{version_uid:[^/]+}")
async def pause_version(request: web.Request) -> web.Response:
    return await _change(request, "pause", "paused")


@routes.post("/{tenant_id}/resume_version/{version_uid:[^/]+}")
async def resume_version(request: web.Request) -> web.Response:
    return await _change(request, "resume", "resumed")


@routes.post("/{tenant_id}/hold_version/{version_uid:[^/]+}")
async def hold_version(request: web.Request) -> web.Response:
    return await _change(request, "hold", "held", reason=_reason)


@routes.post("/{tenant_id}/roll_back_version/{version_uid:[^/]+}")
async def roll_back_version(request: web.Request) -> web.Response:
    return await _change(request, "roll_back", "rolled back", reason=partial(_reason, required=False))


@routes.patch("/{tenant_id}/pin_version/{version_uid:[^/]+}")
async def pin_version(request: web.Request) -> web.Response:
    return await _change(request, "pin", "updated", pinned=lambda form: form.flag("pinned"))


async def _change(
    request: web.Request, operation: str, done: str, **parsers: Callable[[Form], str | bool | None]
) -> web.Response:
    """Take a step with the fields of the form, each read by its parser."""
    releases, uid = request.app[RELEASES], uid_in_path(request)
    form = await read_form(request) if parsers else Form()
    fields, preview = {name: parse(form) for name, parse in parsers.items()}, _is_preview(form)
    texts = {name: "01"[value] if isinstance(value, bool) else value for name, value in fields.items()}
    target = {"uid": uid, **{name: text for name, text in texts.items() if text is not None}}
    target |= {"preview": "true"} if preview else {}
    audit(request, **target)
    policy, version = await releases.change(caller_of(request), uid, operation, preview=preview, **fields)
    audit(request, package_id=version.package_id, version=version.version, **target)
    details = {"offered": await releases.offered(policy, version)} if preview or operation == "roll_back" else {}
    message = UNCHANGED if preview else f"Version was {done} successfully!"
    return json_response({"Message": message, "release": release(policy, version), **details})


def _is_preview(form: Form) -> bool:
    return flag("preview", form.get("preview") or "false")


def _reason(form: Form, *, required: bool = True) -> str:
    return form.text("reason", limit=REASON_LIMIT, required=required)


def _query(query: Form) -> ReleaseQuery:
    state = query.get("state") or "in_flight"
    if state not in {"in_flight", "all"}:
        raise InvalidField("state", "must be one of in_flight, all", reason="not_a_choice", values="in_flight, all")
    return ReleaseQuery(
        in_flight=state == "in_flight",
        package_id=query.text("package_id", limit=ID_LIMIT, required=False),
        offset=query.integer("offset", default=0),
        limit=query.integer("limit", default=PAGE, least=1, most=PAGE_LIMIT),
        uids=query.texts("version_uid", limit=ID_LIMIT, most=PAGE_LIMIT),
    )


def release(policy: Policy, version: VersionRelease) -> dict[str, Any]:
    """Return the stage of a version, with the state of each gate before each ring."""
    rings, level = policy.effective_rings, version.level(policy.effective_rings)
    return {
        **{name: getattr(version, name) for name in SHOWN},
        "file_architect": version.architecture,
        **version.release.reason.members,
        "pinned": version.release.pinned,
        "edited_at": version.edited_at,
        "stage": rings[level] if level >= 0 else "",
        "next_ring": rings[level + 1] if level + 1 < len(rings) else "",
        "rings": [_ring(policy, version, position) for position in range(len(rings))],
    }


def release_with_history(policy: Policy, version: VersionRelease) -> dict[str, Any]:
    """Return the same with the history, newest first."""
    return {
        **release(policy, version),
        "history": [{**asdict(event), **event.reason.members} for event in reversed(version.release.history)],
    }


def _ring(policy: Policy, version: VersionRelease, position: int) -> dict[str, Any]:
    rings = policy.effective_rings
    ring, entry = rings[position], version.release.entry_of(rings[position])
    return {
        "ring": ring,
        "offered": is_offered(version.stage, ring, rings),
        "entered_at": entry.at if entry else None,
        "entered_by": entry.by if entry else "",
        "gates": [_gate(state) for state in _gates(policy, version, position)],
    }


def _gates(policy: Policy, version: VersionRelease, position: int) -> Iterator[GateState]:
    """The gates that the version passed; before a ring to come, those of the policy that were looked at, or will be."""
    ring = policy.effective_rings[position]
    recorded = {state.gate: state for state in version.release.gates if state.ring == ring}
    if position <= version.level(policy.effective_rings):
        yield from recorded.values()
        return
    for gate in kinds(gates_of(policy, ring), version.package_id):
        if gate in recorded or not version.is_withdrawn:
            yield recorded.get(gate) or GateState(ring, gate, GateStatus.WAITING, UNKNOWN)


def _gate(state: GateState) -> dict[str, Any]:
    return {name: value for name, value in {**asdict(state), **state.reason.members}.items() if name != "ring"}
