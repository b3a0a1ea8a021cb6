"""A backup that was made during work brings back everything that was acknowledged before it."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from tests.system.backup import Backup
from tests.system.fleet import Fleet
from tests.system.invariants import missing, violations
from tests.system.publishers import at_rest, at_work
from tests.system.services import Api
from tests.system.stories import Published, send_chunk
from tests.system.uploader import Client

LATER = ("no record knows the file", "is the file of a transfer that is over")  # came after the records were read


async def test_a_backup_made_during_work_restores_what_was_acknowledged_before_it(
    running_fleet: Fleet, tmp_path: Path
) -> None:
    api, content = await running_fleet.services.tenant(), os.urandom(2000)
    assert (await send_chunk(api, "halfway", content, 0, 1000)).status == 200
    backup = Backup(tmp_path)
    async with at_work(api) as work:
        await work.more()
        kept, *deleted = work.published
        await backup.copy_files(running_fleet)
        await asyncio.gather(work.more(), _delete(api, deleted[::2]))
        await backup.read_records(running_fleet)
        await asyncio.gather(work.more(), _delete(api, deleted[1::2]))
        await backup.copy_files(running_fleet)
    await backup.restore(running_fleet)
    assert await missing(api, [kept, *deleted[1::2]]) == []
    client = Client(api)
    await client.upload(content, chunk=1000, file_id="halfway")
    await client.publish(work.package_id, "2.0", os.urandom(100))
    await running_fleet.age(api.tenant_id, 61)
    await at_rest(running_fleet, api.tenant_id)
    wrong = await violations(running_fleet, [api.tenant_id])
    assert [sentence for sentence in wrong if not any(later in sentence for later in LATER)] == []


async def _delete(api: Api, versions: Sequence[Published]) -> None:
    for version in versions:
        gone = {"versions_uids": version.uid}
        answer = await api.call("DELETE", "delete_package_version", version.package_id, data=gone)
        assert answer.status == 200, answer.body
