"""Installers, the versions that claim them, and the quota; concurrent claims of one file over the quota."""

import asyncio
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.services.upload import UploadApi, make_uploader, sha256
from tests.support.tables import each
from upload_service.model import Upload
from upload_service.quota.store import MongoQuotaStore

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


async def delete(api: UploadApi, caller: Caller, name: str) -> Answer:
    return await api.service.call(caller, "DELETE", "delete_upload", name)


async def test_only_a_file_without_a_version_is_deleted(api: UploadApi) -> None:
    caller = make_uploader()
    linked, free, foreign = await claimed(api, caller), await api.upload(caller, FILE), make_uploader()
    assert (await delete(api, caller, free)).status == 200
    assert problem(await delete(api, caller, linked)) == (409, "installer_in_use")
    for name in (free, await api.upload(foreign, FILE), "0" * 32, "$gt"):
        assert problem(await delete(api, caller, name)) == NOT_FOUND, name
    assert (await api.usage(caller), api.files(caller)) == ((SIZE, 0), [linked])
    assert await api.usage(foreign) == (0, SIZE)


@pytest.mark.parametrize("number", range(5))
async def test_a_deletion_and_a_claim_at_once_have_one_winner(api: UploadApi, number: int) -> None:
    caller = make_uploader()
    name = await api.upload(caller, FILE)
    deletion, claim = await asyncio.gather(delete(api, caller, name), api.claim(caller, name))
    assert (deletion.status, claim.status) in {(200, 404), (409, 200)}
    assert await api.usage(caller) == ((SIZE, 0) if claim.status == 200 else (0, 0))
    assert api.files(caller) == ([name] if claim.status == 200 else [])


async def test_concurrent_deletions_free_the_storage_once(api: UploadApi) -> None:
    caller = make_uploader()
    await claimed(api, caller)
    name = await api.upload(caller, FILE)
    answers = await asyncio.gather(*(delete(api, caller, name) for _ in range(10)))
    assert {answer.status for answer in answers} <= {200, 404}
    assert await api.usage(caller) == (SIZE, 0)


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


@pytest.mark.parametrize("order", ["later", "earlier"])
async def test_a_refused_claim_leaves_the_link_to_a_claim_within_the_quota(
    api: UploadApi, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    roomy = make_uploader(storage_quota=SIZE)
    full = make_uploader(tenant_id=roomy.tenant_id, storage_quota=SIZE - 1)
    name, charge, refusals = await api.upload(roomy, FILE), MongoQuotaStore.charge, list[Answer]()

    async def interrupted(store: MongoQuotaStore, upload: Upload, quota: int | None) -> bool:
        is_refused = quota == SIZE - 1
        if not is_refused and order == "earlier" and not refusals:
            refusals.append(await api.claim(full, name))
        charged = await charge(store, upload, quota)
        if is_refused and order == "later":  # before the refused claim gives the link back
            assert (await api.claim(roomy, name)).status == 200
        elif is_refused:
            await charge(store, upload, None)
        return charged

    monkeypatch.setattr(MongoQuotaStore, "charge", interrupted)
    if order == "later":
        refusals.append(await api.claim(full, name))
    else:
        assert (await api.claim(roomy, name)).status == 200
    assert [problem(refusal) for refusal in refusals] == [EXCEEDED]
    assert await api.usage(roomy) == (SIZE, 0)
    assert [(await api.claim(roomy, name, uid)).status for uid in ("v2", "v1")] == [404, 200]
