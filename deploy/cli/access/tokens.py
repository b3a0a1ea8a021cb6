"""`pkgrepo token`: the API tokens of a tenant."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from typer import Argument, Option

from auth_service.forms import token_grant
from auth_service.tokens.model import DEFAULT_DAYS, MAX_DAYS, MAX_OVERLAP, Token, TokenNotFound
from common.auth.internal_tokens import Caller, Kind
from common.auth.package_patterns import EVERY_PACKAGE
from common.auth.roles import ADMINISTRATOR, Role
from common.http.forms import Form
from deploy.cli.options import Data, TenantId, run_recorded, run_with_operator
from deploy.operator.tenants import Operator, OperatorAudit, operator_name
from deploy.terminal import folding_table, visible

tokens = typer.Typer(no_args_is_help=True)
console = Console(highlight=False, soft_wrap=True)

Name = Annotated[str, Argument(help="Name of the token.")]
Roles = Annotated[list[Role], Option("--role", help="Role of the token; repeat it for several roles.")]
Packages = Annotated[list[str] | None, Option("--package", help="Package id or pattern such as Acme.*; repeatable.")]
Networks = Annotated[list[str] | None, Option("--network", metavar="CIDR", help="Network of callers; repeatable.")]
Days = Annotated[int, Option("--days", min=1, max=MAX_DAYS, help="Days until the token expires.")]
Overlap = Annotated[int, Option("--overlap", min=0, max=MAX_OVERLAP, help="Hours that the old secret still counts.")]


@tokens.command("create")
def create_token(
    tenant_id: TenantId,
    name: Name,
    role: Roles,
    package: Packages = None,
    network: Networks = None,
    days: Days = DEFAULT_DAYS,
    data: Data = None,
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

    async def work(operator: Operator, audit: OperatorAudit) -> str:
        _, text = await operator.tokens.create(await _caller(operator, tenant_id), grant, days)
        lists = {"role": grant.roles, "package_ids": grant.packages, "networks": grant.networks}
        await audit.add(tenant_id, "token_create", name=name, **{field: ",".join(lists[field]) for field in lists})
        return text

    text = run_recorded(work, data)
    console.print(f"Token {name} of {tenant_id} was created. It is shown once: {text}", markup=False)


@tokens.command("list")
def list_tokens(tenant_id: TenantId, data: Data = None) -> None:
    """List the API tokens of a tenant, without their secrets."""

    async def work(operator: Operator) -> Sequence[Token]:
        await operator.tenants.find(tenant_id)
        return await operator.tokens.list(tenant_id)

    table = folding_table("Token", "Roles", "Packages", "Networks", "Expires", "Last used", "Created by")
    for token in run_with_operator(work, data):
        grant, used = token.grant, token.last_used
        lists = (", ".join(items) for items in (grant.roles, grant.packages, grant.networks))
        times = (moment.isoformat(timespec="seconds") if moment else "" for moment in (token.expires_at, used))
        table.add_row(*(escape(visible(cell)) for cell in (grant.name, *lists, *times, token.created_by)))
    console.print(table)


@tokens.command("rotate")
def rotate_token(tenant_id: TenantId, name: Name, overlap: Overlap = 0, data: Data = None) -> None:
    """Replace the secret of an API token, which then lives its whole time again. The new one is shown once."""

    async def work(operator: Operator, audit: OperatorAudit) -> str:
        caller, token_id = await _caller(operator, tenant_id), await _find_id(operator, tenant_id, name)
        _, text = await operator.tokens.rotate(caller, token_id, overlap)
        await audit.add(tenant_id, "token_rotate", name=name, overlap_hours=str(overlap))
        return text

    text = run_recorded(work, data)
    console.print(f"Token {name} of {tenant_id} was rotated. It is shown once: {text}", markup=False)


@tokens.command("delete")
def delete_token(tenant_id: TenantId, name: Name, data: Data = None) -> None:
    """Delete an API token, with immediate effect."""

    async def work(operator: Operator, audit: OperatorAudit) -> None:
        await operator.tokens.delete(tenant_id, await _find_id(operator, tenant_id, name))
        await audit.add(tenant_id, "token_delete", name=name)

    run_recorded(work, data)
    console.print(f"Token {name} of {tenant_id} was deleted.", markup=False)


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
