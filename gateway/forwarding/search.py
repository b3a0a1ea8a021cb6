"""The search over packages, versions, clients and users: each kind from its service, if the caller may read it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from common.auth.internal_tokens import Caller
from common.auth.roles import Permission, has_permission
from common.http.forms import query_form
from common.http.middleware import json_response
from common.service_client.client import ServiceClient, json_of
from gateway.forwarding.proxy import SERVICES
from gateway.operations import AUTH, CATALOG, CLIENTS
from gateway.routing import Target

TEXT_LIMIT = 128  # characters
MOST_OF_KIND = 8
CLIENT_FIELDS = ("client_id", "client_name", "ip", "enabled")
USER_FIELDS = ("username", "name", "email", "role")


async def search(request: web.Request, caller: Caller, _: Target) -> web.StreamResponse:
    """Answer `search`. Raises InvalidField, or Unavailable if one of the services does not answer."""
    text = query_form(request).text("text", limit=TEXT_LIMIT)
    services = request.app[SERVICES]
    catalog, clients, users = await asyncio.gather(
        services[CATALOG].json(caller, "search_catalog", {"text": text, "limit": MOST_OF_KIND}),
        _clients(services[CLIENTS], caller, text),
        _users(services[AUTH], caller, text.casefold()),
    )
    return json_response({**catalog, "clients": clients, "users": users})


async def _clients(service: ServiceClient, caller: Caller, text: str) -> Sequence[Mapping[str, Any]]:
    if not has_permission(caller.roles, Permission.CLIENTS_READ):
        return []
    query = urlencode({"text": text, "limit": MOST_OF_KIND})
    async with service.open(caller, "GET", ["find_clients"], query=query) as response:
        clients = (await json_of(response))["clients"]
    return [{name: client[name] for name in CLIENT_FIELDS} for client in clients]


async def _users(service: ServiceClient, caller: Caller, text: str) -> Sequence[Mapping[str, Any]]:
    """The users with the text in a name or the address: equal names first, then those that begin with it."""
    if not has_permission(caller.roles, Permission.USERS_WRITE):
        return []
    async with service.open(caller, "GET", ["get_users"]) as response:
        users = [{name: user.get(name, "") for name in USER_FIELDS} for user in await json_of(response)]

    def rank(user: Mapping[str, Any]) -> int | None:
        texts = [user[name].casefold() for name in ("username", "name", "email")]
        if text in texts:
            return 0
        return 1 if any(each.startswith(text) for each in texts) else 2 if any(text in each for each in texts) else None

    ranked = [(place, user) for user in users if (place := rank(user)) is not None]
    return [user for _, user in sorted(ranked, key=lambda pair: pair[0])[:MOST_OF_KIND]]
