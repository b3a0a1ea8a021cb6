"""`pkgrepo user` and `pkgrepo token`: the users of a tenant and their roles, and its API tokens."""

import secrets
import sys
from typing import Annotated

import typer
from typer import Argument, BadParameter, Option

from auth_service.forms import token_grant
from auth_service.users.token_store import DEFAULT_DAYS, MAX_DAYS, MAX_OVERLAP, TokenNotFound
from common.auth.internal_tokens import Caller, Kind
from common.auth.roles import ADMINISTRATOR, EVERY_PACKAGE, Role, parse_roles
from common.http.forms import Form
from deploy.cli.options import TenantId, console, with_stores
from deploy.operator.tenants import Operator, RecordedOperator, operator_name
from deploy.terminal import folding_table, visible

users = typer.Typer(no_args_is_help=True)
tokens = typer.Typer(no_args_is_help=True)

Username = Annotated[str, Argument(help="User name.")]
Roles = Annotated[list[Role] | None, Option("--role", help="Role of the user; repeat it for several roles.")]
BreakGlass = Annotated[bool | None, Option(help="Allow a password where others must use the company login.")]
FromInput = Annotated[bool, Option("--password-stdin", help="Read the password from standard input.")]
TokenName = Annotated[str, Argument(help="Name of the token.")]


@users.command("create")
@with_stores
async def create_user(
    operator: RecordedOperator,
    tenant_id: TenantId,
    username: Username,
    role: Roles = None,
    break_glass: BreakGlass = None,
    password_stdin: FromInput = False,
) -> None:
    """Create a user, by default an administrator. Without --password-stdin a password is generated and shown once."""
    password, message = _password(from_input=password_stdin)
    roles = parse_roles(role or ADMINISTRATOR)
    await operator.tenants.find(tenant_id)
    await operator.users.create(tenant_id, username, password, roles, is_break_glass=bool(break_glass))
    target = {"break_glass": "true"} if break_glass else {}
    await operator.audit.add(tenant_id, "user_create", username=username, role=",".join(roles), **target)
    console.print(f"User {username} of {tenant_id} was created.{message}")


@users.command("list")
@with_stores
async def list_users(operator: Operator, tenant_id: TenantId) -> None:
    """List the users of a tenant."""
    await operator.tenants.find(tenant_id)
    table = folding_table("User", "Roles", "Sign-in", "Created")
    for user in await operator.users.list(tenant_id):
        login = f"company login: {user.name} {user.email}" if user.issuer else "password"
        login += ", break-glass" if user.is_break_glass else ""
        created = user.created_at.isoformat(timespec="seconds")
        table.add_row(user.username, ", ".join(user.roles), visible(login), created)
    console.print(table)


@users.command("edit")
@with_stores
async def edit_user(
    operator: RecordedOperator,
    tenant_id: TenantId,
    username: Username,
    role: Roles = None,
    break_glass: BreakGlass = None,
) -> None:
    """Replace the roles of a user, or change --break-glass, with immediate effect. The last administrator stays one."""
    if not role and break_glass is None:
        raise BadParameter("give --role, --break-glass or --no-break-glass")
    roles = parse_roles(role) if role else ()
    before = await operator.users.edit(tenant_id, username, roles, is_break_glass=break_glass)
    changes = {"role": (",".join(before.roles), ",".join(roles))} if roles else {}
    if break_glass is not None:
        changes["break_glass"] = (str(before.is_break_glass).lower(), str(break_glass).lower())
    await operator.audit.add(tenant_id, "user_edit", changes, username=username)
    if roles:
        console.print(f"User {username} of {tenant_id} has the roles: {', '.join(roles)}.")
    if break_glass is not None:
        access = "has" if break_glass else "has no"
        console.print(f"User {username} of {tenant_id} {access} emergency access.")


@users.command("delete")
@with_stores
async def delete_user(operator: RecordedOperator, tenant_id: TenantId, username: Username) -> None:
    """Delete a user and end the user's sessions. The last administrator of a tenant cannot be deleted."""
    await operator.users.delete(tenant_id, username)
    await operator.audit.add(tenant_id, "user_delete", username=username)
    console.print(f"User {username} of {tenant_id} was deleted.")


@users.command("password")
@with_stores
async def change_password(
    operator: RecordedOperator, tenant_id: TenantId, username: Username, password_stdin: FromInput = False
) -> None:
    """Change the password of a user and end the user's sessions."""
    password, message = _password(from_input=password_stdin)
    await operator.users.reset_password(tenant_id, username, password)
    await operator.audit.add(tenant_id, "user_password", username=username)
    console.print(f"The password of {username} was changed.{message}")


def _password(*, from_input: bool) -> tuple[str, str]:
    """A password, and a message that shows a generated one."""
    if from_input:
        return sys.stdin.readline().rstrip("\r\n"), ""
    generated = secrets.token_urlsafe(18)
    return generated, f" Password (shown once): {generated}"


@tokens.command("create")
@with_stores
async def create_token(
    operator: RecordedOperator,
    tenant_id: TenantId,
    name: TokenName,
    role: Annotated[list[Role], Option(help="Role of the token; repeat it for several roles.")],
    package: Annotated[list[str] | None, Option(help="Package id or pattern such as Acme.*; repeatable.")] = None,
    network: Annotated[list[str] | None, Option(metavar="CIDR", help="Network of callers; repeatable.")] = None,
    days: Annotated[int, Option(min=1, max=MAX_DAYS, help="Days until the token expires.")] = DEFAULT_DAYS,
) -> None:
    """Create an API token. It is shown once."""
    fields = {
        "name": (name,),
        "role": tuple(role),
        "package_ids": tuple(package or EVERY_PACKAGE),
        "networks": tuple(network or ()),
        "expires_in_days": (str(days),),
    }
    grant, days = token_grant(Form(fields))
    _, text = await operator.tokens.create(await _caller(operator, tenant_id), grant, days)
    lists = {"role": grant.roles, "package_ids": grant.packages, "networks": grant.networks}
    await operator.audit.add(tenant_id, "token_create", name=name, **{field: ",".join(lists[field]) for field in lists})
    console.print(f"Token {name} of {tenant_id} was created. It is shown once: {text}")


@tokens.command("list")
@with_stores
async def list_tokens(operator: Operator, tenant_id: TenantId) -> None:
    """List the API tokens of a tenant, without their secrets."""
    await operator.tenants.find(tenant_id)
    table = folding_table("Token", "Roles", "Packages", "Networks", "Expires", "Last used", "Created by")
    for token in await operator.tokens.list(tenant_id):
        grant, used = token.grant, token.last_used
        lists = (", ".join(items) for items in (grant.roles, grant.packages, grant.networks))
        times = (moment.isoformat(timespec="seconds") if moment else "" for moment in (token.expires_at, used))
        table.add_row(*map(visible, (grant.name, *lists, *times, token.created_by)))
    console.print(table)


@tokens.command("rotate")
@with_stores
async def rotate_token(
    operator: RecordedOperator,
    tenant_id: TenantId,
    name: TokenName,
    overlap: Annotated[int, Option(min=0, max=MAX_OVERLAP, help="Hours that the old secret still counts.")] = 0,
) -> None:
    """Replace the secret of an API token, which then lives its whole time again. The new one is shown once."""
    caller, token_id = await _caller(operator, tenant_id), await _find_id(operator, tenant_id, name)
    _, text = await operator.tokens.rotate(caller, token_id, overlap)
    await operator.audit.add(tenant_id, "token_rotate", name=name, overlap_hours=str(overlap))
    console.print(f"Token {name} of {tenant_id} was rotated. It is shown once: {text}")


@tokens.command("delete")
@with_stores
async def delete_token(operator: RecordedOperator, tenant_id: TenantId, name: TokenName) -> None:
    """Delete an API token, with immediate effect."""
    await operator.tokens.delete(tenant_id, await _find_id(operator, tenant_id, name))
    await operator.audit.add(tenant_id, "token_delete", name=name)
    console.print(f"Token {name} of {tenant_id} was deleted.")


async def _caller(operator: Operator, tenant_id: str) -> Caller:
    """The operator as an administrator of the tenant. Raises TenantNotFound."""
    tenant = await operator.tenants.find(tenant_id)
    return Caller(tenant, Kind.ADMINISTRATOR, username=operator_name(), roles=ADMINISTRATOR)


async def _find_id(operator: Operator, tenant_id: str, name: str) -> str:
    """The id of a token. Raises TokenNotFound."""
    ids = {token.grant.name: token.token_id for token in await operator.tokens.list(tenant_id)}
    if name not in ids:
        raise TokenNotFound(f"There is no token {name!r}.")
    return ids[name]
