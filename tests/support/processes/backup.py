"""Backups and archives for tests: by the command, or in the process of the test."""

import os
import shutil
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

from pydantic import SecretStr

from auth_service.audit.store import verify
from deploy.backup.creator import BackupCreator
from deploy.backup.folder import BackupFolder
from deploy.backup.records import Passphrase
from deploy.backup.restorer import BackupRestorer
from deploy.backup.tenant import TenantExporter, TenantImporter
from deploy.local.folder import Addresses
from deploy.operator.stores import StoreAddresses, open_storage
from deploy.operator.tenants import open_operator_audit
from deploy.terminal import FileProgress
from tests.support.factories import KEY, KEYS
from tests.support.processes.cluster import DATABASES, Cluster

PASSPHRASE = Passphrase(SecretStr("the passphrase of all archives of the tests"))

# Runs the command, and kills it before the third call of a function.
KILLING_PROGRAM = """
import os, signal
import {module} as module
from deploy.cli.main import main

calls, wrapped = [], module.{name}

def killing(*arguments):
    calls.append(arguments)
    if len(calls) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return wrapped(*arguments)

module.{name} = killing
main()
"""


class RecordedProgress(FileProgress):
    """Progress that is recorded instead of shown."""

    def __init__(self) -> None:
        self.total = 0
        self.phases: list[tuple[str, int]] = []  # each with its total in bytes

    def start(self, phase: str, total: int, done: int = 0) -> None:
        super().start(phase, total, done)
        self.total = total
        self.phases.append((phase, total))


def addresses_of(cluster: Cluster, audit_key: str = KEY, installers: Path | None = None) -> StoreAddresses:
    """The addresses of a cluster's stores, for operator commands."""
    addresses = Addresses("", cluster.stores.mongo_url, cluster.stores.redis_url)
    return StoreAddresses(addresses, installers or cluster.stores.installers, SecretStr(audit_key), KEYS)


async def back_up(
    cluster: Cluster, folder: Path, *, check: bool = False, installers: Path | None = None
) -> BackupCreator:
    addresses = addresses_of(cluster, installers=installers)
    backup = BackupCreator(BackupFolder(folder), open_storage(addresses.installers), RecordedProgress(), check)
    with backup.folder.locked():
        await backup.run(addresses)
    return backup


async def restore_documents(
    folder: Path, addresses: StoreAddresses, *, other_keys: bool = False, without_seal: bool = False
) -> BackupRestorer:
    """Restore the newest backup."""
    backups, storage = BackupFolder(folder), open_storage(addresses.installers)
    restoration = BackupRestorer(
        backups, backups.load(None), storage, RecordedProgress(), other_keys=other_keys, without_seal=without_seal
    )
    await restoration.run(addresses)
    return restoration


async def audit_heads(addresses: StoreAddresses, *tenant_ids: str) -> list[str]:
    """The verified heads of the logs."""
    async with open_operator_audit(addresses) as audit:
        return [str(await verify(audit.store, audit.signer, tenant_id)) for tenant_id in tenant_ids]


async def export_tenant(cluster: Cluster, tenant_id: str, archive: Path) -> TenantExporter:
    addresses = addresses_of(cluster)
    exporter = TenantExporter(archive, tenant_id, PASSPHRASE, open_storage(addresses.installers), RecordedProgress())
    await exporter.run(addresses)
    return exporter


async def import_archive(cluster: Cluster, archive: Path, audit_key: str = KEY) -> TenantImporter:
    addresses = addresses_of(cluster, audit_key)
    importer = TenantImporter(archive, PASSPHRASE, open_storage(addresses.installers), RecordedProgress())
    await importer.run(addresses)
    return importer


def passphrase_option(folder: Path) -> tuple[str, str]:
    """The option of `pkgrepo export` and `import`, with a file in the folder."""
    file = folder / "passphrase"
    file.write_text(f"{PASSPHRASE.text.get_secret_value()}\n")
    return "--passphrase-file", str(file)


async def run_and_kill(module: str, name: str, *arguments: str, **environment: str) -> int | None:
    """Run a command and kill it at the third call of a function. Returns its status."""
    program = KILLING_PROGRAM.format(module=module, name=name)
    process = await create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments), stdout=PIPE, stderr=STDOUT, env={**os.environ, **environment}
    )
    await process.communicate()
    return process.returncode


async def delete_all_data(cluster: Cluster) -> None:
    """Stop all services and delete their data."""
    for replica in [replica for replicas in cluster.replicas.values() for replica in replicas]:
        await replica.stop()
    for name in DATABASES:
        await cluster.mongo.drop_database(name)
    shutil.rmtree(cluster.stores.installers)
    cluster.stores.installers.mkdir()
