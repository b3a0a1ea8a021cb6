"""`pkgrepo tenant`: tenants, their settings, their company login, and the app of Entra ID for winget."""

import re
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Column
from typer import BadParameter, Option

from auth_service.oidc.model import Provider
from auth_service.oidc.service import shown
from auth_service.tenants.service import to_audit_text
from common.auth.roles import Role, parse_roles
from common.tenants import EntraApp, Tenant, VersionKey, is_tenant_id, parse_network
from deploy.cli.options import CaFile, TenantId, console, error_console, with_stores
from deploy.operator.stores import StoreAddresses
from deploy.operator.tenants import (
    Operator,
    RecordedOperator,
    delete_tenant,
    locked_out,
    open_operator_audit,
)
from deploy.terminal import folding_table, print_line

tenants = typer.Typer(no_args_is_help=True)
entra = typer.Typer(no_args_is_help=True)
oidc = typer.Typer(no_args_is_help=True)
tenants.add_typer(entra, name="entra", help="Set, show and remove the app of Entra ID for winget.")
tenants.add_typer(oidc, name="oidc", help="Set, show and remove the company login of a tenant (OpenID Connect).")

MAX_BYTES, MAX_CLIENTS = 2**63 - 1, 2**31 - 1  # MongoDB's int64, and a count above any fleet
NO_LIMIT = -1
LOOPBACK = "127.0.0.1"  # Callers beside `pkgrepo up` have this address.
Quota = Annotated[int | None, Option(min=0, max=MAX_BYTES, help="Limit of stored installers, in bytes.")]
Clients = Annotated[int | None, Option(min=0, max=MAX_CLIENTS, help="Limit of registered clients.")]
Networks = Annotated[str | None, Option(help="Addresses, networks and a-b ranges, comma-separated; empty allows all.")]
Authentication = Annotated[bool | None, Option(help="Require a token from clients.")]
PasswordLogin = Annotated[bool | None, Option(help="Whether users without --break-glass may use passwords.")]
Strictness = Annotated[bool | None, Option(help="Reject versions whose metadata contradicts the file.")]


def _limit(text: str, maximum: int) -> int:
    if text.casefold() == "none":
        return NO_LIMIT
    if not re.fullmatch("[0-9]{1,19}", text) or int(text) > maximum:
        raise BadParameter(f"must be a whole number up to {maximum}, or `none`")
    return int(text)


NewQuota = Annotated[
    int | None, Option(parser=partial(_limit, maximum=MAX_BYTES), metavar="<str>", help="Bytes, or `none`.")
]
NewClients = Annotated[
    int | None, Option(parser=partial(_limit, maximum=MAX_CLIENTS), metavar="<str>", help="Number, or `none`.")
]


@tenants.command()
@with_stores
async def create(
    operator: RecordedOperator,
    tenant_id: TenantId,
    storage_quota: Quota = None,
    max_clients: Clients = None,
    allowed_networks: Networks = None,
    client_authentication: Authentication = None,
) -> None:
    """Create a tenant. Limits that are not given are unlimited."""
    tenant = Tenant(
        tenant_id,
        client_authentication=bool(client_authentication),
        allowed_networks=_networks(allowed_networks),
        storage_quota=storage_quota,
        max_clients=max_clients,
    )
    await operator.tenants.create(tenant)
    settings = {name: to_audit_text(value) for name, value in vars(tenant).items()}
    await operator.audit.add(tenant_id, "tenant_create", **settings)
    console.print(f"Tenant {tenant_id} was created. Add an administrator: `pkgrepo user create {tenant_id} NAME`")


@tenants.command("list")
@with_stores
async def list_tenants(operator: Operator) -> None:
    """List the tenants and their settings."""
    limits = ("Storage quota", "Max. clients")
    networks = Column("Allowed networks", min_width=len("192.168.100.100-192.168.100.200"))
    table = folding_table("Tenant", "Client authentication", networks, *limits, "Version key", "Installers")
    for tenant in await operator.tenants.list():
        table.add_row(
            tenant.tenant_id,
            "enforced" if tenant.client_authentication else "off",
            "\n".join(tenant.allowed_networks) or "all",
            "none" if tenant.storage_quota is None else f"{tenant.storage_quota:,} bytes",
            "none" if tenant.max_clients is None else f"{tenant.max_clients:,}",
            tenant.version_key,
            "strict" if tenant.strict_installers else "",
        )
    console.print(table)


@tenants.command()
@with_stores
async def edit(
    where: StoreAddresses,
    operator: RecordedOperator,
    tenant_id: TenantId,
    storage_quota: NewQuota = None,
    max_clients: NewClients = None,
    allowed_networks: Networks = None,
    client_authentication: Authentication = None,
    version_key: Annotated[VersionKey | None, Option(help="What must be unique within a package.")] = None,
    strict_installers: Strictness = None,
) -> None:
    """Change the settings of a tenant, with immediate effect."""
    networks = _networks(allowed_networks)
    given = {
        "storage_quota": storage_quota,
        "max_clients": max_clients,
        "allowed_networks": None if allowed_networks is None else networks,
        "client_authentication": client_authentication,
        "version_key": version_key,
        "strict_installers": strict_installers,
    }
    changes: dict[str, object] = {
        name: None if value == NO_LIMIT else value for name, value in given.items() if value is not None
    }
    await operator.audit.add(tenant_id, "tenant_edit", await operator.tenants.edit(tenant_id, changes))
    console.print(f"Tenant {tenant_id} was changed.")
    beside = {LOOPBACK} if where.addresses.base_url else set()
    for caller in locked_out(networks, await operator.audit.recent_addresses(tenant_id) | beside):
        error_console.print(f"Warning: {caller} is not in these networks. Its requests get status 403 from now on.")


@tenants.command()
@with_stores
async def delete(
    where: StoreAddresses,
    tenant_id: TenantId,
    yes: Annotated[bool, Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Delete a tenant with its users, packages, installers and clients."""
    if not yes and typer.prompt(f"This deletes all data of {tenant_id}. Type the id to confirm") != tenant_id:
        raise typer.Abort
    if is_tenant_id(tenant_id):
        async with open_operator_audit(where) as audit:
            await audit.add_deletion(tenant_id)
    if not await delete_tenant(where.addresses, where.installers, tenant_id):
        console.print(f"There was no tenant {tenant_id}; remains of an interrupted deletion were removed.")
        raise typer.Exit(1)
    console.print(f"Tenant {tenant_id} was deleted.")


@entra.command("set")
@with_stores
async def set_app(
    operator: RecordedOperator,
    tenant_id: TenantId,
    directory: Annotated[
        list[str], Option(metavar="GUID", help="Directory (tenant) id at Entra ID; repeat it for several.")
    ],
    client_id: Annotated[str, Option(metavar="GUID", help="Application (client) id of the app.")],
    resource: Annotated[str, Option(metavar="URI", help="Application ID URI of the app, such as api://…")],
    scope: Annotated[str, Option(metavar="NAME", help="Scope that the app exposes, without its URI.")],
    rings: Annotated[
        list[str] | None,
        Option("--map", metavar="VALUE=RING", help="App role or group id, and its ring; may be repeated."),
    ] = None,
) -> None:
    """Set or replace the app. winget then signs users in, and clients older than contract 1.7 cannot use the source."""
    pairs = [(value, ring) for value, _, ring in (text.rpartition("=") for text in rings or ())]
    app = EntraApp.parse(directory, client_id, resource, scope, pairs)
    await operator.audit.add(tenant_id, "tenant_edit", await operator.tenants.edit(tenant_id, {"entra": app}))
    console.print(f"winget signs in users of {tenant_id} with Entra ID.")


@entra.command("show")
@with_stores
async def show_app(operator: Operator, tenant_id: TenantId) -> None:
    """Show the app."""
    app = (await operator.tenants.find(tenant_id)).entra
    if app is None:
        console.print(f"Tenant {tenant_id} has no app of Entra ID.")
        raise typer.Exit(1)
    for directory in app.directories:
        console.print(f"Directory: {directory}")
    console.print(f"Client id: {app.client_id}\nResource:  {app.resource}\nScope:     {app.scope}")
    for value, ring in app.rings:
        console.print(f"Map:       {value}={ring}")


@entra.command("remove")
@with_stores
async def remove_app(operator: RecordedOperator, tenant_id: TenantId) -> None:
    """Remove the app. Its tokens are refused from now on."""
    await operator.audit.add(tenant_id, "tenant_edit", await operator.tenants.edit(tenant_id, {"entra": None}))
    console.print(f"winget no longer signs in users of {tenant_id} with Entra ID.")


@oidc.command("set")
@with_stores
async def set_provider(
    operator: RecordedOperator,
    tenant_id: TenantId,
    issuer: Annotated[str, Option(help="Address of the provider, as its discovery document names it.")],
    client_id: Annotated[str, Option(help="Id of this repository at the provider.")],
    client_secret_file: Annotated[Path, Option(exists=True, dir_okay=False, help="File with the secret.")],
    name: Annotated[str, Option(help="Text of the button on the sign-in page.")] = "Company login",
    roles_claim: Annotated[str, Option(help="Claim with the groups or roles of a user.")] = "roles",
    roles: Annotated[list[str] | None, Option("--map", metavar="VALUE=ROLE", help="Role of a value; repeat.")] = None,
    default_role: Annotated[
        Literal["none", "viewer"], Option(help="Role without a mapped value: viewer, or none to refuse.")
    ] = "none",
    allow_network: Annotated[list[str] | None, Option(help="Network of a provider without public address.")] = None,
    ca_file: CaFile = None,
    password_login: PasswordLogin = None,
) -> None:
    """Set the company login of a tenant, after checking that the provider answers. Register the callback there."""
    if not 0 < len(name) <= 64 or not name.isprintable():
        raise BadParameter("must have 1 to 64 printable characters", param_hint="--name")
    provider = Provider(
        tenant_id,
        issuer,
        client_id,
        _text_of("--client-secret-file", client_secret_file),
        roles_claim,
        tuple(map(_mapped, roles or ())),
        None if default_role == "none" else Role.VIEWER,
        tuple(parse_network("--allow-network", text) for text in allow_network or ()),
        _text_of("--ca-file", ca_file) if ca_file else "",
    )
    tenant = await operator.tenants.find(tenant_id)
    with_passwords = tenant.password_login if password_login is None else password_login
    await operator.providers.set(provider, name, with_passwords=with_passwords)
    await operator.audit.add(tenant_id, "oidc_set", **shown(provider, name), password_login=str(with_passwords).lower())
    print_line(console, f"{tenant_id} signs in with {issuer}. Register these addresses there:")
    for purpose, path in (("Redirect", "callback"), ("Back-channel logout", "backchannel_logout")):
        console.print(f"  {purpose}: https://<host>/{tenant_id}/sign_in/oidc/{path}")
    console.print(f"  After logout: https://<host>/{tenant_id}/sign_in")


@oidc.command("show")
@with_stores
async def show_provider(operator: Operator, tenant_id: TenantId) -> None:
    """Show the company login of a tenant, without its secret."""
    tenant, provider = await operator.tenants.find(tenant_id), await operator.providers.find(tenant_id)
    passwords, set_by = str(tenant.password_login).lower(), "administrator" if provider.by_tenant else "operator"
    values = {**shown(provider, tenant.login_name), "password_login": passwords, "set_by": set_by}
    for option, value in values.items():
        print_line(console, f"{option}: {value}")


@oidc.command("remove")
@with_stores
async def remove_provider(operator: RecordedOperator, tenant_id: TenantId) -> None:
    """Remove the company login, and end the sessions of its users. All other users may use passwords again."""
    await operator.tenants.find(tenant_id)
    await operator.providers.remove(tenant_id)
    await operator.audit.add(tenant_id, "oidc_remove")
    console.print(f"{tenant_id} has no company login any more.")


def _networks(text: str | None) -> tuple[str, ...]:
    parts = (part.strip() for part in (text or "").split(","))
    return tuple(parse_network("--allowed-networks", part) for part in parts if part)


def _mapped(text: str) -> tuple[str, Role]:
    value, equals, role = text.rpartition("=")
    if not equals or not value:
        raise BadParameter(f"{text!r} is not VALUE=ROLE", param_hint="--map")
    return value, parse_roles([role])[0]


def _text_of(option: str, file: Path) -> str:
    """The text of a file, without the mark that editors of Windows put before it."""
    try:
        return file.read_text(encoding="utf-8-sig").strip()
    except UnicodeDecodeError:
        raise BadParameter("must name a text file in UTF-8", param_hint=option) from None
