"""`pkgrepo user …`: who administers a tenant."""

import asyncio
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from auth_service.users.model import User
from deploy.operator.audit import open_record
from deploy.operator.operations import open_operator
from deploy.operator.stores import StoreAddresses, places

app = typer.Typer(no_args_is_help=True)
console = Console(highlight=False)

TenantId = Annotated[str, typer.Argument(help="The tenant's id.")]
Username = Annotated[str, typer.Argument(help="The user's name.")]
FromInput = Annotated[bool, typer.Option("--password-stdin", help="Read the password from the standard input.")]
Data = Annotated[Path | None, typer.Option(help="The folder of a running `pkgrepo up`; else MONGO_URL and REDIS_URL.")]


@app.command()
def create(tenant_id: TenantId, username: Username, password_stdin: FromInput = False, data: Data = None) -> None:
    """Create a user; without --password-stdin a password is generated and shown once."""
    password, shown = _password(from_input=password_stdin)
    asyncio.run(_create(places(data), tenant_id, username, password))
    console.print(f"User {username} of {tenant_id} was created.{shown}", markup=False)


@app.command("list")
def list_users(tenant_id: TenantId, data: Data = None) -> None:
    """List a tenant's users."""
    table = Table("User", "Created")
    for user in asyncio.run(_list(places(data), tenant_id)):
        table.add_row(user.username, user.created_at.isoformat(timespec="seconds"))
    console.print(table)


@app.command()
def delete(tenant_id: TenantId, username: Username, data: Data = None) -> None:
    """Delete a user and end their sessions; the last user of a tenant stays."""
    asyncio.run(_delete(places(data), tenant_id, username))
    console.print(f"User {username} of {tenant_id} was deleted.", markup=False)


@app.command()
def password(tenant_id: TenantId, username: Username, password_stdin: FromInput = False, data: Data = None) -> None:
    """Give a user another password and end their sessions."""
    new, shown = _password(from_input=password_stdin)
    asyncio.run(_reset(places(data), tenant_id, username, new))
    console.print(f"The password of {username} was changed.{shown}", markup=False)


def _password(*, from_input: bool) -> tuple[str, str]:
    """A password, and the words that show it where it was generated."""
    if from_input:
        return sys.stdin.readline().rstrip("\r\n"), ""
    generated = secrets.token_urlsafe(18)
    return generated, f" Password, shown this once: {generated}"


async def _create(where: StoreAddresses, tenant_id: str, username: str, new: str) -> None:
    async with open_operator(where.addresses) as operator, open_record(where) as record:
        await operator.tenants.find(tenant_id)
        await operator.users.create(tenant_id, username, new)
        await record.add(tenant_id, "user_create", username=username)


async def _list(where: StoreAddresses, tenant_id: str) -> list[User]:
    async with open_operator(where.addresses) as operator:
        await operator.tenants.find(tenant_id)
        return list(await operator.users.list(tenant_id))


async def _delete(where: StoreAddresses, tenant_id: str, username: str) -> None:
    async with open_operator(where.addresses) as operator, open_record(where) as record:
        await operator.users.delete(tenant_id, username)
        await record.add(tenant_id, "user_delete", username=username)


async def _reset(where: StoreAddresses, tenant_id: str, username: str, new: str) -> None:
    async with open_operator(where.addresses) as operator, open_record(where) as record:
        await operator.users.reset_password(tenant_id, username, new)
        await record.add(tenant_id, "user_password", username=username)
