"""Concurrent claims of one file by one version, one of them over the quota: the file is charged or free."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from common.errors import StorageExceeded
from common.mongo import MongoDatabase
from common.tenants import Tenant
from tests.support.factories import make_caller, make_tenant
from tests.support.services.upload import UploadApi, make_removal, serving_uploads
from upload_service.model import Status, Upload
from upload_service.quota.store import MongoQuotaStore
from upload_service.settings import UploadSettings
from upload_service.uploads.claims import Claims
from upload_service.uploads.store import MongoUploadStore

FILE = b"installer " * 100
SIZE = len(FILE)

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
