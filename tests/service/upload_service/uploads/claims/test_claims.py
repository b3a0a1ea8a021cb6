"""Installers, the versions that claim them, and the quota; concurrent claims of one file over the quota."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Caller
from common.errors import StorageExceeded
from common.mongo import MongoDatabase
from common.tenants import Tenant
from tests.support.api import Answer
from tests.support.factories import make_caller, make_tenant
from tests.support.services.upload import UploadApi, make_removal, make_uploader, serving_uploads, sha256
from tests.support.tables import each
from upload_service.model import Status, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.settings import UploadSettings
from upload_service.uploads.claims import Claims
from upload_service.uploads.store import MongoUploadStore

FILE = b"installer " * 100
SIZE = len(FILE)
NOT_FOUND = (404, "installer_not_found")
EXCEEDED = (407, "storage_exceeded")


async def claimed(api: UploadApi, caller: Caller, version_uid: str = "v1") -> str:
    """The server filename of a file that this version claimed."""
    name = await api.upload(caller, FILE)
    assert (await api.claim(caller, name, version_uid)).status == 200
    return name


def problem(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.body["code"]


async def release(api: UploadApi, caller: Caller, *uids: str) -> None:
    answer = await api.post(caller, "release_installers", version_uids=uids)
    assert (answer.status, answer.body) == (200, {})


async def test_a_claim_links_a_file_to_one_version_and_charges_the_quota(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, FILE)
    assert await api.usage(caller) == (0, SIZE)
    for _ in range(2):
        answer = await api.claim(caller, name)
        assert (answer.status, answer.body) == (200, {"size": SIZE, "sha256": sha256(FILE), "is_withheld": False})
        assert await api.usage(caller) == (SIZE, 0)
    assert problem(await api.claim(caller, name, "v2")) == NOT_FOUND


async def test_one_of_many_concurrent_claims_wins(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, FILE)
    answers = await asyncio.gather(*(api.claim(caller, name, f"v{number}") for number in range(20)))
    assert sorted(answer.status for answer in answers) == [200] + [404] * 19
    assert await api.usage(caller) == (SIZE, 0)


async def test_only_a_complete_file_of_the_tenant_can_be_claimed(api: UploadApi) -> None:
    caller, foreign = make_uploader(), await api.upload(make_uploader(), FILE)
    await api.chunk(caller, "f", FILE[:10], 0, SIZE)
    for name in (foreign, "upload_f.part", "../../x", "0" * 32, "0" * 32 + ".exe", "a\0b", "$gt", "\u202e"):
        assert problem(await api.claim(caller, name)) == NOT_FOUND, name


@each(
    "body",
    [
        b"",
        b"[]",
        b"no json",
        b"\xff",
        b"{}",
        b'{"server_filename": {"$gt": ""}, "version_uid": "v"}',
        b'{"server_filename": "x", "version_uid": 1}',
    ],
)
async def test_a_body_of_another_shape_is_refused(api: UploadApi, body: bytes) -> None:
    assert (await api.service.call(make_uploader(), "POST", "claim_installer", data=body)).status == 400


async def test_releasing_versions_removes_their_files_and_frees_storage(api: UploadApi) -> None:
    caller, other = make_uploader(), make_uploader()
    await claimed(api, caller, "v1")
    remaining, of_another_tenant = await claimed(api, caller, "v2"), await claimed(api, other, "v1")
    for _ in range(2):
        await release(api, caller, "v1", "unknown")
        assert (await api.usage(caller), api.files(caller)) == ((SIZE, 0), [remaining])
    assert api.files(other) == [of_another_tenant]


async def test_concurrent_releases_free_the_storage_once(api: UploadApi) -> None:
    caller, uids = make_uploader(), [f"v{number}" for number in range(5)]
    for uid in ("kept", *uids):
        await claimed(api, caller, uid)
    await asyncio.gather(*(release(api, caller, *uids) for _ in range(10)))
    assert await api.usage(caller) == (SIZE, 0)


async def test_a_released_file_is_unknown_and_its_file_id_free(api: UploadApi) -> None:
    caller = make_uploader()
    name = (await api.chunk(caller, "f", FILE, 0, SIZE)).body["server_filename"]
    await api.claim(caller, name)
    await release(api, caller, "v1")
    assert (await api.claim(caller, name)).status == 404
    assert (await api.state(caller, "f")).status == 404
    assert (await api.chunk(caller, "f", FILE, 0, SIZE)).body["server_filename"] != name


async def test_only_unclaimed_files_are_listed_and_discarded(api: UploadApi) -> None:
    caller = make_uploader()
    linked, discarded, free = await claimed(api, caller), await api.upload(caller, FILE), await api.upload(caller, FILE)
    for name in (linked, discarded, discarded, "../../x"):
        answer = await api.post(caller, "discard_installer", server_filename=name)
        assert (answer.status, answer.body) == (200, {})
    assert (await api.usage(caller), api.files(caller)) == ((SIZE, SIZE), sorted([linked, free]))
    foreign = await api.upload(make_uploader(), FILE)
    names = [linked, discarded, free, foreign, "$gt"]
    answer = await api.post(caller, "unclaimed_installers", server_filenames=names)
    assert (answer.status, answer.body) == (200, {"server_filenames": [free]})


async def test_a_file_that_cannot_fit_is_refused_with_its_first_chunk(api: UploadApi) -> None:
    caller = make_uploader(storage_quota=SIZE - 1)
    assert problem(await api.chunk(caller, "f", FILE[:10], 0, SIZE)) == EXCEEDED
    assert (api.files(caller), await api.usage(caller)) == ([], (0, 0))
    assert (await api.state(caller, "f")).status == 404


async def test_used_and_reserved_bytes_count_towards_the_quota_of_their_tenant(api: UploadApi) -> None:
    caller = make_uploader(storage_quota=2 * SIZE)
    await claimed(api, caller)
    for start in range(0, SIZE, 500):
        for _ in range(2):
            assert (await api.chunk(caller, "f", FILE[start : start + 500], start, SIZE)).status == 200
            assert await api.usage(caller) == (SIZE, SIZE)
            assert (await api.chunk(caller, "g", b"x", 0, 1)).status == 407
    assert await api.usage(make_uploader()) == (0, 0)


async def test_concurrent_first_chunks_never_exceed_the_quota(api: UploadApi) -> None:
    caller = make_uploader(storage_quota=5 * SIZE)
    answers = await asyncio.gather(*(api.chunk(caller, uuid4().hex, FILE, 0, SIZE) for _ in range(30)))
    assert sorted(answer.status for answer in answers) == [200] * 5 + [407] * 25
    assert await api.usage(caller) == (0, 5 * SIZE)
    assert len(api.files(caller)) == 5


async def test_a_claim_past_a_lowered_quota_is_refused_and_can_be_made_again(api: UploadApi) -> None:
    caller = make_uploader(storage_quota=SIZE)
    name = await api.upload(caller, FILE)
    lowered = make_uploader(tenant_id=caller.tenant_id, storage_quota=SIZE - 1)
    assert problem(await api.claim(lowered, name)) == EXCEEDED
    assert await api.usage(caller) == (0, SIZE)
    assert (await api.claim(caller, name, "v2")).status == 200
    assert await api.usage(caller) == (SIZE, 0)


Step = Callable[[], Awaitable[object]]


class InterruptingQuota(MongoQuotaStore):
    """A quota that runs a step `before` or `after` a claim is charged."""

    before: Step | None = None
    after: Step | None = None

    async def charge(self, upload: Upload, quota: int | None) -> bool:
        if self.before:
            await self.before()
        charged = await super().charge(upload, quota)
        if self.after:
            await self.after()
        return charged


@dataclass(frozen=True)
class Setup:
    """A service with a file, and two claims of it: one within the quota, one over it."""

    api: UploadApi
    store: MongoUploadStore
    roomy: Tenant
    full: Tenant
    server_filename: str
    for_roomy: tuple[Claims, InterruptingQuota]
    for_full: tuple[Claims, InterruptingQuota]

    async def claim(self) -> Upload:
        return await self.for_roomy[0].claim(make_caller(self.roomy), self.server_filename, "v1")

    async def expect_refused_claim(self) -> None:
        with pytest.raises(StorageExceeded):
            await self.for_full[0].claim(make_caller(self.full), self.server_filename, "v1")

    async def expect_charged(self) -> None:
        upload = await self.store.find_installer(self.roomy.tenant_id, self.server_filename)
        assert upload is not None
        assert (upload.status, upload.version_uid) == (Status.LINKED, "v1")
        assert await self.api.usage(make_caller(self.roomy)) == (SIZE, 0)


@pytest.fixture
async def setup(settings: UploadSettings, database: MongoDatabase) -> AsyncIterator[Setup]:
    async with serving_uploads(settings) as api:
        roomy = make_tenant()
        full = make_tenant(tenant_id=roomy.tenant_id, storage_quota=SIZE - 1)
        store = MongoUploadStore(database)
        quotas = InterruptingQuota(database), InterruptingQuota(database)
        name = await api.upload(make_caller(roomy), FILE)
        first, second = (
            (Claims(store, quota, make_removal(store, quota, settings.installers)), quota) for quota in quotas
        )
        yield Setup(api, store, roomy, full, name, first, second)


async def test_a_claim_over_the_quota_leaves_the_link_to_a_later_claim(setup: Setup) -> None:
    setup.for_full[1].after = setup.claim
    await setup.expect_refused_claim()
    await setup.expect_charged()


async def test_a_claim_over_the_quota_leaves_the_link_to_an_earlier_claim(setup: Setup) -> None:
    async def charge_meanwhile() -> None:
        setup.for_full[1].after = charge_directly
        await setup.expect_refused_claim()

    async def charge_directly() -> None:
        upload = await setup.store.find_installer(setup.roomy.tenant_id, setup.server_filename)
        assert upload is not None
        await MongoQuotaStore.charge(setup.for_roomy[1], upload, None)

    setup.for_roomy[1].before = charge_meanwhile
    await setup.claim()
    await setup.expect_charged()


async def test_claims_over_the_quota_leave_the_file_free(setup: Setup) -> None:
    await setup.expect_refused_claim()
    await setup.expect_refused_claim()
    upload = await setup.store.find_installer(setup.roomy.tenant_id, setup.server_filename)
    assert upload is not None
    assert (upload.status, upload.version_uid) == (Status.COMPLETE, "")
