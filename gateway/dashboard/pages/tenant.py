"""The pages about the tenant as a whole: users, API tokens, the own account, settings and documentation."""

import json
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime

from aiohttp import web

from common.auth.roles import Role
from gateway.dashboard.languages import _
from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.rollout_kit import RolloutKit

# The name of each role, and what it allows.
ROLES: Mapping[Role, tuple[str, str]] = {
    Role.VIEWER: (_("Viewer"), _("Sees packages, clients and settings.")),
    Role.PUBLISHER: (_("Publisher"), _("Also uploads, edits and deletes packages and versions.")),
    Role.APPROVER: (_("Approver"), _("Also approves releases.")),
    Role.AUDITOR: (_("Auditor"), _("Also reads the audit log.")),
    Role.ADMINISTRATOR: (_("Administrator"), _("Has all rights.")),
}


async def show_users(page: PageRequest) -> web.Response:
    """The users of the tenant, with the names of the API tokens that they created."""
    names: dict[str, list[str]] = defaultdict(list)
    for token in await page.fetch("get_tokens") if page.may("tokens:write") else ():
        names[token["created_by"]].append(token["name"])
    return page.render("users.html", users=await page.fetch("get_users"), roles=ROLES, tokens=names)


async def show_tokens(page: PageRequest) -> web.Response:
    """The API tokens of the tenant. A secret is shown only by the script that receives it."""
    now, tokens = datetime.now(UTC), await page.fetch("get_tokens")
    tokens = [{**token, "is_expired": datetime.fromisoformat(token["expires_at"]) <= now} for token in tokens]
    roles = {role: words for role, words in ROLES.items() if role is not Role.ADMINISTRATOR}
    return page.render("tokens.html", tokens=tokens, roles=roles, base_url=page.caller.base_url)


async def show_account(page: PageRequest) -> web.Response:
    """The roles of the user, and the form that changes the own password."""
    return page.render("account.html", roles=ROLES)


async def show_settings(page: PageRequest) -> web.Response:
    """The settings of the administrators, and the limits of the operator."""
    information = await page.server_information()
    values = {name: information["settings"][name] for name in ("ring_rules", "gates", "retention")}
    policies = {
        name: json.dumps(value, indent=2, ensure_ascii=False) if value else "" for name, value in values.items()
    }
    return page.render("settings.html", information=information, policies=policies, own_address=page.caller.ip)


async def show_documentation(page: PageRequest) -> web.Response:
    """The commands for machines, pipelines and programs."""
    return page.render("documentation.html", kit=RolloutKit(page.caller), base_url=page.caller.base_url)
