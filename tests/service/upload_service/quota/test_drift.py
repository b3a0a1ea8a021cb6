"""The ledger of a tenant always agrees with its records, also during requests."""

import asyncio
from uuid import uuid4

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads
from upload_service.quota.reconciliation import expected_ledger
from upload_service.quota.store import MongoQuotaStore
from upload_service.settings import UploadSettings

FILE = b"installer " * 10


async def upload_and_release(api: UploadApi, caller: Caller) -> None:
    """Upload in two chunks and in one request, claim, refuse and release, with an interrupted upload between."""
    file_id, uid, size = uuid4().hex, str(uuid4()), len(FILE)
    await api.chunk(caller, file_id, FILE[:50], 0, size)
    await api.chunk(caller, file_id, FILE[60:], 60, size)
    name = (await api.chunk(caller, file_id, FILE[50:], 50, size)).body["server_filename"]
    await api.chunk(caller, uuid4().hex, FILE[:10], 0, size, end=20)
    stored = (await api.store(caller, ("file", FILE, "setup.exe"))).body["server_filename"]
    await asyncio.gather(api.claim(caller, name, uid), api.claim(caller, name, str(uuid4())))
    await api.post(caller, "discard_installer", server_filename=stored)
    await api.post(caller, "release_installers", version_uids=[uid])


async def test_a_ledger_never_drifts_during_uploads_and_removals(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller = make_uploader(storage_quota=100_000)
    async with serving_uploads(settings) as api:
        store = MongoQuotaStore(database)
        working = [asyncio.create_task(upload_and_release(api, caller)) for _ in range(20)]
        snapshots = []
        while not all(task.done() for task in working):
            snapshots.append(await store.snapshot_read(caller.tenant_id))
        await asyncio.gather(*working)
        drifted = [
            (ledger, expected_ledger(ledger, uploads))
            for ledger, uploads in snapshots
            if expected_ledger(ledger, uploads) != ledger
        ]
    assert len(snapshots) > 1
    assert drifted == []
