"""upload_service is killed at each step of a scan. Every file gets its verdict, and none is clean by a crash."""

import asyncio
from pathlib import Path

import pytest

from common.mongo import Document
from tests.support.faults.retrying_uploader import RetryingClient
from tests.support.processes.cluster import Cluster
from tests.support.processes.failpoint_control import StepControl, single_replica
from tests.support.servers.clamd import MALWARE, fake_clamd, read_stream, run_clamd
from tests.support.system.publishing import Published, add_package, package_id
from tests.support.system.services import Api
from tests.support.wait import until

pytestmark = pytest.mark.full

QUEUE = "common.work:WorkQueue"
STEPS = (f"{QUEUE}.lease of scan find_one_and_update #1", f"{QUEUE}.finish of scan update_one #1")
FAILED = f"{QUEUE}.retry of scan update_one #1"
LEASE = 31  # seconds, a little more than a lease and the pause after a first failure
GOOD, BAD = b"MZ good" * 1000, b"MZ" + MALWARE


async def record_of(cluster: Cluster, published: Published) -> Document:
    document = await cluster.mongo["upload"]["uploads"].find_one({"version_uid": published.uid})
    assert document is not None
    return document


async def wait_for_verdict(cluster: Cluster, api: Api, steps: StepControl, published: Published) -> str:
    """The verdict after the replica has died and its lease has expired."""

    async def has_died() -> bool:
        return steps.died

    async def has_verdict() -> bool:
        record = await record_of(cluster, published)
        return not record.get("work", {}).get("scan") and record["scan"]["state"] != "failed"

    await until(has_died)
    await cluster.age_tenant(api.tenant_id, LEASE)
    await until(has_verdict)
    await cluster.ready()
    return str((await record_of(cluster, published))["scan"]["state"])


async def publish(api: Api, content: bytes) -> Published:
    name = package_id()
    await add_package(api, name)
    return await RetryingClient(api).publish(name, "1", content)


async def test_every_file_gets_its_verdict_after_a_kill_at_any_step(cluster: Cluster, tmp_path: Path) -> None:
    async with (
        run_clamd(tmp_path) as clamd,
        single_replica(cluster, "upload_service", SCANNER_URL=clamd.tcp) as steps,
    ):
        for step in STEPS:
            for content, state in ((GOOD, "clean"), (BAD, "infected")):
                api = await cluster.services.tenant()
                steps.die_after(step)
                published = await publish(api, content)
                assert await wait_for_verdict(cluster, api, steps, published) == state, step
                version = await api.call("GET", "get_specific_package_version", published.uid)
                async with api.session.get(version.body["INSTALLER_URL"]) as answer:
                    assert answer.status == (200 if state == "clean" else 404), step


async def test_a_failed_scan_is_repeated_after_a_kill(cluster: Cluster) -> None:
    answers = [b"stream: Can't allocate memory ERROR\0"]

    async def fail_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_stream(reader)
        writer.write(answers.pop() if answers else b"stream: OK\0")

    async with (
        fake_clamd(fail_once) as url,
        single_replica(cluster, "upload_service", SCANNER_URL=url) as steps,
    ):
        api = await cluster.services.tenant()
        steps.die_after(FAILED)
        published = await publish(api, GOOD)
        assert await wait_for_verdict(cluster, api, steps, published) == "clean"
    assert answers == []
