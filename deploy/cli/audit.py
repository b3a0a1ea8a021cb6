"""`pkgrepo audit …`: whether the audit log is what was written, and all of it as JSON lines."""

import asyncio
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from auth_service.audit.chain import Head
from auth_service.audit.service import OPERATORS, Selection
from auth_service.audit.verify import ChainBroken, verify
from auth_service.forms import time
from common.errors import InvalidField
from deploy.operator.audit import open_record
from deploy.operator.operations import open_operator
from deploy.operator.stores import StoreAddresses, places

app = typer.Typer(no_args_is_help=True)
console = Console(highlight=False, soft_wrap=True)
beside = Console(stderr=True, highlight=False, soft_wrap=True)

Data = Annotated[
    Path | None, typer.Option(help="The folder of a running `pkgrepo up`; else MONGO_URL, REDIS_URL, AUDIT_KEY.")
]
Tenant = Annotated[str, typer.Option(help=f"Whose log; `{OPERATORS}` has what operators did to tenants that are gone.")]


@app.command("verify")
def verify_logs(
    tenant: Annotated[str | None, typer.Option(help="Whose log; else every tenant's and the operators'.")] = None,
    expect: Annotated[str | None, typer.Option(help="A head, SEQUENCE:HASH, that the log had once.")] = None,
    data: Data = None,
) -> None:
    """Find the first entry of a log that was removed, altered, moved or put there; note the heads that are printed."""
    if expect and not tenant:
        raise InvalidField("--expect", "is the head of one log; name its --tenant")
    if not asyncio.run(_verify(places(data), tenant, Head.parse(expect) if expect else None)):
        raise typer.Exit(1)


@app.command()
def export(
    tenant: Tenant,
    since: Annotated[str | None, typer.Option(help="The first day or moment, such as 2026-01-31.")] = None,
    data: Data = None,
) -> None:
    """Write a log to the standard output as JSON lines, the oldest entry first."""
    if not asyncio.run(_export(places(data), tenant, time("--since", since))):
        beside.print("Entries that cannot be read are left out; `pkgrepo audit verify` names the first.")
        raise typer.Exit(1)


async def _verify(where: StoreAddresses, tenant_id: str | None, expected: Head | None) -> bool:
    async with open_operator(where.addresses) as operator, open_record(where) as record:
        every = [*(tenant.tenant_id for tenant in await operator.tenants.list()), OPERATORS]
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        whole = True
        with Progress(*columns, console=beside, transient=True) as progress:
            for name in [tenant_id] if tenant_id else every:
                bar = progress.add_task(name, total=(await record.store.newest(name)).sequence)
                try:
                    head = await verify(
                        record.store,
                        record.signer,
                        name,
                        expected=expected,
                        checked=lambda task=bar: progress.advance(task),  # type: ignore[misc]  # called with none
                    )
                    console.print(f"{name}: {head.sequence} entries hold, head {head}")
                except ChainBroken as broken:
                    console.print(f"{name}: {broken}")
                    whole = False
                progress.remove_task(bar)
    return whole


async def _export(where: StoreAddresses, tenant_id: str, since: datetime | None) -> bool:
    whole = True
    async with open_record(where) as record:
        async for link in record.audit.select(tenant_id, Selection(since=since), oldest_first=True):
            if link is None:
                whole = False
                continue
            sys.stdout.write(json.dumps({**link.content(), "hash": link.hash}, sort_keys=True) + "\n")
    return whole
