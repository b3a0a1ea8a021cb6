"""`pkgrepo migrate`, and commands, backups and archives with an older or newer database."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import SecretStr

from common.mongo import MongoDatabase, open_database
from common.mongo.schema import Done, Migration, Schema, SchemaIsNewer, set_version, version_of
from deploy.backup.creator import BackupCreator
from deploy.backup.folder import BackupFolder
from deploy.backup.records import DATABASES
from deploy.backup.tenant import TenantExporter, TenantImporter
from deploy.local import servers
from deploy.local.folder import Addresses
from deploy.operator.stores import KNOWN, SCHEMAS, StoreAddresses, open_storage
from deploy.operator.tenants import open_operator
from tests.support.factories import KEY, KEYS, make_tenant
from tests.support.processes.backup import PASSPHRASE, RecordedProgress, passphrase_option, restore_documents
from tests.support.processes.pkgrepo_command import pkgrepo_commands

TENANT = make_tenant(tenant_id="acme")


@pytest.fixture(scope="module")
async def mongo_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """A private MongoDB, because the databases have fixed names."""
    async with servers.mongod(tmp_path_factory.mktemp("mongodb")) as url:
        yield url


@pytest.fixture
async def database(mongo_url: str) -> AsyncIterator[MongoDatabase]:
    """The database `auth` of an empty installation."""
    async with open_database(mongo_url, "auth") as database:
        await drop_databases(database)
        yield database


async def drop_databases(database: MongoDatabase) -> None:
    for name in DATABASES:
        await database.client.drop_database(name)
    await database.client["upload"].create_collection("uploads")  # exists after the first start of the service


@pytest.fixture
def addresses(mongo_url: str, redis_url: str, tmp_path: Path) -> StoreAddresses:
    (tmp_path / "installers").mkdir()
    return StoreAddresses(Addresses("", mongo_url, redis_url), tmp_path / "installers", SecretStr(KEY), KEYS)


async def run(addresses: StoreAddresses, *commands: Sequence[str], **environment: str) -> list[tuple[int, str]]:
    return await pkgrepo_commands(
        *commands,
        MONGO_URL=addresses.addresses.mongo_url,
        REDIS_URL=addresses.addresses.redis_url,
        INSTALLERS=str(addresses.installers),
        AUDIT_KEY=KEY,
        **environment,
    )


@pytest.fixture
def newer_program(database: MongoDatabase, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A program with a migration that gives groups a colour; the tenants that existed when it ran."""
    tenants: list[str] = []

    async def colour(clients: MongoDatabase, _: Done) -> None:
        tenants.extend(await database["tenants"].distinct("tenant_id"))
        await clients["groups"].update_many({}, {"$set": {"colour": "red"}})

    newer = Schema([Migration("give groups a colour", colour)], SCHEMAS["clients"].indexes)
    monkeypatch.setitem(SCHEMAS, "clients", newer)
    monkeypatch.setitem(KNOWN, "clients", newer.version)
    return tenants


async def add_group(database: MongoDatabase) -> None:
    group = {"tenant_id": TENANT.tenant_id, "group_id": str(uuid4()), "name": "games", "name_key": "games"}
    await database.client["clients"]["groups"].insert_one(
        {**group, "package_ids": ["Acme.Game"], "created_at": datetime.now(UTC)}
    )


async def create_tenant(addresses: StoreAddresses) -> None:
    async with open_operator(addresses.addresses) as operator:
        await operator.tenants.create(TENANT)


async def back_up(addresses: StoreAddresses, folder: Path) -> Path:
    """Create a backup. Returns the path of its manifest."""
    backup = BackupCreator(BackupFolder(folder), open_storage(addresses.installers), RecordedProgress(), check=False)
    with backup.folder.locked():
        await backup.run(addresses)
    return folder / backup.name / "manifest.json"


async def test_migrate_lists_what_is_missing_and_makes_it_once(
    database: MongoDatabase, addresses: StoreAddresses
) -> None:
    check, migrated, repeated, second_check = await run(
        addresses, ["migrate", "--check"], ["migrate"], ["migrate"], ["migrate", "--check"]
    )
    assert check[0] == 1
    assert "clients: 4 indexes of clients" in check[1]
    assert migrated[0] == 0
    assert "clients: 4 indexes of clients: done" in migrated[1]
    assert repeated == second_check == (0, "The databases are up to date.")
    assert {name: await version_of(database.client[name]) for name in KNOWN} == KNOWN


async def test_every_command_rejects_a_newer_database(
    database: MongoDatabase, addresses: StoreAddresses, tmp_path: Path
) -> None:
    archive, backups, sealed = str(tmp_path / "acme.tar"), str(tmp_path / "backups"), passphrase_option(tmp_path)
    prepared = await run(
        addresses, ["tenant", "create", "acme"], ["export", "acme", archive, *sealed], ["backup", backups]
    )
    assert [status for status, _ in prepared] == [0, 0, 0]
    await set_version(database.client["clients"], 9)
    password = str(tmp_path / "password")
    commands = (
        ("tenant", "create", "other"),
        ("tenant", "list"),
        ("tenant", "edit", "acme", "--max-clients", "7"),
        ("tenant", "delete", "acme", "--yes"),
        ("user", "create", "acme", "helga"),
        ("user", "list", "acme"),
        ("user", "password", "acme", "helga"),
        ("user", "delete", "acme", "helga"),
        ("audit", "verify"),
        ("audit", "export", "--tenant", "acme"),
        ("scrub",),
        ("quota",),
        ("quota", "--repair"),
        ("migrate",),
        ("migrate", "--check"),
        ("backup", backups),
        ("restore", backups),
        ("export", "acme", str(tmp_path / "again.tar"), *sealed),
        ("import", archive, *sealed),
        ("storage", "migrate", "--to", "folder"),
        ("cluster", "first-tenant", "main", "--password-file", password),
        ("up", "--data", str(tmp_path / "data"), "--port", "0"),
    )
    refused = "pkgrepo: clients: schema is newer than this program, 9 where it knows 0"
    bucket = {"S3_URL": "s3://bucket", "S3_ACCESS_KEY_ID": "id", "S3_SECRET_ACCESS_KEY": "secret"}  # never used
    results = await run(addresses, *commands, **bucket)
    assert [
        (command, output) for command, (_, output) in zip(commands, results, strict=True) if refused not in output
    ] == []
    assert await database["tenants"].distinct("tenant_id") == ["acme"]


@pytest.mark.full
async def test_an_older_backup_is_migrated_during_its_restore(
    database: MongoDatabase, addresses: StoreAddresses, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    await create_tenant(addresses)
    await add_group(database)
    await back_up(addresses, tmp_path / "backups")
    await drop_databases(database)
    request.getfixturevalue("newer_program")
    await set_version(database.client["clients"], 1)  # A service was started here.
    elsewhere = replace(addresses, installers=tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    await restore_documents(tmp_path / "backups", elsewhere)
    assert await database.client["clients"]["groups"].distinct("colour") == ["red"]
    assert await version_of(database.client["clients"]) == 1


async def test_a_backup_has_its_schemas_and_a_newer_one_is_rejected(
    database: MongoDatabase, addresses: StoreAddresses, tmp_path: Path
) -> None:
    manifest = await back_up(addresses, tmp_path / "backups")
    document = json.loads(manifest.read_text())
    assert document["schemas"] == KNOWN
    assert not [entry["name"] for entry in document["records"] if entry["name"].endswith(".schema.bson")]
    manifest.write_text(json.dumps({**document, "schemas": {"catalog": 9}}))
    with pytest.raises(SchemaIsNewer, match="the backup's catalog: schema is newer than this program"):
        await restore_documents(tmp_path / "backups", addresses)
    assert await database["restorations"].count_documents({}) == 0


@pytest.mark.full
async def test_a_newer_archive_is_rejected_and_an_older_one_migrated(
    database: MongoDatabase, addresses: StoreAddresses, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    await create_tenant(addresses)
    await add_group(database)
    storage = open_storage(addresses.installers)
    archive, newer = tmp_path / "acme.tar", tmp_path / "newer.tar"
    await TenantExporter(archive, TENANT.tenant_id, PASSPHRASE, storage, RecordedProgress()).run(addresses)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("deploy.backup.tenant.versions", lambda _: asyncio.sleep(0, {"upload": 9}))
        await TenantExporter(newer, TENANT.tenant_id, PASSPHRASE, storage, RecordedProgress()).run(addresses)
    await drop_databases(database)
    with pytest.raises(SchemaIsNewer, match="the archive's upload: schema is newer"):
        await TenantImporter(newer, PASSPHRASE, storage, RecordedProgress()).run(addresses)
    tenants = request.getfixturevalue("newer_program")
    elsewhere = replace(addresses, installers=tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    await TenantImporter(archive, PASSPHRASE, open_storage(elsewhere.installers), RecordedProgress()).run(elsewhere)
    assert await database.client["clients"]["groups"].distinct("colour") == ["red"]
    assert tenants == []
    assert await database["tenants"].distinct("tenant_id") == [TENANT.tenant_id]
