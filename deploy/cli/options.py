"""Options, exit codes and messages that several commands share. `publish` starts quickly, so it imports no driver."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, TypeVar

from rich.console import Console
from typer import Argument, Exit, Option

INTERRUPTED = 130  # the exit code of a shell for Ctrl-C
RESUMES = "Run the command again to continue."
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


def with_stores(
    command: Callable[..., Coroutine[object, object, None]],
    run_work: Callable[[Coroutine[object, object, None]], None] = asyncio.run,
) -> Callable[..., None]:
    """Make a command with the option --data of a function whose first parameters are stores, told by their types.

    They are open while the function runs: `StoreAddresses`, `Storage`, `Operator`, `RecordedOperator`, `OperatorAudit`.
    """
    from deploy.operator import tenants
    from deploy.operator.stores import Storage, StoreAddresses, open_storage, store_addresses

    openers: Mapping[object, Callable[[StoreAddresses], AbstractAsyncContextManager[object]]] = {
        StoreAddresses: nullcontext,
        Storage: lambda where: nullcontext(open_storage(where.installers)),
        tenants.Operator: lambda where: tenants.open_operator(where.addresses),
        tenants.RecordedOperator: tenants.open_recorded_operator,
        tenants.OperatorAudit: tenants.open_operator_audit,
    }
    kinds = [parameter.annotation for parameter in signature(command, eval_str=True).parameters.values()]
    stores = [openers[kind] for kind in kinds if kind in openers]

    def run(*, data: Data = None, **values: object) -> None:
        where = store_addresses(data)

        async def work() -> None:
            async with AsyncExitStack() as stack:
                opened = [await stack.enter_async_context(open_store(where)) for open_store in stores]
                await command(*opened, **values)

        run_work(work())

    return as_command(run, command, opened=len(stores))


def resumable(command: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """As `with_stores`, for a command that a signal stops and a further run resumes."""
    return with_stores(command, run_until_stopped)


def as_command(run: Callable[..., None], command: Callable[..., object], *, opened: int) -> Callable[..., None]:
    """Give `run` the help and the options of a command, before its own, without the first `opened` parameters."""
    options = list(signature(command, eval_str=True).parameters.values())[opened:]
    own = signature(run, eval_str=True).parameters.values()
    options += [option for option in own if option.kind is Parameter.KEYWORD_ONLY]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run
