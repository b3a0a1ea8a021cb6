"""The text that `pkgrepo up` prints when it is ready: addresses, the password, commands for a shell and for Windows."""

import hashlib
import shlex
from urllib.parse import urlsplit

from rich.console import Console

from deploy.local.first_tenant import ADMINISTRATOR
from deploy.local.folder import DataFolder
from deploy.local.up import CA_PATH, RunningService


def print_welcome(console: Console, service: RunningService, folder: DataFolder) -> None:
    base, local, password = service.base_url, service.local_url, folder.password
    console.print(f"\n[bold]{base}[/bold] is ready. Logs: {folder.logs}")
    if service.password:
        console.print(f"Administrator [bold]{ADMINISTRATOR}[/bold], password [bold]{service.password}[/bold]")
        console.print(f"The password is shown once. It is stored in {password}")
    elif password.exists():
        console.print(f"Administrator {ADMINISTRATOR}. The first password is stored in {password}")
    curl = f"curl --cacert {shlex.quote(str(folder.ca_certificate))}" if service.certificates else "curl"
    console.print(
        f"\nIn a browser: {base}/dashboard\n\nFrom a terminal:\n\n"
        f"TOKEN=$({curl} -s {local}/login -d username={ADMINISTRATOR} "
        f"--data-urlencode {shlex.quote(f'password@{password}')}"
        """ | sed -E 's/.*"message":"([^"]+)".*/\\1/')\n"""
        f'{curl} -X POST -H "Authorization: Bearer $TOKEN" {local}/get_packages\n'
        f'{curl} -H "Authorization: Bearer $TOKEN" {local}/server_information\n\n'
        f"{_windows_lines(service)}Press Ctrl-C to stop.",
        markup=False,
    )


def _windows_lines(service: RunningService) -> str:
    """The two lines for PowerShell; empty without TLS, which winget requires."""
    if service.certificates is None:
        return ""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(service.base_url))
    digest = hashlib.sha256(service.certificates.ca_certificate).hexdigest().upper()
    replaced = "The CA certificate is new. Import it again on each machine.\n\n"
    return (
        f"{replaced if service.certificates.ca_was_replaced else ''}"
        "On Windows, in PowerShell as administrator. The first line checks and imports the CA certificate:\n\n"
        f"curl.exe -sko ca.crt {origin}{CA_PATH}; if ((Get-FileHash ca.crt).Hash -eq '{digest}') "
        "{ Import-Certificate -FilePath ca.crt -CertStoreLocation Cert:\\LocalMachine\\Root } "
        "else { throw 'ca.crt is not from this server' }\n"
        f"winget source add --name {service.tenant_id} --arg {service.base_url}/winget --type Microsoft.Rest "
        "--trust-level trusted\n\n"
    )
