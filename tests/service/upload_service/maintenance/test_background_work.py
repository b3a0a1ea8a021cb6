"""Every replica maintains the stored files from its start."""

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from common.mongo import MongoDatabase
from tests.support.services.upload import make_uploader, serving_uploads, settings_for
from tests.support.wait import until
from upload_service.model import Damage
from upload_service.settings import UploadSettings

FILE = b"installer " * 100
MONTH = timedelta(days=30)


async def test_a_starting_replica_finds_damage_orphans_and_drift(
    mongo_url: str, tmp_path: Path, database: MongoDatabase
) -> None:
    settings = settings_for(mongo_url, tmp_path, database=database.name, scrub_interval=0)
    caller = make_uploader()
    async with serving_uploads(settings) as api:
        name = await api.upload(caller, FILE)
        long_ago = datetime.now(UTC) - MONTH
        await database["uploads"].update_one({"tenant_id": caller.tenant_id}, {"$set": {"work.scrub.due": long_ago}})

        async def marked() -> bool:
            return (tmp_path / ".storage" / "id").exists()

        await until(marked)
    path, orphan = tmp_path / caller.tenant_id / name, tmp_path / caller.tenant_id / f"{uuid4().hex}.msi"
    path.write_bytes(FILE[:-1] + b"!")
    orphan.write_bytes(FILE)
    os.utime(orphan, (time.time() - MONTH.total_seconds(),) * 2)

    uploads, quotas = database["uploads"], database["quotas"]
    await quotas.update_one({"tenant_id": caller.tenant_id}, {"$set": {"used": 7, "compared_at": long_ago}})
    with capture_logs() as logs:
        async with serving_uploads(settings.model_copy(update={"scrub_interval": 24 * 3600})):

            async def all_reported() -> bool:
                return {"installer_damaged", "orphan_removed", "quota_drift"} <= {entry["event"] for entry in logs}

            await until(all_reported)
    record = await uploads.find_one({"tenant_id": caller.tenant_id})
    assert record is not None
    assert record["damage"] == Damage.ALTERED
    assert not orphan.exists()
    (drift,) = [entry for entry in logs if entry["event"] == "quota_drift"]
    assert (drift["used"], drift["used_by_records"], drift["log_level"]) == (7, 0, "error")


@pytest.mark.parametrize(("interval", "has_scrub"), [(0, False), (1, True)])
async def test_a_scrub_interval_of_0_disables_the_scrub(
    settings: UploadSettings, monkeypatch: pytest.MonkeyPatch, interval: int, has_scrub: bool
) -> None:
    started = []

    @asynccontextmanager
    async def start(name: str, *_: Any, **__: Any) -> AsyncIterator[None]:
        started.append(name)
        yield

    for module in ("upload_service.app", "common.work"):
        monkeypatch.setattr(f"{module}.repeating", start)
    async with serving_uploads(settings.model_copy(update={"scrub_interval": interval})):
        assert ("scrub" in started) is has_scrub
        assert {"orphans", "reconciliation"} <= set(started)
