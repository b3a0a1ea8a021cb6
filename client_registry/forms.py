"""Parses the forms and queries of client_registry."""

from datetime import UTC, datetime
from uuid import uuid4

from aiohttp import web

from client_registry.blacklist.model import Entry, GroupNotFound
from client_registry.clients.hostnames import NAME_LIMIT, host_name
from client_registry.clients.model import ClientNotFound, ClientQuery, uuid_text
from client_registry.releases.service import release_version
from common.errors import InvalidField
from common.http.bodies import read_json
from common.http.forms import MAX_INTEGER, Form, query_form
from common.tenants import RING_LIMIT, parse_network

TOKEN_LIMIT = 4096
PAGE, PAGE_LIMIT = 50, 100  # clients


def client_name(form: Form) -> str:
    return host_name("client_name", form.text("client_name", limit=NAME_LIMIT).strip())


def client_query(request: web.Request) -> ClientQuery:
    """The query of `find_clients`; an impossible id matches no client. Raises InvalidField."""
    query = query_form(request)
    client_ids = query.texts("client_id", limit=TOKEN_LIMIT, most=PAGE_LIMIT)
    return ClientQuery(
        text=query.text("text", limit=NAME_LIMIT, required=False),
        client_ids=tuple(uuid_text(text) or "" for text in client_ids),
        offset=query.integer("offset", default=0),
        limit=query.integer("limit", default=PAGE, least=1, most=PAGE_LIMIT),
    )


def client_changes(form: Form) -> dict[str, str | bool]:
    """The new `ring`, which the gateway has checked, or "", and whether the client is `enabled`; at least one of them.

    Raises InvalidField.
    """
    changes: dict[str, str | bool] = {}
    if "ring" in form.fields:
        changes["ring"] = form.text("ring", limit=RING_LIMIT, required=False)
    if "enabled" in form.fields or not changes:
        changes["enabled"] = form.flag("enabled")
    return changes


def new_entry(form: Form) -> Entry:
    """A blacklist entry with a new id.

    Raises:
        InvalidField: the network is invalid, or neither packages nor a group are given.
        ClientNotFound, GroupNotFound: the id is impossible.
    """
    client_id = form.text("client_id", limit=TOKEN_LIMIT, required=False)
    group_id = form.text("group", limit=TOKEN_LIMIT, required=False)
    network_text = form.text("network", limit=128, required=False)
    package_ids = _package_ids(form)
    if not package_ids and not group_id:
        raise InvalidField("package_ids", "is required where no group is given", reason="required_without_group")
    if client_id and not uuid_text(client_id):
        raise ClientNotFound
    if group_id and not uuid_text(group_id):
        raise GroupNotFound
    network = parse_network("network", network_text) if network_text else None
    return Entry(str(uuid4()), uuid_text(client_id), network, package_ids, uuid_text(group_id), datetime.now(UTC))


def client_of_entry(form: Form) -> str:
    """The name of an entry's client; "" if the form has none. Raises InvalidField for a name beside an id."""
    name = form.text("hostname", limit=NAME_LIMIT, required=False).strip()
    if name and form.get("client_id"):
        raise InvalidField("hostname", "is not for a form with client_id", reason="name_and_id")
    return name


def new_group(form: Form) -> tuple[str, tuple[str, ...]]:
    """The name and the package ids of a group."""
    name, package_ids = form.text("name", limit=256), _package_ids(form)
    if not package_ids:
        raise InvalidField("package_ids", "is required", reason="required")
    return name, package_ids


def new_release(form: Form) -> tuple[str, str]:
    """The version, and the name of an uploaded file; "" for none."""
    version = release_version("version", form.text("version", limit=32).strip())
    return version, form.text("server_filename", limit=256, required=False)


async def client_credentials(request: web.Request) -> tuple[str, int]:
    """The token and the kind of program of a client, sent by the gateway; "" is no token. Raises InvalidRequest."""
    data = await read_json(request)
    token, program = data.get("auth_token"), data.get("client", 0)
    if isinstance(program, bool) or not isinstance(program, int) or not 0 <= program <= MAX_INTEGER:
        message = f"must be a whole number from 0 to {MAX_INTEGER}"
        raise InvalidField("client", message, reason="not_in_range", least=0, most=MAX_INTEGER)
    return token if isinstance(token, str) else "", program


def _package_ids(form: Form) -> tuple[str, ...]:
    return tuple(dict.fromkeys(form.texts("package_ids", limit=128)))
