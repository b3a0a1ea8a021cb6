"""The commands and scripts that add a tenant as a winget source on a fleet of machines, and those for programs."""

from dataclasses import dataclass
from importlib.resources import files

import orjson
from aiohttp import web

from common.auth.internal_tokens import Caller
from common.auth.roles import Role
from common.tenants import Tenant
from gateway.dashboard.page_request import PageRequest
from gateway.dashboard.pages.administration import marked_as_expired
from gateway.winget import source_identifier

# The placeholder stands where each machine has its own token.
TOKEN_HEADER = " --header \"{'Token': '<token>'}\""  # noqa: S105
# One script for Intune and group policy. Its first lines are settings that an administrator may change.
_SCRIPT = (files("gateway") / "dashboard" / "templates" / "rollout.ps1").read_text(encoding="utf-8")
_WAU_KEY = r"HKLM\SOFTWARE\Policies\Romanitho\Winget-AutoUpdate"


@dataclass(frozen=True)
class RolloutKit:
    """The texts for the tenant of a caller."""

    caller: Caller

    @property
    def tenant(self) -> Tenant:
        return self.caller.tenant

    @property
    def name(self) -> str:
        return self.tenant.tenant_id

    @property
    def address(self) -> str:
        return f"{self.caller.base_url}/winget"

    @property
    def user_header(self) -> str:
        """The header of commands of users. With Entra ID they sign in instead."""
        return TOKEN_HEADER if self.tenant.client_authentication and not self.tenant.entra else ""

    @property
    def command(self) -> str:
        start = f"winget source add -n {self.name} -t Microsoft.Rest --trust-level trusted"
        return f"{start} -a {self.address}{self.user_header}"

    @property
    def policy(self) -> str:
        """The JSON of the group policy EnableAdditionalSources."""
        source = {
            "Name": self.name,
            "Arg": self.address,
            "Type": "Microsoft.Rest",
            "Data": "",
            "Identifier": source_identifier(self.tenant),
            "TrustLevel": ["Trusted"],
        }
        return orjson.dumps(source).decode()

    @property
    def script(self) -> str:
        """The PowerShell script that enrolls a machine and adds its source; `<token>` stands for the API token."""
        values = {"name": self.name, "address": self.caller.base_url, "identifier": source_identifier(self.tenant)}
        script = _SCRIPT
        for name, text in values.items():
            script = script.replace(f"{{{name}}}", text.replace("'", "''"))  # In single quotes nothing is expanded.
        return script

    @property
    def auto_update(self) -> str:
        """The lines that make Winget-AutoUpdate use the source, for either prompt of Windows."""
        return (
            f"reg add {_WAU_KEY} /v WAU_ActivateGPOManagement /t REG_DWORD /d 1 /f\n"
            f"reg add {_WAU_KEY} /v WAU_WingetSourceCustom /t REG_SZ /d {self.name} /f"
        )


async def show_rollout(page: PageRequest) -> web.Response:
    """The script for a fleet of machines, the API tokens that it may have, and other ways."""
    tokens = await page.fetch("get_tokens") if page.may("tokens:write") else ()
    enrollers = [token for token in marked_as_expired(tokens) if Role.ENROLLER in token["role"]]
    return page.render("rollout.html", kit=RolloutKit(page.caller), tokens=enrollers)


async def show_documentation(page: PageRequest) -> web.Response:
    """The commands for machines, pipelines and programs."""
    return page.render("documentation.html", kit=RolloutKit(page.caller), base_url=page.caller.base_url)
