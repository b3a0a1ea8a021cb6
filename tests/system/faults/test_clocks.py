"""Replicas with wrong clocks (F15): sessions end by Redis's clock, leases by MongoDB's."""

import os
import sys
import time
from dataclasses import replace
from unittest.mock import patch
from uuid import uuid4

import pytest

from common.auth.sessions import Sessions
from common.redis import open_redis
from tests.support.factories import KEYS, make_caller
from tests.support.processes.cluster import Cluster
from tests.support.processes.replica import Replica
from tests.support.processes.replica_client import SERVICE, SkewedClockApi, connect_to_replica
from tests.support.samples.stalled_chunk import StalledChunk
from tests.support.system.services import bearer
from tests.support.wait import until

LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"  # The loader knows what $LIB is here.
TWO_HOURS = 7200  # seconds
CHUNK = 3 << 20  # bytes; half of it is more than one write
BOTH_WAYS = pytest.mark.parametrize("ahead", [TWO_HOURS, -TWO_HOURS], ids=["ahead", "behind"])

pytestmark = pytest.mark.full


async def _skewed(cluster: Cluster, service: str, ahead: int, **environment: str) -> Replica:
    """Start a replica with a clock `ahead` seconds fast. Its timers run normally."""
    # The command `faketime` would be the parent of the process.
    skew = {"LD_PRELOAD": LIBRARY, "FAKETIME": f"{ahead:+d}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    command = (sys.executable, "-m", "tests.support.processes.failpoints", service)
    return await cluster.add(service, environment={**environment, **skew}, command=command, receives_connections=False)


@BOTH_WAYS
async def test_a_replica_with_a_wrong_clock_acquires_no_lease_early(cluster: Cluster, ahead: int) -> None:
    patches = '{"upload_service.uploads.service:LEASE_TIMEOUT": 0.5, "upload_service.app:COLLECTION_PAUSE": 0.1}'
    odd = await _skewed(cluster, "upload_service", ahead, PATCHES=patches)
    right, caller, file_id = cluster.replicas["upload_service"][0], make_caller(), uuid4().hex
    content = os.urandom(CHUNK)
    async with connect_to_replica(cluster, right) as holder, connect_to_replica(cluster, odd) as way:
        rival = replace(way, service=SkewedClockApi(way.service.session, way.service.address, SERVICE, ahead))
        held = StalledChunk(holder, caller, file_id, content, 0, len(content))

        async def taken() -> bool:
            record = await cluster.mongo["upload"]["uploads"].find_one({"tenant_id": caller.tenant_id})
            return record is not None and record["fence"] == 1

        await until(taken)
        answer = await rival.chunk(caller, file_id, content, 0, len(content))
        assert (answer.status, answer.body["code"]) == (500, "dependency_unavailable"), answer.body
        record = await cluster.mongo["upload"]["uploads"].find_one({"tenant_id": caller.tenant_id})
        assert record is not None
        assert record["fence"] == 1
        assert (await held.resume()).status == 200
        # The collector with the wrong clock has run meanwhile, and found nothing old.
        again = await rival.chunk(caller, file_id, content, 0, len(content))
        assert (again.status, again.body["complete"]) == (200, True), again.body
    await cluster.remove(odd)


@BOTH_WAYS
async def test_a_wrong_clock_does_not_revive_an_ended_session(cluster: Cluster, ahead: int) -> None:
    """The gateway and auth_service share a clock, so their tokens are valid."""
    fellow = await _skewed(cluster, "auth_service", ahead)
    odd = await _skewed(cluster, "gateway", ahead, AUTH_SERVICE_URL=fellow.address)
    api = await cluster.services.tenant()
    async with open_redis(cluster.stores.redis_url) as redis:
        sessions = Sessions(redis, keys=KEYS, lifetime=3600, idle=3600)
        with patch("common.auth.sessions.time.time", return_value=time.time() + ahead - 60):
            token = await sessions.open(api.tenant_id, "admin")
        skewed = replace(api, base_url=f"http://{odd.address}/{api.tenant_id}", headers=bearer(token))
        # The token is a minute old by the gateway's clock.
        assert (await skewed.call("GET", "test")).status == 200
        async for key in redis.scan_iter(match=f"session:{{{api.tenant_id}:*"):
            await redis.expire(key, 0)  # The session has ended by Redis's clock.
        assert (await skewed.call("GET", "test")).status == 401
    await cluster.remove(odd)
    await cluster.remove(fellow)
