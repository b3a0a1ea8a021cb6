"""Backups and archives as the tests take them: by the command, or within the test's own process."""

import os
import shutil
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, STDOUT
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from auth_service.audit.verify import verify
from auth_service.users.passwords import password_hasher
from deploy.backup.folder import BackupFolder
from deploy.backup.restoring import Restoration
from deploy.backup.taking import Backup
from deploy.local.folder import Addresses
from deploy.operator.audit import open_record
from deploy.operator.storage import open_storage
from deploy.operator.stores import StoreAddresses
from deploy.tenant_archive.exporting import Export
from deploy.tenant_archive.importing import Import
from tests.support.factories import KEY, KEYS
from tests.support.processes.fleet import DATABASES, Fleet

# Runs the command, and kills it when an installer has been written for the third time.
KILLED = """
import os, signal
from argon2 import PasswordHasher
from auth_service.users import passwords
import {module} as module
from deploy.cli.main import main

hasher = PasswordHasher(time_cost={time_cost}, memory_cost={memory_cost}, parallelism={parallelism})
passwords.PasswordHasher = lambda **_: hasher
seen, wrapped = [], module.{name}

def killing(*given):
    seen.append(given)
    if len(seen) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return wrapped(*given)

module.{name} = killing
main()
"""


@dataclass
class Shown:
    """A row that nobody sees."""

    total: int = 0
    done: int = 0
    phases: list[tuple[str, int]] = field(default_factory=list)  # each with its total in bytes

    def reading(self, total: int) -> None:
        self.total = total

    def sending(self, total: int, done: int) -> None:
        self.total, self.done = total, done

    def checking(self, total: int) -> None:
        self.phases.append(("checking", total))

    def copying(self, total: int, done: int) -> None:
        self.phases.append(("copying", total))
        self.sending(total, done)

    def at(self, done: int) -> None:
        self.done = done


def places_of(fleet: Fleet, audit_key: str = KEY, installers: Path | None = None) -> StoreAddresses:
    """Where an operator's command finds the stores of a fleet."""
    addresses = Addresses("", fleet.stores.mongo_url, fleet.stores.redis_url)
    return StoreAddresses(addresses, installers or fleet.stores.installers, SecretStr(audit_key), KEYS)


async def back_up(fleet: Fleet, folder: Path, *, check: bool = False, installers: Path | None = None) -> Backup:
    where = places_of(fleet, installers=installers)
    backup = Backup(BackupFolder(folder), open_storage(where.installers), Shown(), check)
    with backup.folder.locked():
        await backup.take(where)
    return backup


async def restore_documents(
    folder: Path, where: StoreAddresses, *, other_keys: bool = False, without_seal: bool = False
) -> Restoration:
    """Restore the newest backup."""
    backups, storage = BackupFolder(folder), open_storage(where.installers)
    restoration = Restoration(
        backups, backups.read(None), storage, Shown(), other_keys=other_keys, without_seal=without_seal
    )
    await restoration.run(where)
    return restoration


async def heads(where: StoreAddresses, *tenant_ids: str) -> list[str]:
    """How far the logs reach, all of which is as it was written."""
    async with open_record(where) as record:
        return [str(await verify(record.store, record.signer, tenant_id)) for tenant_id in tenant_ids]


async def export(fleet: Fleet, tenant_id: str, archive: Path) -> Export:
    where = places_of(fleet)
    done = Export(archive, tenant_id, open_storage(where.installers), Shown())
    await done.run(where)
    return done


async def bring_in(fleet: Fleet, archive: Path, audit_key: str = KEY) -> Import:
    where = places_of(fleet, audit_key)
    done = Import(archive, open_storage(where.installers), Shown())
    await done.run(where)
    return done


async def run_and_kill(module: str, name: str, *arguments: str, **environment: str) -> int | None:
    """Run a command that is killed when it comes to the third call of a function; its status."""
    hasher = password_hasher()  # An import takes hashes of these costs only, which the tests may have lowered.
    costs = {cost: getattr(hasher, cost) for cost in ("time_cost", "memory_cost", "parallelism")}
    program = KILLED.format(module=module, name=name, **costs)
    process = await create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments), stdout=PIPE, stderr=STDOUT, env={**os.environ, **environment}
    )
    await process.communicate()
    return process.returncode


async def wipe(fleet: Fleet) -> None:
    """Stop all services and lose everything that they had."""
    for replica in [replica for replicas in fleet.replicas.values() for replica in replicas]:
        await replica.stop()
    for name in DATABASES:
        await fleet.mongo.drop_database(name)
    shutil.rmtree(fleet.stores.installers)
    fleet.stores.installers.mkdir()
