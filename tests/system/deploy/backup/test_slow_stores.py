"""A backup waits for a store that is slow or away, and says what it waits for."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import stamina
from pydantic import SecretStr
from pymongo.errors import NetworkTimeout, OperationFailure

from common.errors import Unavailable
from common.mongo import open_database
from deploy.backup.creator import BackupCreator, print_retries, run_with_retries
from deploy.backup.folder import BackupFolder
from deploy.backup.installers import installer_document
from deploy.backup.records import BackupProblem, Client, DatabaseSnapshot, Entry, snapshot_read
from deploy.local.folder import Addresses
from deploy.operator.stores import StoreAddresses, open_storage
from deploy.operator.tenants import NotRecorded
from tests.support.factories import KEY, KEYS
from tests.support.processes.backup import RecordedProgress
from tests.support.samples.stored_installer import CONTENT, NAME, UPLOAD

NOBODY = "mongodb://127.0.0.1:9/?directConnection=true"


@pytest.fixture
def retries() -> Iterator[list[str]]:
    """The lines about further attempts, which follow at once."""
    lines: list[str] = []
    print_retries(lines.append)
    with stamina.set_testing(True, attempts=3):
        yield lines
    stamina.instrumentation.set_on_retry_hooks(None)


async def test_a_slow_call_is_repeated(own_mongo_url: str, retries: list[str]) -> None:
    async with open_database(own_mongo_url, "slow", timeout=0.3) as database:
        await database["rows"].insert_one({"_id": 1})

        async def call() -> object:
            milliseconds = 0 if retries else 600
            return await database["rows"].find_one({"$where": f"sleep({milliseconds}) || true"})

        assert await run_with_retries(call) == {"_id": 1}
    (line,) = retries
    assert line.startswith("MongoDB did not answer in time; it is overloaded, or the network is slow (")
    assert line.endswith("Trying again in 0 s.")


async def test_a_store_that_stays_away_is_named_with_the_remedy(retries: list[str]) -> None:
    async with open_database(NOBODY, "upload", timeout=0.1) as database:
        with pytest.raises(BackupProblem, match=r"^MongoDB is not reached.*check MONGO_URL.*Run the same command"):
            await run_with_retries(lambda: database.command("ping"))
    assert len(retries) == 2


async def test_an_audit_log_and_a_storage_are_waited_for(retries: list[str]) -> None:
    async def record() -> str:
        if not retries:
            try:
                raise NetworkTimeout("10.0.0.7")
            except NetworkTimeout:
                raise NotRecorded("the audit log does not answer") from None
        if len(retries) < 2:
            raise Unavailable("The object storage does not answer.")
        return "recorded"

    assert await run_with_retries(record) == "recorded"
    assert [line.partition(" (")[0].partition(".")[0] for line in retries] == [
        "MongoDB did not answer in time; it is overloaded, or the network is slow",
        "The object storage does not answer",
    ]


async def test_an_error_that_stays_is_not_repeated(own_mongo_url: str, retries: list[str]) -> None:
    async with open_database(own_mongo_url, "upload") as database:
        with pytest.raises(OperationFailure):
            await run_with_retries(lambda: database.command("unknown"))
    assert retries == []


async def test_a_repeated_backup_is_complete_and_copies_nothing_twice(
    own_mongo_url: str, retries: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "installers" / "acme").mkdir(parents=True)
    (tmp_path / "installers" / "acme" / NAME).write_bytes(CONTENT)
    async with open_database(own_mongo_url, "upload") as database:
        await database["uploads"].insert_one(installer_document(UPLOAD))

    async def interrupted(client: Client, read: Callable[[DatabaseSnapshot], Awaitable[list[Entry]]]) -> list[Entry]:
        records = await snapshot_read(client, read)
        if not retries:
            raise NetworkTimeout("10.0.0.7")
        return records

    monkeypatch.setattr("deploy.backup.creator.snapshot_read", interrupted)
    where = StoreAddresses(Addresses("", own_mongo_url, ""), tmp_path / "installers", SecretStr(KEY), KEYS)
    folder, storage = BackupFolder(tmp_path / "backups"), open_storage(where.installers)
    backup = BackupCreator(folder, storage, RecordedProgress(), check=False)
    with folder.locked():
        await run_with_retries(partial(backup.run, where))
    assert (len(retries), folder.names(), backup.copied, backup.lacking) == (1, [backup.name], 1, {})
