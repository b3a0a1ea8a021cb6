"""`pkgrepo audit`: verification and export of the audit log."""

import asyncio
import json
import sys
from datetime import datetime
from functools import partial
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from typer import Option

from auth_service.audit.chain import ChainBroken, verify
from auth_service.audit.model import OPERATORS, Head, Selection
from auth_service.forms import time
from common.errors import InvalidField
from deploy.cli.options import Data, console, error_console
from deploy.operator.stores import StoreAddresses, store_addresses
from deploy.operator.tenants import open_operator, open_operator_audit

app = typer.Typer(no_args_is_help=True)


@app.command("verify")
def verify_logs(
    tenant: Annotated[str | None, Option(help="Tenant of the log. Default: all tenants and the operators.")] = None,
    expect: Annotated[str | None, Option(help="Earlier head of the log, SEQUENCE:HASH.")] = None,
    data: Data = None,
) -> None:
    """Verify the audit log and print its head; report the first entry that was removed, changed, moved or inserted.

    Keep the printed heads in another place, and compare them later with --expect.
    """
    if expect and not tenant:
        raise InvalidField("--expect", "is the head of one log; add --tenant")
    if not asyncio.run(_verify(store_addresses(data), tenant, Head.parse(expect) if expect else None)):
        raise typer.Exit(1)


@app.command()
def export(
    tenant: Annotated[str, Option(help=f"Tenant of the log; `{OPERATORS}` has the operators' own log.")],
    since: Annotated[str | None, Option(help="First day or time, such as 2026-01-31.")] = None,
    data: Data = None,
) -> None:
    """Write a log to standard output as JSON lines, the oldest entry first."""
    if not asyncio.run(_export(store_addresses(data), tenant, time("--since", since))):
        error_console.print("Unreadable entries are left out; run `pkgrepo audit verify` to find the first one.")
        raise typer.Exit(1)


async def _verify(where: StoreAddresses, tenant_id: str | None, expected: Head | None) -> bool:
    async with open_operator(where.addresses) as operator, open_operator_audit(where) as audit:
        all_logs = [*(tenant.tenant_id for tenant in await operator.tenants.list()), OPERATORS]
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        is_intact = True
        with Progress(*columns, console=error_console, transient=True) as progress:
            for name in [tenant_id] if tenant_id else all_logs:
                bar = progress.add_task(name, total=(await audit.store.newest(name)).sequence)
                advance = partial(progress.advance, bar)
                try:
                    head = await verify(audit.store, audit.signer, name, expected=expected, checked=advance)
                    console.print(f"{name}: {head.sequence} entries are valid, head {head}")
                except ChainBroken as broken:
                    console.print(f"{name}: {broken}")
                    is_intact = False
                progress.remove_task(bar)
    return is_intact


async def _export(where: StoreAddresses, tenant_id: str, since: datetime | None) -> bool:
    is_complete = True
    async with open_operator_audit(where) as audit:
        async for entry in audit.audit.select(tenant_id, Selection(since=since, oldest_first=True)):
            if entry is None:
                is_complete = False
            else:
                sys.stdout.write(json.dumps(entry.exported(), sort_keys=True) + "\n")
    return is_complete
