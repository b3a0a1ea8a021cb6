"""Parses the forms and queries of auth_service."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import orjson
from aiohttp import web

from auth_service.audit.store import AuditEntry, Outcome, Selection
from auth_service.oidc.model import Provider
from auth_service.users.store import PASSWORD_LIMIT, USERNAME_LIMIT
from auth_service.users.token_store import DEFAULT_DAYS, MAX_DAYS, NAME_LIMIT, TokenGrant
from common.auth.roles import EVERY_PACKAGE, MOST_PATTERNS, PATTERN_LIMIT, Role, parse_patterns, parse_roles
from common.auth.signing import ApiToken
from common.errors import InvalidField, InvalidRequest
from common.http.bodies import read_json
from common.http.forms import MAX_INTEGER, Form, clean
from common.tenants import MAX_SITES, SITE_LIMIT, Site, VersionKey, parse_network

ENTRIES_LIMIT = 1000
OPERATIONS_LIMIT = 2000  # characters
ROLE_LIMIT = 64  # characters
ROLES_LIMIT = 2 * len(Role)  # values, with empty ones
AGREEMENTS_LIMIT = 16_000  # characters of all of them
SITES_LIMIT = 64_000  # characters of all sites
AGREEMENT_LIMITS = {"label": 100, "text": 10_000, "url": 2048}  # characters


DEFAULT_LOGIN_NAME = "Company login"
PEM_LIMIT = 16_000  # characters
MAP_LIMIT = 16_000  # characters
RECEIVERS = ("issuer", "client_id", "ca_certificate")  # These say who gets the secret.


class DefaultRole(StrEnum):
    """The role of a user without a mapped value."""

    NONE = "none"
    VIEWER = Role.VIEWER


class Format(StrEnum):
    """The formats of the audit log."""

    JSON = "json"
    JSONL = "jsonl"


def credentials(form: Form) -> tuple[str, str]:
    """The username and the password. Raises InvalidField."""
    return form.text("username", limit=USERNAME_LIMIT), form.text("password", limit=PASSWORD_LIMIT)


def roles(form: Form, default: tuple[Role, ...] | None = None, *, for_token: bool = False) -> tuple[Role, ...]:
    """The roles in `role`, repeated or separated by commas; `default` without the field. Raises InvalidField."""
    if default is not None and "role" not in form.fields:
        return default
    return parse_roles(form.texts("role", limit=ROLE_LIMIT, most=ROLES_LIMIT), for_token=for_token)


def token_grant(form: Form) -> tuple[TokenGrant, int]:
    """The rights of a new token, and the days of its life. Raises InvalidField."""
    patterns = form.texts("package_ids", limit=PATTERN_LIMIT, most=MOST_PATTERNS)
    grant = TokenGrant(
        form.text("name", limit=NAME_LIMIT),
        roles(form, for_token=True),
        parse_patterns("package_ids", patterns) if "package_ids" in form.fields else EVERY_PACKAGE,
        networks(form, "networks"),
    )
    return grant, form.integer("expires_in_days", default=DEFAULT_DAYS, least=1, most=MAX_DAYS)


def networks(form: Form, name: str) -> tuple[str, ...]:
    """Addresses, networks and ranges in their canonical spelling. Raises InvalidField."""
    return tuple(parse_network(name, text) for text in form.texts(name, limit=128, most=1000))


def provider(form: Form, before: Provider) -> Provider:
    """The provider of an administrator's form. An absent field or secret is as before. Raises InvalidField."""
    parsers: Mapping[str, Callable[[str], object]] = {
        "issuer": lambda name: form.text(name, limit=2048),
        "client_id": lambda name: form.text(name, limit=256),
        "roles_claim": lambda name: form.text(name, limit=128),
        "role_map": lambda name: role_map(form.get(name) or ""),
        "default_role": lambda name: Role.VIEWER if form.choice(name, DefaultRole) is DefaultRole.VIEWER else None,
        "ca_certificate": lambda name: form.text(name, limit=PEM_LIMIT, required=False, lines=True).strip(),
    }
    changes: dict[str, Any] = {name: parse(name) for name, parse in parsers.items() if name in form.fields}
    secret = form.text("client_secret", limit=1024, required=False)
    # The stored secret is sent to the stored provider only: nobody learns it by naming another one.
    if not secret and any(changes.get(name, now := getattr(before, name)) != now for name in RECEIVERS):
        raise InvalidField("client_secret", "is required with another provider", reason="secret_required")
    return replace(before, **changes, client_secret=secret or before.client_secret)


def role_map(text: str) -> tuple[tuple[str, Role], ...]:
    """Pairs of a value of a claim and its role, from a JSON list of objects. Raises InvalidField."""
    field = "role_map"
    try:
        rows = orjson.loads(clean(field, text, limit=MAP_LIMIT).strip() or "[]")
        pairs = [(str(row["value"]), str(row["role"])) for row in rows]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise InvalidField(field, "must be a JSON list of objects with value and role", reason="not_a_map") from None
    return tuple((clean(field, value, limit=256), parse_roles([role])[0]) for value, role in pairs)


def login_name(form: Form, before: str) -> str:
    """The name of the company login. Raises InvalidField."""
    return form.text("name", limit=64, required=False) or before or DEFAULT_LOGIN_NAME


async def provider_answer(request: web.Request) -> tuple[dict[str, str], str]:
    """The query of an identity provider's callback and the browser's cookie. Raises InvalidRequest."""
    data = await read_json(request)
    answer, browser = data.get("answer"), data.get("browser")
    if not isinstance(answer, dict) or not all(isinstance(text, str) for text in [*answer.values(), browser]):
        raise InvalidRequest("This is no answer of an identity provider.")
    return answer, str(browser)


async def api_token(request: web.Request) -> ApiToken:
    """The token that the gateway sends. Raises InvalidRequest."""
    data = await read_json(request)
    try:
        return ApiToken(str(data["token_id"]), str(data["digest"]))
    except KeyError as error:
        raise InvalidRequest("This is no token.") from error


async def entra_token(request: web.Request) -> tuple[str, list[tuple[str, str]]]:
    """A user's token, and pairs of an app role or group id and its ring. Raises InvalidRequest."""
    data = await read_json(request)
    try:
        return str(data["token"]), [(str(value), str(ring)) for value, ring in data["rules"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidRequest("This is no token with rules.") from error


def settings(form: Form) -> dict[str, object]:
    """The settings to change, by the names of `Tenant`'s fields. Raises InvalidField."""
    parsers: Mapping[str, Callable[[str], object]] = {
        "client_authentication": form.flag,
        "allowed_networks": lambda name: networks(form, name),
        "version_key": lambda name: form.choice(name, VersionKey),
        "strict_installers": form.flag,
        "source_address": form.flag,
        "source_agreements": lambda name: source_agreements(form.get(name) or ""),
        "sites": lambda name: sites(form.get(name) or ""),
    }
    return {name: parse(name) for name, parse in parsers.items() if name in form.fields}


def sites(text: str) -> tuple[Site, ...]:
    """The sites of `Tenant`, from a JSON list of objects. Raises InvalidField."""
    field = "sites"
    try:
        rows = orjson.loads(clean(field, text, limit=SITES_LIMIT, lines=True).strip() or "[]")
        found = [(row["name"], row["networks"], row["downloads"]) for row in rows]
        texts = [text for name, networks, downloads in found for text in (name, downloads, *networks)]
        if not all(isinstance(text, str) for text in texts) or any(isinstance(row["networks"], str) for row in rows):
            raise TypeError
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = "must be a JSON list of objects with name, networks and downloads"
        raise InvalidField(field, message, reason="not_sites") from None
    parsed = tuple(
        Site.parse(clean(field, name, limit=SITE_LIMIT).strip(), networks, downloads.strip())
        for name, networks, downloads in found
    )
    if len(parsed) > MAX_SITES or len({site.name for site in parsed}) < len(parsed):
        raise InvalidField(field, f"must be at most {MAX_SITES} sites with different names", reason="too_many_sites")
    return parsed


def source_agreements(text: str) -> str:
    """The agreements of `Tenant`, in canonical JSON. Raises InvalidField."""
    name = "source_agreements"
    try:
        agreements = orjson.loads(clean(name, text, limit=AGREEMENTS_LIMIT, lines=True).strip() or "[]")
    except orjson.JSONDecodeError:
        agreements = None
    if not isinstance(agreements, list):
        raise InvalidField(name, "must be a list in JSON", reason="not_a_json_list")
    cleaned = [_agreement(name, agreement) for agreement in agreements]
    return orjson.dumps(cleaned).decode() if cleaned else ""


def _agreement(name: str, agreement: Any) -> dict[str, str]:
    if not isinstance(agreement, dict) or not all(isinstance(agreement.get(key, ""), str) for key in AGREEMENT_LIMITS):
        names = ", ".join(AGREEMENT_LIMITS)
        raise InvalidField(name, f"must have objects with the texts {names}", reason="not_objects", names=names)
    limits = AGREEMENT_LIMITS.items()
    texts = {key: clean(name, agreement.get(key, ""), limit=limit, lines=key == "text") for key, limit in limits}
    if texts["url"] and not texts["url"].startswith(("https://", "http://")):
        message = "has an address that does not begin with https:// or http://"
        raise InvalidField(name, message, reason="not_a_web_address")
    cleaned = {key: text for key, text in texts.items() if text.strip()}
    if not cleaned:
        raise InvalidField(name, "has an agreement that says nothing", reason="empty_agreement")
    return cleaned


def selection(query: Form) -> Selection:
    """The filter of `get_audit_log`; `operation` of commas alone selects nothing. Raises InvalidField."""
    names = query.text("operation", limit=OPERATIONS_LIMIT, required=False)
    return Selection(
        before=query.integer("before", default=MAX_INTEGER) if query.get("before") else None,
        user=query.text("user", limit=USERNAME_LIMIT, required=False),
        operations=tuple(names.split(",")) if names else (),
        outcome=query.choice("outcome", Outcome) if query.get("outcome") else None,
        since=time("since", query.get("since")),
        until=time("until", query.get("until")),
        limit=_entries_limit(query),
    )


def _entries_limit(query: Form) -> int | None:
    """The number of entries to return; None for all, the default of JSON lines."""
    if as_json_lines(query) and not query.get("limit"):
        return None
    limit = query.integer("limit", default=100)
    if not 1 <= limit <= ENTRIES_LIMIT:
        raise InvalidField("limit", f"must be from 1 to {ENTRIES_LIMIT}")
    return limit


def as_json_lines(query: Form) -> bool:
    """Whether the query asks for JSON lines. Raises InvalidField."""
    return query.choice("format", Format, default=Format.JSON) is Format.JSONL


def time(name: str, text: str | None) -> datetime | None:
    """A date or time in ISO 8601; UTC unless it names a time zone. Raises InvalidField."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidField(name, "must be a date or a time in ISO 8601, such as 2026-01-31T09:30:00Z") from None


async def audit_entry(request: web.Request) -> AuditEntry:
    """The entry that the gateway sends. Raises InvalidRequest."""
    data = await read_json(request)
    try:
        return AuditEntry(
            **{name: data[name] for name in ("operation", "user", "ip", "status", "request_id", "target")},
            changes={name: (before, after) for name, (before, after) in data["changes"].items()},
            at=datetime.fromisoformat(data["at"]),
            entry_id=data["id"],
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InvalidRequest("This is no entry of the audit log.") from error
