"""`pkgrepo user`: the users of a tenant and their roles."""

import secrets
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from typer import Argument, Option

from auth_service.users.model import User
from common.auth.roles import ADMINISTRATOR, Role, parse_roles
from deploy.cli.options import Data, TenantId, run_recorded, run_with_operator
from deploy.operator.tenants import Operator, OperatorAudit
from deploy.terminal import folding_table, visible

users = typer.Typer(no_args_is_help=True)
console = Console(highlight=False)

Username = Annotated[str, Argument(help="User name.")]
Roles = Annotated[list[Role] | None, Option("--role", help="Role of the user; repeat it for several roles.")]
BreakGlass = Annotated[bool | None, Option(help="Allow a password where others must use the company login.")]
FromInput = Annotated[bool, Option("--password-stdin", help="Read the password from standard input.")]


@users.command("create")
def create_user(
    tenant_id: TenantId,
    username: Username,
    role: Roles = None,
    break_glass: BreakGlass = None,
    password_stdin: FromInput = False,
    data: Data = None,
) -> None:
    """Create a user, by default an administrator. Without --password-stdin a password is generated and shown once."""
    password, message = _password(from_input=password_stdin)
    roles = parse_roles(role or ADMINISTRATOR)

    async def work(operator: Operator, audit: OperatorAudit) -> None:
        await operator.tenants.find(tenant_id)
        await operator.users.create(tenant_id, username, password, roles, is_break_glass=bool(break_glass))
        target = {"break_glass": "true"} if break_glass else {}
        await audit.add(tenant_id, "user_create", username=username, role=",".join(roles), **target)

    run_recorded(work, data)
    console.print(f"User {username} of {tenant_id} was created.{message}", markup=False)


@users.command("list")
def list_users(tenant_id: TenantId, data: Data = None) -> None:
    """List the users of a tenant."""

    async def work(operator: Operator) -> Sequence[User]:
        await operator.tenants.find(tenant_id)
        return await operator.users.list(tenant_id)

    table = folding_table("User", "Roles", "Sign-in", "Created")
    for user in run_with_operator(work, data):
        login = f"company login: {user.name} {user.email}" if user.issuer else "password"
        login += ", break-glass" if user.is_break_glass else ""
        created = user.created_at.isoformat(timespec="seconds")
        table.add_row(user.username, ", ".join(user.roles), escape(visible(login)), created)
    console.print(table)


@users.command("edit")
def edit_user(
    tenant_id: TenantId,
    username: Username,
    role: Roles = None,
    break_glass: BreakGlass = None,
    data: Data = None,
) -> None:
    """Replace the roles of a user, or change --break-glass, with immediate effect. The last administrator stays one."""
    if not role and break_glass is None:
        raise typer.BadParameter("give --role, --break-glass or --no-break-glass")
    roles = parse_roles(role) if role else ()

    async def work(operator: Operator, audit: OperatorAudit) -> None:
        before = await operator.users.edit(tenant_id, username, roles, is_break_glass=break_glass)
        changes = {"role": (",".join(before.roles), ",".join(roles))} if roles else {}
        if break_glass is not None:
            changes["break_glass"] = (str(before.is_break_glass).lower(), str(break_glass).lower())
        await audit.add(tenant_id, "user_edit", changes, username=username)

    run_recorded(work, data)
    if roles:
        console.print(f"User {username} of {tenant_id} has the roles: {', '.join(roles)}.", markup=False)
    if break_glass is not None:
        access = "has" if break_glass else "has no"
        console.print(f"User {username} of {tenant_id} {access} emergency access.", markup=False)


@users.command("delete")
def delete_user(tenant_id: TenantId, username: Username, data: Data = None) -> None:
    """Delete a user and end the user's sessions. The last administrator of a tenant cannot be deleted."""

    async def work(operator: Operator, audit: OperatorAudit) -> None:
        await operator.users.delete(tenant_id, username)
        await audit.add(tenant_id, "user_delete", username=username)

    run_recorded(work, data)
    console.print(f"User {username} of {tenant_id} was deleted.", markup=False)


@users.command("password")
def change_password(
    tenant_id: TenantId, username: Username, password_stdin: FromInput = False, data: Data = None
) -> None:
    """Change the password of a user and end the user's sessions."""
    password, message = _password(from_input=password_stdin)

    async def work(operator: Operator, audit: OperatorAudit) -> None:
        await operator.users.reset_password(tenant_id, username, password)
        await audit.add(tenant_id, "user_password", username=username)

    run_recorded(work, data)
    console.print(f"The password of {username} was changed.{message}", markup=False)


def _password(*, from_input: bool) -> tuple[str, str]:
    """A password, and a message that shows a generated one."""
    if from_input:
        return sys.stdin.readline().rstrip("\r\n"), ""
    generated = secrets.token_urlsafe(18)
    return generated, f" Password (shown once): {generated}"
