"""`pkgrepo migrate`: bring the databases up to date before the services that want them so start."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from common.http.server import until_stopped
from common.mongo import MongoDatabase
from common.mongo.migration import migrate as bring_up
from common.mongo.schema import Migrating, Schema, outstanding
from common.telemetry import configure_logs
from deploy.operator.schemas import open_database, schemas
from deploy.operator.stores import StoreAddresses, places

PAUSE = 1.0  # seconds between two looks at what another process does
INTERRUPTED = 130  # what a shell gives for Ctrl-C

console = Console(highlight=False, markup=False, soft_wrap=True)

Data = Annotated[Path | None, typer.Option(help="The folder of a running `pkgrepo up`; else MONGO_URL and REDIS_URL.")]


def migrate(
    check: Annotated[bool, typer.Option("--check", help="Only say what is to be done; exits with 1 for any.")] = False,
    data: Data = None,
) -> None:
    """Bring the databases up to date, beside services of the release before; new ones would do so themselves."""
    where = places(data)
    wanted = schemas(where)
    configure_logs("error")
    if check:
        found = asyncio.run(_left(where, wanted))
        for sentence in found:
            console.print(sentence)
        if found:
            raise typer.Exit(1)
        console.print("The databases are up to date.")
        return
    ended: list[str] = []
    asyncio.run(until_stopped(_migrate(where, wanted, ended)))
    if len(ended) < len(wanted):
        console.print("Stopped. Run the same command again, or start the services: they go on where it stopped.")
        raise typer.Exit(INTERRUPTED)
    console.print("The databases are up to date.")


async def _left(where: StoreAddresses, wanted: Mapping[str, Schema]) -> list[str]:
    """What is to be done, in sentences."""
    found = []
    for name, schema in wanted.items():
        async with open_database(where.addresses.mongo_url, name) as database:
            found += [f"{name}: {sentence}" for sentence in (await outstanding(database, schema)).sentences()]
    return found


async def _migrate(where: StoreAddresses, wanted: Mapping[str, Schema], ended: list[str]) -> None:
    """Do it, one database after another; `ended` gets their names."""
    for name, schema in wanted.items():
        async with open_database(where.addresses.mongo_url, name) as database:
            left = await outstanding(database, schema)
            with console.status(name) as status:
                await _patiently(database, schema, status)
            for sentence in left.sentences():
                console.print(f"{name}: {sentence}: done")
        ended.append(name)


async def _patiently(database: MongoDatabase, schema: Schema, status: Status) -> None:
    """Bring a database up to date, or wait for whoever does so just now."""

    def show(text: str) -> None:
        status.update(f"{database.name}: {text}")

    while True:
        try:
            return await bring_up(database, schema, show)
        except Migrating as problem:
            status.update(str(problem))
            await asyncio.sleep(PAUSE)
