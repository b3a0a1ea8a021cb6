"""Download counts: whole files count each time, ranges with the end once for each client, version and hour."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from tests.support.services.replicas import Replicas
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads, sha256
from tests.support.tables import each
from tests.support.wait import until
from upload_service.settings import UploadSettings

FILE = bytes(range(256)) * 20
HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
COUNTED = [{}, {"Range": "bytes=0-"}, {"Range": "bytes=5000-"}, {"Range": "bytes=-1"}, {"Range": "bytes=9-3"}]
NOT_COUNTED = [
    {"method": "HEAD"},
    {"Range": "bytes=0-99"},
    {"Range": "bytes=0-5118"},
    {"Range": "bytes=5120-"},
    {"Range": "bytes=5000-", "method": "HEAD"},
    {"If_None_Match": f'"{sha256(FILE)}"'},
    {"If_Match": '"other"'},
]


def at_address(caller: Caller, ip: str) -> Caller:
    return replace(caller, ip=ip)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("upload_service.app.COUNTING_PAUSE", 0.05)
        yield


@pytest.fixture(autouse=True)
def same_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no test see two hours."""
    monkeypatch.setattr("upload_service.downloads.service.current_hour", lambda: HOUR)


async def publish(api: UploadApi) -> tuple[Caller, str, str]:
    """Upload a file for a version of a new tenant; returns the caller, the version's uid and the download address."""
    caller, uid = make_uploader(), str(uuid4())
    name = await api.upload(caller, FILE)
    await api.claim(caller, name, uid)
    return caller, uid, api.address(caller, name)


async def download(api: UploadApi, caller: Caller, address: str, start: int = 1) -> None:
    """Download a file from this byte on as a caller that the gateway has identified."""
    segments = address.partition("?")[0].rsplit("/", 2)[1:]
    query = dict(part.split("=") for part in address.partition("?")[2].split("&"))
    part = {"Range": f"bytes={start}-"}
    answer = await api.service.call(caller, "GET", "download", *segments, params=query, headers=part)
    assert (answer.status, answer.body) == (206, FILE[start:])


async def counts(api: UploadApi, caller: Caller, days: int = 2) -> dict[str, int]:
    """The downloads of the versions of a tenant; two days, because the test may begin before midnight."""
    answer = await api.post(caller, "download_counts", days=days, version_uids=[])
    assert answer.status == 200, answer.body
    return {uid: sum(numbers.values()) for uid, numbers in answer.body["versions"].items()}


async def until_counted(api: UploadApi, caller: Caller, expected: dict[str, int]) -> None:
    """Wait for the last downloads of a test. They are written in their order."""

    async def is_counted() -> bool:
        return sum((await counts(api, caller)).values()) >= sum(expected.values())

    await until(is_counted)
    assert await counts(api, caller) == expected


@each("request_options", COUNTED)
async def test_a_response_with_the_last_byte_counts(api: UploadApi, request_options: dict[str, str]) -> None:
    caller, uid, address = await publish(api)
    assert (await api.get(address, **request_options)).status in {200, 206}
    await until_counted(api, caller, {uid: 1})


@each("request_options", NOT_COUNTED)
async def test_a_response_without_the_last_byte_does_not_count(api: UploadApi, request_options: dict[str, str]) -> None:
    caller, uid, address = await publish(api)
    await api.get(address, **request_options)
    await download(api, at_address(caller, "192.0.2.1"), address)
    await until_counted(api, caller, {uid: 1})


async def test_machines_behind_one_address_count_each(api: UploadApi) -> None:
    caller, uid, address = await publish(api)
    for start in (0, 0, 1, 1):
        await download(api, at_address(caller, "192.0.2.1"), address, start)
    assert (await api.get(address)).body == FILE
    assert (await api.get(address)).body == FILE
    await until_counted(api, caller, {uid: 5})


async def test_a_client_counts_once_within_an_hour(api: UploadApi, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, uid, address = await publish(api)
    for ip in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        await download(api, at_address(caller, ip), address)
    await until_counted(api, caller, {uid: 2})
    monkeypatch.setattr("upload_service.downloads.service.current_hour", lambda: HOUR - timedelta(hours=1))
    await download(api, at_address(caller, "192.0.2.1"), address)
    await until_counted(api, caller, {uid: 3})


async def test_a_client_counts_once_for_two_replicas(replicas: Replicas) -> None:
    caller, uid, address = await publish(replicas.first)
    for ip in ("192.0.2.1", "192.0.2.2"):
        for replica in (replicas.first, replicas.second):
            await download(replica, at_address(caller, ip), address)
    await download(replicas.first, at_address(caller, "192.0.2.3"), address)
    await download(replicas.second, at_address(caller, "192.0.2.4"), address)
    await until_counted(replicas.first, caller, {uid: 4})


async def test_counts_before_the_days_are_left_out(api: UploadApi, monkeypatch: pytest.MonkeyPatch) -> None:
    caller, uid, address = await publish(api)
    monkeypatch.setattr("upload_service.downloads.service.current_hour", lambda: HOUR - timedelta(days=365))
    await download(api, caller, address)

    async def is_counted() -> bool:
        return await counts(api, caller, days=400) == {uid: 1}

    await until(is_counted)
    assert await counts(api, caller, days=300) == {}


async def test_counts_and_totals_are_of_the_tenant_and_its_versions(api: UploadApi) -> None:
    caller, uid, address = await publish(api)
    for ip in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        await download(api, at_address(caller, ip), address)
    await until_counted(api, caller, {uid: 2})
    totals = {"days": {HOUR.date().isoformat(): 2}, "versions": {uid: 2}}
    assert (await api.post(caller, "download_totals", days=2)).body == totals
    assert (await api.metrics()).value("pkgrepo_downloads_total", tenant_id=caller.tenant_id) == 2
    other = make_uploader()
    assert await counts(api, other) == {}
    assert (await api.post(other, "download_totals", days=2)).body == {"days": {}, "versions": {}}
    await api.post(caller, "release_installers", version_uids=[uid])
    assert await counts(api, caller) == {}


@each("days", [0, 401, -1, "30", None])
async def test_invalid_numbers_of_days_are_refused(api: UploadApi, days: object) -> None:
    answer = await api.post(make_uploader(), "download_counts", days=days, version_uids=[])
    assert (answer.status, "days" in answer.body["detail"]) == (400, True)


async def test_a_service_that_stops_writes_its_last_counts(
    settings: UploadSettings, database: MongoDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upload_service.app.COUNTING_PAUSE", 3600)
    async with serving_uploads(settings) as api:
        caller, uid, address = await publish(api)
        await download(api, caller, address)
    row = await database["download_counts"].find_one({"tenant_id": caller.tenant_id})
    assert row is not None
    assert (row["version_uid"], row["count"]) == (uid, 1)


async def test_nothing_is_counted_if_counting_is_off(settings: UploadSettings, database: MongoDatabase) -> None:
    async with serving_uploads(settings.model_copy(update={"download_counts": False})) as api:
        caller, _, address = await publish(api)
        await download(api, caller, address)
    assert await database["download_marks"].count_documents({}) == 0


async def test_counts_say_since_when_they_are_complete(settings: UploadSettings, database: MongoDatabase) -> None:
    async def since(*, is_on: bool) -> str | None:
        async with serving_uploads(settings.model_copy(update={"download_counts": is_on})) as api:

            async def day() -> str | None:
                answer = await api.post(make_uploader(), "download_counts", days=2, version_uids=[])
                since: str | None = answer.body["since"]
                return since

            async def is_recorded() -> bool:
                is_stored = await database["download_counting"].count_documents({}) == 1
                return is_stored is is_on and (await day() is not None) is is_on

            await until(is_recorded)
            return await day()

    today = await since(is_on=True)
    await database["download_counting"].update_many({}, {"$set": {"since": HOUR - timedelta(days=9)}})
    earlier = await since(is_on=True)
    assert (today is not None, earlier) == (True, (HOUR - timedelta(days=9)).date().isoformat())
    assert await since(is_on=False) is None
    # After a pause, counts are complete from the new start on.
    assert (await since(is_on=True) or "") > (earlier or "")
