"""The pages about the tenant as a whole: users and their roles, the own account, settings and documentation."""

from collections.abc import Mapping

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
    """The users of the tenant."""
    return page.render("users.html", users=await page.fetch("get_users"), roles=ROLES)


async def show_account(page: PageRequest) -> web.Response:
    """The roles of the user, and the form that changes the own password."""
    return page.render("account.html", roles=ROLES)


async def show_settings(page: PageRequest) -> web.Response:
    """The settings of the administrators, and the limits of the operator."""
    return page.render("settings.html", information=await page.fetch("server_information"), own_address=page.caller.ip)


async def show_documentation(page: PageRequest) -> web.Response:
    """The commands for machines, pipelines and programs."""
    return page.render("documentation.html", kit=RolloutKit(page.caller), base_url=page.caller.base_url)
