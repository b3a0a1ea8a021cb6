"""Options, exit codes and messages that several commands share. `publish` starts quickly, so it imports no driver."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from rich.console import Console
from typer import Argument, Exit, Option

if TYPE_CHECKING:
    from deploy.operator.tenants import Operator, OperatorAudit

INTERRUPTED = 130  # the exit code of a shell for Ctrl-C
RESUMES = "Run the same command again to resume."
Result = TypeVar("Result")
console = Console(highlight=False, markup=False, soft_wrap=True)
error_console = Console(stderr=True, highlight=False, soft_wrap=True)

DATA_HELP = "Folder of a running `pkgrepo up`. Default: the settings MONGO_URL, REDIS_URL and AUDIT_KEY."
Data = Annotated[Path | None, Option(help=DATA_HELP)]
Url = Annotated[str, Option(envvar="PKGREPO_URL", help="https://host/tenant, or https://host/client/api.")]
RetryTimeout = Annotated[
    float, Option("--patience", min=1, metavar="SECONDS", help="Time limit of retries without progress.")
]
ChunkSize = Annotated[int, Option(min=1, max=64, metavar="MIB", help="Chunk size.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON document on standard output.")]
CaFile = Annotated[Path | None, Option(exists=True, dir_okay=False, help="Trusted certificates, PEM.")]
TenantId = Annotated[str, Argument(help="Tenant id, the first part of the tenant's addresses.")]


def run_interruptible(work: Coroutine[object, object, Result]) -> list[Result]:
    """The result of the work as a list, which is empty if a signal stopped the work."""
    from common.http.server import until_stopped

    results: list[Result] = []

    async def keep_result() -> None:
        results.append(await work)

    asyncio.run(until_stopped(keep_result()))
    return results


def run_until_stopped(work: Coroutine[object, object, Result], console: Console = console) -> Result:
    """The result of the work. A signal stops it and ends the command with INTERRUPTED."""
    results = run_interruptible(work)
    if not results:
        console.print(f"Stopped. {RESUMES}")
        raise Exit(INTERRUPTED)
    return results[0]


def run_with_operator(work: Callable[["Operator"], Awaitable[Result]], data: Path | None) -> Result:
    """The result of work that the audit log does not record."""
    from deploy.operator.stores import store_addresses
    from deploy.operator.tenants import open_operator

    async def run() -> Result:
        async with open_operator(store_addresses(data).addresses) as operator:
            return await work(operator)

    return asyncio.run(run())


def run_recorded(work: Callable[["Operator", "OperatorAudit"], Awaitable[Result]], data: Path | None) -> Result:
    """The result of work that the audit log records."""
    from deploy.operator.stores import store_addresses
    from deploy.operator.tenants import open_operator, open_operator_audit

    async def run() -> Result:
        where = store_addresses(data)
        async with open_operator(where.addresses) as operator, open_operator_audit(where) as audit:
            return await work(operator, audit)

    return asyncio.run(run())
