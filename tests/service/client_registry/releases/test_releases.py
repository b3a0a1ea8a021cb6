"""Releases of the client program over HTTP (section 4.2)."""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import cast
from urllib.parse import parse_qs, urlsplit

import pytest

from client_registry.releases.service import Releases
from client_registry.releases.store import MongoReleaseStore
from common.auth.downloads import check_download
from common.auth.internal_tokens import Caller
from common.errors import StorageExceeded, Unavailable
from common.service_client.client import ServiceClient, open_service
from tests.support.api import Answer
from tests.support.factories import KEYS, make_caller
from tests.support.services.registry import Registry, serving_registry
from tests.support.services.stand_ins import DIGEST
from tests.support.tables import each
from tests.support.wait import TIMEOUT

FILE = "5b1f0c7de5b14a0f8a3d3f1c2e4b6a79.exe"


@pytest.fixture(autouse=True)
def uploaded_file(registry: Registry) -> None:
    """upload_service has one unclaimed file."""
    registry.uploads.links = {FILE: None}


async def publish(registry: Registry, caller: Caller, version: str, **form: str) -> Answer:
    return await registry.call(caller, "POST", "publish_client", data={"version": version, **form})


async def version(registry: Registry, caller: Caller) -> str:
    latest: str = (await registry.call(caller, "POST", "client_version")).body["Version"]
    return latest


async def unfinished(registry: Registry, caller: Caller) -> int:
    """The number of releases that are neither finished nor abandoned."""
    return await registry.database["releases"].count_documents(
        {"tenant_id": caller.tenant_id, "status": {"$ne": "active"}}
    )


async def sweep(registry: Registry, *, after: timedelta) -> None:
    """Run the periodic sweep at a later time."""
    settings = registry.settings
    async with open_service(settings.upload_service_url, service="upload_service", keys=KEYS) as client:
        store = MongoReleaseStore(registry.database)
        await Releases(store, client, lambda: datetime.now(UTC) + after).sweep()


async def test_the_version_published_last_is_the_latest(registry: Registry) -> None:
    caller = make_caller()

    assert await version(registry, caller) == "0.0.0.0"

    await publish(registry, caller, "3.0.0.0", server_filename=FILE)
    answer = await publish(registry, caller, "2.0.0.0")

    assert (answer.status, answer.audit_target) == (200, {"version": "2.0.0.0"})
    assert answer.body == {"Message": "Client was published successfully!", "version": "2.0.0.0"}
    assert (await registry.call(caller, "POST", "client_version")).body == {"Version": "2.0.0.0"}


async def test_a_version_is_published_once(registry: Registry) -> None:
    caller = make_caller()
    await publish(registry, caller, "1.0.0.0")
    await publish(registry, caller, "2.0.0.0")

    answer = await publish(registry, caller, "1.00.0.0", server_filename=FILE)

    assert (answer.status, answer.body["code"]) == (409, "release_exists")
    assert await version(registry, caller) == "2.0.0.0"
    assert registry.uploads.requests == []


async def test_each_tenant_publishes_its_own_versions(registry: Registry) -> None:
    caller, other = make_caller(), make_caller()
    await publish(registry, caller, "1.0.0.0")

    assert await version(registry, other) == "0.0.0.0"
    assert (await publish(registry, other, "1.0.0.0")).status == 200


@each("text", ["", "1.2.3", "1.2.3.65536", "one", "1.2.3.4.5", "1.2.3.4\0"])
async def test_a_version_has_four_numeric_parts(registry: Registry, text: str) -> None:
    caller = make_caller()

    answer = await publish(registry, caller, text)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert await version(registry, caller) == "0.0.0.0"


async def test_a_file_is_claimed_for_its_release(registry: Registry) -> None:
    caller = make_caller()

    answer = await publish(registry, caller, "1.0.0.0", server_filename=FILE)

    stored = await registry.database["releases"].find_one({"tenant_id": caller.tenant_id})
    await sweep(registry, after=timedelta(days=1))  # A finished release is not swept.
    assert answer.body["sha256"] == DIGEST
    assert await version(registry, caller) == "1.0.0.0"
    assert stored
    assert registry.uploads.requests == [("claim_installer", {"server_filename": FILE, "version_uid": stored["uid"]})]


async def test_the_latest_version_has_the_url_of_its_file(registry: Registry) -> None:
    caller = make_caller(base_url="https://packages.example.com/acme")
    await publish(registry, caller, "1.4.0.2", server_filename=FILE)

    body = (await registry.call(caller, "POST", "client_version")).body

    assert set(body) == {"Version", "INSTALLER_URL", "INSTALLER_SHA256"}
    assert body["INSTALLER_SHA256"] == DIGEST
    address = urlsplit(body["INSTALLER_URL"])
    assert f"{address.scheme}://{address.netloc}" == "https://packages.example.com"
    assert address.path == f"/acme/download/{FILE}/client-1.4.0.2.exe"
    query = parse_qs(address.query)
    check_download(
        KEYS,
        tenant_id=caller.tenant_id,
        server_filename=FILE,
        file_name="client-1.4.0.2.exe",
        expires=query["expires"][0],
        signature=query["signature"][0],
        now=time.time(),
    )


async def test_an_unknown_file_is_not_published(registry: Registry) -> None:
    caller = make_caller()

    answer = await publish(registry, caller, "1.0.0.0", server_filename="unknown.exe")

    assert (answer.status, answer.body["code"]) == (404, "installer_not_found")
    assert await registry.database["releases"].count_documents({"tenant_id": caller.tenant_id}) == 0
    assert (await publish(registry, caller, "1.0.0.0", server_filename=FILE)).status == 200


async def test_a_file_beyond_the_quota_is_not_published(registry: Registry) -> None:
    registry.uploads.refusal = StorageExceeded("The quota is full.")
    caller = make_caller()

    answer = await publish(registry, caller, "1.0.0.0", server_filename=FILE)

    assert (answer.status, answer.body["code"]) == (407, "storage_exceeded")
    assert await version(registry, caller) == "0.0.0.0"


async def test_a_version_can_be_published_again_after_a_failed_claim(registry: Registry) -> None:
    caller = make_caller()
    registry.uploads.refusal = Unavailable("The database does not answer.")

    answer = await publish(registry, caller, "1.0.0.0", server_filename=FILE)
    registry.uploads.refusal = None
    again = await publish(registry, caller, "1.0.0.0", server_filename=FILE)

    assert (answer.status, answer.body["code"]) == (500, "dependency_unavailable")
    assert again.status == 200


async def test_a_possibly_claimed_file_is_released_after_a_minute(registry: Registry) -> None:
    caller = make_caller()
    registry.uploads.refusal = Unavailable("The database does not answer.")
    await publish(registry, caller, "1.0.0.0", server_filename=FILE)
    registry.uploads.refusal = None
    (_, claimed), *_ = registry.uploads.requests

    await sweep(registry, after=timedelta(seconds=30))
    assert await unfinished(registry, caller) == 1

    await sweep(registry, after=timedelta(seconds=90))
    assert await unfinished(registry, caller) == 0
    assert ("release_installers", {"version_uids": [claimed["version_uid"]]}) in registry.uploads.requests


async def test_a_crashed_publication_is_undone_after_a_minute(registry: Registry) -> None:
    caller, store = make_caller(), MongoReleaseStore(registry.database)
    await store.reserve(caller.tenant_id, "u1", "1.0.0.0", datetime.now(UTC))
    assert (await publish(registry, caller, "1.0.0.0")).status == 409
    registry.uploads.refusal = Unavailable("The database does not answer.")
    await sweep(registry, after=timedelta(seconds=90))
    assert await unfinished(registry, caller) == 1

    registry.uploads.refusal = None  # The next sweep tries again.
    await sweep(registry, after=timedelta(seconds=90))

    assert ("release_installers", {"version_uids": ["u1"]}) in registry.uploads.requests
    assert (await publish(registry, caller, "1.0.0.0")).status == 200


async def test_a_release_that_cannot_be_undone_does_not_block_others(registry: Registry) -> None:
    stuck, caller, store = make_caller(), make_caller(), MongoReleaseStore(registry.database)
    for owner in (stuck, caller):
        await store.reserve(owner.tenant_id, "u1", "1.0.0.0", datetime.now(UTC))

    class BrokenUploadService:
        """An upload service with an invalid response for one tenant."""

        async def json(self, caller: Caller, operation: str, _: object) -> None:
            assert operation == "release_installers"
            if caller.tenant_id == stuck.tenant_id:
                raise ValueError

    upload_service = cast("ServiceClient", BrokenUploadService())
    await Releases(store, upload_service, lambda: datetime.now(UTC) + timedelta(seconds=90)).sweep()

    assert (await unfinished(registry, stuck), await unfinished(registry, caller)) == (1, 0)
    await store.remove(stuck.tenant_id, "u1")  # The other sweeps of the module must not find it.


async def test_a_publication_undone_meanwhile_is_reported_as_failed(registry: Registry) -> None:
    caller, store = make_caller(), MongoReleaseStore(registry.database)

    class SlowUploadService:
        """An upload service that responds after more than a minute."""

        async def json(self, caller: Caller, operation: str, body: Mapping[str, str]) -> Mapping[str, object]:
            assert operation == "claim_installer"
            await store.abandon(caller.tenant_id, body["version_uid"])
            return {"size": 7, "sha256": DIGEST}

    with pytest.raises(Unavailable):
        await Releases(store, cast("ServiceClient", SlowUploadService())).publish(caller, "1.0.0.0", FILE)
    assert await version(registry, caller) == "0.0.0.0"


async def test_the_sweep_continues_after_a_failure(
    mongo_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept, third = [0], asyncio.Event()

    async def failing(_: Releases) -> None:
        swept[0] += 1
        if swept[0] == 3:
            third.set()
        raise ValueError("Nobody thought of this.")

    monkeypatch.setattr(Releases, "sweep", failing)
    monkeypatch.setattr("client_registry.app.SWEEP_PAUSE", 0)

    async with serving_registry(mongo_url, redis_url), asyncio.timeout(TIMEOUT):
        await third.wait()
