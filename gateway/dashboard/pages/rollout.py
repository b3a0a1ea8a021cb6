"""The commands and scripts that add a tenant as a winget source on a fleet of machines, and those for programs."""

from dataclasses import dataclass

import orjson
from aiohttp import web

from common.auth.internal_tokens import Caller
from common.tenants import Tenant
from gateway.dashboard.page_request import PageRequest
from gateway.winget import source_identifier

# The placeholder stands where each machine has its own token.
TOKEN_HEADER = " --header \"{'Token': '<token>'}\""  # noqa: S105
# SYSTEM has no `winget` in its path.
_FIND_WINGET = (
    '$folders = "$env:ProgramFiles\\WindowsApps\\Microsoft.DesktopAppInstaller_*__8wekyb3d8bbwe"\n'
    '$winget = Get-Item "$folders\\winget.exe" |\n'
    "    Sort-Object { [version]($_.Directory.Name -split '_')[1] } | Select-Object -Last 1\n"
    "if (-not $winget) { Write-Output 'winget is not installed.'; exit 1 }\n"
)
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
    def system_header(self) -> str:
        """The header of commands of SYSTEM, which cannot sign in with Entra ID."""
        return TOKEN_HEADER if self.tenant.client_authentication or self.tenant.entra else ""

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
    def detection(self) -> str:
        """The PowerShell script that ends with 1 if the source is missing or differs."""
        return (
            f"{_FIND_WINGET}"
            f"$text = & $winget source export --name {_quoted(self.name)} --disable-interactivity\n"
            "try { $source = $text | ConvertFrom-Json } catch { $source = $null }\n"
            f"if ($source.Arg -eq {_quoted(self.address)} -and $source.TrustLevel -contains 'Trusted') {{ exit 0 }}\n"
            "Write-Output 'The source is missing or differs.'\n"
            "exit 1"
        )

    @property
    def remediation(self) -> str:
        """The PowerShell script that adds the source anew."""
        return (
            f"{_FIND_WINGET}"
            f"& $winget source remove --name {_quoted(self.name)} --disable-interactivity | Out-Null\n"
            f"& $winget source add --name {_quoted(self.name)} --type Microsoft.Rest --trust-level trusted "
            f"--arg {_quoted(self.address)} --accept-source-agreements --disable-interactivity{self.system_header}\n"
            "exit $LASTEXITCODE"
        )

    @property
    def auto_update(self) -> str:
        """The lines that make Winget-AutoUpdate use the source, for either prompt of Windows."""
        return (
            f"reg add {_WAU_KEY} /v WAU_ActivateGPOManagement /t REG_DWORD /d 1 /f\n"
            f"reg add {_WAU_KEY} /v WAU_WingetSourceCustom /t REG_SZ /d {self.name} /f"
        )


async def show_rollout(page: PageRequest) -> web.Response:
    """The commands and scripts for a fleet of machines."""
    return page.render("rollout.html", kit=RolloutKit(page.caller))


async def show_documentation(page: PageRequest) -> web.Response:
    """The commands for machines, pipelines and programs."""
    return page.render("documentation.html", kit=RolloutKit(page.caller), base_url=page.caller.base_url)


def _quoted(text: str) -> str:
    """A text in PowerShell's single quotes, where nothing is expanded."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"
