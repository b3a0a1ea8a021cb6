"""The operations of auth_service, and the bodies of their responses."""

import hashlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import orjson
from aiohttp import web

from auth_service import forms
from auth_service.audit.service import Audit
from auth_service.audit.store import ChainedEntry
from auth_service.oidc.entra import EntraTokens
from auth_service.oidc.model import Provider, ProviderChanged
from auth_service.oidc.service import CALLBACK, OidcSignIn, Providers, shown
from auth_service.settings import AuthSettings
from auth_service.tenants.service import Tenants, check_networks, to_audit_text
from auth_service.users.login import Login, LoginMetrics
from auth_service.users.service import Users
from auth_service.users.store import PASSWORD_LIMIT, OwnPassword, User, UserNotFound
from auth_service.users.token_store import MAX_OVERLAP, Token, TokenNotFound, Tokens
from common.auth.roles import ADMINISTRATOR
from common.http.bodies import if_match, read_json
from common.http.forms import query_form, read_form
from common.http.middleware import audit, caller_of, json_response
from common.mongo import MongoError
from common.telemetry import log, request_id

SETTINGS = web.AppKey("settings", AuthSettings)
LOGIN = web.AppKey("login", Login)
LOGIN_METRICS = web.AppKey("login_metrics", LoginMetrics)
ENTRA = web.AppKey("entra", EntraTokens)
OIDC = web.AppKey("oidc", OidcSignIn)
PROVIDERS = web.AppKey("providers", Providers)
TENANTS = web.AppKey("tenants", Tenants)
TOKENS = web.AppKey("tokens", Tokens)
USERS = web.AppKey("users", Users)
AUDIT_LOG = web.AppKey("audit_log", Audit)
TEMPORARY_PASSWORD = 15  # random bytes
BLOCK = 64 << 10  # bytes of an export that are sent at once
LOGOUT_TOKEN_LIMIT = 16_000  # characters
REGISTERED = {  # at the provider
    "redirect_uri": CALLBACK,
    "post_logout_redirect_uri": "sign_in",
    "backchannel_logout_uri": "sign_in/oidc/backchannel_logout",
}
routes = web.RouteTableDef()


@routes.post("/{tenant_id}/login")
async def login(request: web.Request) -> web.Response:
    form = await read_form(request)
    username, password = forms.credentials(form)
    replacement = form.text("new_password", limit=PASSWORD_LIMIT, required=False)
    with request.app[LOGIN_METRICS].count():
        token = await request.app[LOGIN].login(
            caller_of(request), username, password, replacement, request_id=request_id()
        )
    return json_response({"message": token})


@routes.post("/{tenant_id}/logout")
async def logout(request: web.Request) -> web.Response:
    token = (await read_form(request)).text("token", limit=4096)
    await request.app[LOGIN].logout(caller_of(request), token, request_id=request_id())
    return json_response({"message": "Logout Successful!"})


@routes.get("/{tenant_id}/get_users")
async def get_users(request: web.Request) -> web.Response:
    users = await request.app[USERS].list(caller_of(request).tenant_id)
    return json_response([user_body(user) for user in users])


@routes.post("/{tenant_id}/add_user")
async def add_user(request: web.Request) -> web.Response:
    form = await read_form(request)
    username, password = forms.credentials(form)
    roles = forms.roles(form, default=ADMINISTRATOR)
    audit(request, username=username, role=roles)
    await request.app[USERS].create(caller_of(request).tenant_id, username, password, roles)
    return json_response({"Message": "User was added successfully!"}, status=201)


@routes.patch("/{tenant_id}/edit_user/{username:[^/]+}")
async def edit_user(request: web.Request) -> web.Response:
    username, roles = request.match_info["username"], forms.roles(await read_form(request))
    audit(request, username=username, role=roles)
    before = await request.app[USERS].edit(caller_of(request).tenant_id, username, roles)
    audit(request, {"role": (",".join(before.roles), ",".join(roles))}, username=username)
    return json_response({"Message": "User was updated successfully!"})


@routes.delete("/{tenant_id}/delete_user/{username:[^/]+}")
async def delete_user(request: web.Request) -> web.Response:
    username = request.match_info["username"]
    audit(request, username=username)
    await request.app[USERS].delete(caller_of(request).tenant_id, username)
    return json_response({"Message": "User was deleted successfully!"})


@routes.post("/{tenant_id}/reset_password/{username:[^/]+}")
async def reset_password(request: web.Request) -> web.Response:
    username, caller = request.match_info["username"], caller_of(request)
    audit(request, username=username)
    if username == caller.username:
        raise OwnPassword
    password = secrets.token_urlsafe(TEMPORARY_PASSWORD)
    await request.app[USERS].reset_password(caller.tenant_id, username, password, must_change=True)
    return json_response({"Message": "Password was reset successfully!", "password": password})


@routes.post("/{tenant_id}/change_password")
async def change_password(request: web.Request) -> web.Response:
    caller, form = caller_of(request), await read_form(request)
    old = form.text("old_password", limit=PASSWORD_LIMIT)
    new = form.text("new_password", limit=PASSWORD_LIMIT)
    audit(request, username=caller.username)
    await request.app[LOGIN].change_password(caller, old, new)
    return json_response({"Message": "Password was changed successfully!"})


@routes.patch("/{tenant_id}/edit_settings")
async def edit_settings(request: web.Request) -> web.Response:
    settings = await _checked_settings(request)
    audit(request, await request.app[TENANTS].edit(caller_of(request).tenant_id, settings))
    return json_response({"Message": "Settings were updated successfully!"})


@routes.patch("/{tenant_id}/check_settings")
async def check_settings(request: web.Request) -> web.Response:
    """Internal: refuse what `edit_settings` refuses, for the gateway, before it changes settings elsewhere."""
    await _checked_settings(request)
    return json_response({})


async def _checked_settings(request: web.Request) -> dict[str, object]:
    """The settings of the form. Raises InvalidField, or WouldLockOutCaller."""
    settings = forms.settings(await read_form(request))
    audit(request, **{name: to_audit_text(value) for name, value in settings.items()})
    check_networks(caller_of(request).address, settings)
    return settings


@routes.get("/{tenant_id}/get_audit_log")
async def get_audit_log(request: web.Request) -> web.StreamResponse:
    query = query_form(request)
    entries = request.app[AUDIT_LOG].select(caller_of(request).tenant_id, forms.selection(query))
    if forms.as_json_lines(query):
        return await send_json_lines(request, entries)
    return json_response([entry.exported() async for entry in entries if entry])


@routes.get("/{tenant_id}/get_tokens")
async def get_tokens(request: web.Request) -> web.Response:
    tokens = await request.app[TOKENS].list(caller_of(request).tenant_id)
    return json_response([token_body(token) for token in tokens])


@routes.post("/{tenant_id}/add_token")
async def add_token(request: web.Request) -> web.Response:
    grant, days = forms.token_grant(await read_form(request))
    audit(request, name=grant.name, role=grant.roles, package_ids=grant.packages, networks=grant.networks)
    token, text = await request.app[TOKENS].create(caller_of(request), grant, days)
    body = {"Message": "Token was added successfully!", "token_id": token.token_id, "token": text}
    return json_response(body, status=201)


@routes.post("/{tenant_id}/rotate_token/{token_id:[^/]+}")
async def rotate_token(request: web.Request) -> web.Response:
    token_id, form = request.match_info["token_id"], await read_form(request)
    overlap = form.integer("overlap_hours", default=0, most=MAX_OVERLAP)
    audit(request, token_id=token_id, overlap_hours=str(overlap))
    token, text = await request.app[TOKENS].rotate(caller_of(request), token_id, overlap)
    audit(request, token_id=token_id, name=token.grant.name, overlap_hours=str(overlap))
    return json_response({"Message": "Token was rotated successfully!", "token": text})


@routes.delete("/{tenant_id}/delete_token/{token_id:[^/]+}")
async def delete_token(request: web.Request) -> web.Response:
    token_id = request.match_info["token_id"]
    audit(request, token_id=token_id)
    token = await request.app[TOKENS].delete(caller_of(request).tenant_id, token_id)
    audit(request, token_id=token_id, name=token.grant.name)
    return json_response({"Message": "Token was deleted successfully!"})


@routes.post("/{tenant_id}/identify_token")
async def identify_token(request: web.Request) -> web.Response:
    """Internal: what a token may do, and the end of its secret, for the gateway; 404 if there is none."""
    identified = await request.app[TOKENS].identify(caller_of(request).tenant_id, await forms.api_token(request))
    if identified is None:
        raise TokenNotFound
    token, expires_at = identified
    return json_response({**token_body(token), "expires_at": expires_at.timestamp()})


@routes.post("/{tenant_id}/identify_entra_user")
async def identify_entra_user(request: web.Request) -> web.Response:
    """Internal: the ring of the user of an access token of Entra ID, for the gateway, which has the rules."""
    token, rules = await forms.entra_token(request)
    return json_response(await request.app[ENTRA].identify(caller_of(request).tenant_id, token, rules))


@routes.get("/{tenant_id}/get_company_login")
async def get_company_login(request: web.Request) -> web.Response:
    caller, providers = caller_of(request), request.app[PROVIDERS]
    provider = await providers.store.find(caller.tenant_id)
    name = (await request.app[TENANTS].find(caller.tenant_id)).login_name
    is_editable = providers.store.tenant_networks is not None and (provider is None or provider.by_tenant)
    body = company_login_body(provider or Provider(caller.tenant_id, "", "", ""), name)
    addresses = {use: f"{caller.base_url}/{path}" for use, path in REGISTERED.items()}
    return json_response({**body, "editable": is_editable, "revision": _revision(body), **addresses})


@routes.patch("/{tenant_id}/edit_company_login")
async def edit_company_login(request: web.Request) -> web.Response:
    before, provider, name = await _company_login(request)
    await request.app[PROVIDERS].check(provider, f"{caller_of(request).base_url}/{CALLBACK}")
    await request.app[PROVIDERS].edit(before, provider, name)
    return json_response({"Message": "Company login was updated successfully!"})


@routes.post("/{tenant_id}/test_company_login")
async def test_company_login(request: web.Request) -> web.Response:
    _, provider, _ = await _company_login(request)
    await request.app[PROVIDERS].check(provider, f"{caller_of(request).base_url}/{CALLBACK}")
    return json_response({"Message": "The provider answers, and did not refuse the secret."})


@routes.delete("/{tenant_id}/delete_company_login")
async def delete_company_login(request: web.Request) -> web.Response:
    provider = await request.app[PROVIDERS].find_editable(caller_of(request).tenant_id)
    audit(request, issuer=provider.issuer)
    await request.app[PROVIDERS].remove(provider.tenant_id)
    return json_response({"Message": "Company login was deleted successfully!"})


async def _company_login(request: web.Request) -> tuple[Provider, Provider, str]:
    """The provider before, the one of the form, and its name. Raises SetByOperator, ProviderChanged or InvalidField."""
    tenant_id, form = caller_of(request).tenant_id, await read_form(request)
    before = await request.app[PROVIDERS].find_editable(tenant_id)
    name_before = (await request.app[TENANTS].find(tenant_id)).login_name
    audit(request, issuer=before.issuer)
    revision = _revision(company_login_body(before, name_before))
    if not if_match(request, revision):
        raise ProviderChanged
    provider = forms.provider(form, before)
    name = forms.login_name(form, name_before)
    old, new = shown(before, name_before), shown(provider, name)
    changes = {field: (old[field], value) for field, value in new.items() if old[field] != value}
    if provider.client_secret != before.client_secret:
        changes["client_secret"] = ("", "changed")
    audit(request, changes, issuer=provider.issuer)
    return before, provider, name


@routes.post("/{tenant_id}/begin_sign_in")
async def begin_sign_in(request: web.Request) -> web.Response:
    """Internal: where the browser signs in with the identity provider, and its cookie, for the gateway."""
    next_url = str((await read_json(request)).get("next_url", ""))
    return json_response(await request.app[OIDC].begin(caller_of(request), next_url))


@routes.post("/{tenant_id}/finish_sign_in")
async def finish_sign_in(request: web.Request) -> web.Response:
    """Internal: the session of a browser that comes back from the identity provider, for the gateway."""
    answer, browser = await forms.provider_answer(request)
    finished = await request.app[OIDC].finish(caller_of(request), answer, browser, request_id=request_id())
    return json_response(finished)


@routes.post("/{tenant_id}/sign_out")
async def sign_out(request: web.Request) -> web.Response:
    """Internal: end a session; the address where the browser ends the identity provider's, for the gateway."""
    token = str((await read_json(request)).get("token", ""))
    url = await request.app[OIDC].sign_out(caller_of(request), token, request_id=request_id())
    return json_response({"url": url})


@routes.post("/{tenant_id}/sign_in/oidc/backchannel_logout")
async def backchannel_logout(request: web.Request) -> web.Response:
    token = (await read_form(request)).text("logout_token", limit=LOGOUT_TOKEN_LIMIT)
    await request.app[OIDC].log_out(caller_of(request), token, request_id=request_id())
    return json_response({"message": "Logout Successful!"})


@routes.post("/{tenant_id}/find_tenant")
async def find_tenant(request: web.Request) -> web.Response:
    """Internal: a tenant's settings, for the gateway."""
    return json_response((await request.app[TENANTS].find(caller_of(request).tenant_id)).to_document())


@routes.post("/{tenant_id}/find_roles")
async def find_roles(request: web.Request) -> web.Response:
    """Internal: the roles of the caller's user, for the gateway; none if the user was deleted."""
    caller = caller_of(request)
    user = await request.app[USERS].find(caller.tenant_id, caller.username)
    return json_response({"roles": user.roles if user else []})


@routes.post("/{tenant_id}/find_own_user")
async def find_own_user(request: web.Request) -> web.Response:
    """Internal: the caller's user as `get_users` lists it, for the gateway's page of the account."""
    caller = caller_of(request)
    user = await request.app[USERS].find(caller.tenant_id, caller.username)
    if user is None:
        raise UserNotFound(username=caller.username)
    return json_response(user_body(user))


@routes.post("/{tenant_id}/record_audit")
async def record_audit(request: web.Request) -> web.Response:
    """Internal: an administrator's write in another service, reported by the gateway."""
    await request.app[AUDIT_LOG].record(caller_of(request).tenant_id, await forms.audit_entry(request))
    return json_response({})


def user_body(user: User) -> dict[str, Any]:
    times = {"created_at": user.created_at, "last_sign_in": user.last_sign_in}
    shown = {"username": user.username, **times, "role": user.roles}
    if not user.issuer:
        login = {"login": "password", "must_change_password": user.must_change_password}
        return {**shown, **login, "break_glass": user.is_break_glass}
    return {**shown, "login": "company", "name": user.name, "email": user.email}


def company_login_body(provider: Provider, name: str) -> dict[str, Any]:
    set_by = "nobody" if not provider.issuer else "administrator" if provider.by_tenant else "operator"
    return {
        "set_by": set_by,
        "name": name or forms.DEFAULT_LOGIN_NAME,
        "issuer": provider.issuer,
        "client_id": provider.client_id,
        "has_secret": provider.client_secret != "",
        "roles_claim": provider.roles_claim,
        "role_map": [{"value": value, "role": role} for value, role in provider.role_map],
        "default_role": provider.default_role or "none",
        "ca_certificate": provider.ca_certificate,
    }


def _revision(body: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(body)).hexdigest()[:32]


def token_body(token: Token) -> dict[str, Any]:
    grant = token.grant
    rights = {"role": grant.roles, "package_ids": grant.packages, "networks": grant.networks}
    dates = {name: getattr(token, name) for name in ("created_by", "created_at", "expires_at", "last_used")}
    return {"token_id": token.token_id, "name": grant.name, **rights, **dates}


async def send_json_lines(request: web.Request, entries: AsyncIterator[ChainedEntry | None]) -> web.StreamResponse:
    """Stream any number of entries of the audit log as JSON lines."""
    first = await anext(entries, None)  # A database error here still gets a status.
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
    await response.prepare(request)
    block = _line(first)
    try:
        async for entry in entries:
            block += _line(entry)
            if len(block) >= BLOCK:
                await response.write(block)
                block = b""
        await response.write(block)
        await response.write_eof()
    except MongoError as error:
        # The status is sent already: only a broken connection shows that the export is incomplete.
        log.error("export_broke_off", error=type(error).__name__)
        if request.transport is not None:
            request.transport.abort()
    return response


def _line(entry: ChainedEntry | None) -> bytes:
    return orjson.dumps(entry.exported(), option=orjson.OPT_APPEND_NEWLINE) if entry else b""
