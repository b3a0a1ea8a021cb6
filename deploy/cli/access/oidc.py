"""`pkgrepo tenant oidc`: the company login of a tenant."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Option

from auth_service.oidc.model import Provider
from common.auth.roles import Role, parse_roles
from common.tenants import Tenant, parse_network
from deploy.cli.options import CaFile, Data, TenantId, run_recorded, run_with_operator
from deploy.operator.tenants import Operator, OperatorAudit
from deploy.terminal import visible

oidc = typer.Typer(no_args_is_help=True)
console = Console(highlight=False, markup=False, soft_wrap=True)

SecretFile = Annotated[Path, Option("--client-secret-file", exists=True, dir_okay=False, help="File with the secret.")]

PasswordLogin = Annotated[bool | None, Option(help="Whether users without --break-glass may use passwords.")]


@oidc.command("set")
def set_provider(
    tenant_id: TenantId,
    issuer: Annotated[str, Option(help="Address of the provider, as its discovery document names it.")],
    client_id: Annotated[str, Option(help="Id of this repository at the provider.")],
    client_secret_file: SecretFile,
    name: Annotated[str, Option(help="Text of the button on the sign-in page.")] = "Company login",
    roles_claim: Annotated[str, Option(help="Claim with the groups or roles of a user.")] = "roles",
    mapping: Annotated[list[str] | None, Option("--map", metavar="VALUE=ROLE", help="Role of a value; repeat.")] = None,
    default_role: Annotated[str, Option(help="Role without a mapped value: viewer, or none to refuse.")] = "none",
    allow_network: Annotated[list[str] | None, Option(help="Network of a provider without public address.")] = None,
    ca_file: CaFile = None,
    password_login: PasswordLogin = None,
    data: Data = None,
) -> None:
    """Set the company login of a tenant, after checking that the provider answers. Register the callback there."""
    if default_role not in {"none", Role.VIEWER}:
        raise typer.BadParameter("must be viewer or none", param_hint="--default-role")
    if not 0 < len(name) <= 64 or not name.isprintable():
        raise typer.BadParameter("must have 1 to 64 printable characters", param_hint="--name")
    provider = Provider(
        tenant_id,
        issuer,
        client_id,
        _text_of("--client-secret-file", client_secret_file),
        roles_claim,
        tuple(_mapped(text) for text in mapping or ()),
        None if default_role == "none" else Role.VIEWER,
        tuple(parse_network("--allow-network", text) for text in allow_network or ()),
        _text_of("--ca-file", ca_file) if ca_file else "",
    )

    async def work(operator: Operator, audit: OperatorAudit) -> None:
        tenant = await operator.tenants.find(tenant_id)
        with_passwords = tenant.password_login if password_login is None else password_login
        await operator.providers.set(provider, name, with_passwords=with_passwords)
        await audit.add(tenant_id, "oidc_set", **_shown(provider, name, with_passwords=with_passwords))

    run_recorded(work, data)
    console.print(f"{tenant_id} signs in with {visible(issuer)}. Register these addresses there:")
    for purpose, path in (("Redirect", "callback"), ("Back-channel logout", "backchannel_logout")):
        console.print(f"  {purpose}: https://<host>/{tenant_id}/sign_in/oidc/{path}")
    console.print(f"  After logout: https://<host>/{tenant_id}/sign_in")


@oidc.command("show")
def show_provider(tenant_id: TenantId, data: Data = None) -> None:
    """Show the company login of a tenant, without its secret."""

    async def work(operator: Operator) -> tuple[Tenant, Provider]:
        return await operator.tenants.find(tenant_id), await operator.providers.find(tenant_id)

    tenant, provider = run_with_operator(work, data)
    for option, value in _shown(provider, tenant.login_name, with_passwords=tenant.password_login).items():
        console.print(f"{option}: {visible(value)}")


@oidc.command("remove")
def remove_provider(tenant_id: TenantId, data: Data = None) -> None:
    """Remove the company login, and end the sessions of its users. All other users may use passwords again."""

    async def work(operator: Operator, audit: OperatorAudit) -> None:
        await operator.tenants.find(tenant_id)
        await operator.providers.remove(tenant_id)
        await audit.add(tenant_id, "oidc_remove")

    run_recorded(work, data)
    console.print(f"{tenant_id} has no company login any more.")


def _shown(provider: Provider, name: str, *, with_passwords: bool) -> dict[str, str]:
    """The settings of a provider without its secret, by the names of the options."""
    return {
        "issuer": provider.issuer,
        "client_id": provider.client_id,
        "name": name,
        "roles_claim": provider.roles_claim,
        "map": ", ".join(f"{value}={role}" for value, role in provider.role_map),
        "default_role": provider.default_role or "none",
        "allow_network": ", ".join(provider.allowed_networks),
        "ca_file": "set" if provider.ca_certificate else "",
        "password_login": str(with_passwords).lower(),
    }


def _text_of(option: str, file: Path) -> str:
    """The text of a file, without the mark that editors of Windows put before it."""
    try:
        return file.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError:
        raise typer.BadParameter("must name a text file in UTF-8", param_hint=option) from None


def _mapped(text: str) -> tuple[str, Role]:
    value, equals, role = text.rpartition("=")
    if not equals or not value:
        raise typer.BadParameter(f"{text!r} is not VALUE=ROLE", param_hint="--map")
    return value, parse_roles([role])[0]
