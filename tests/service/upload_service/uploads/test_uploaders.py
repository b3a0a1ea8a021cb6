"""Uploads belong to the caller who began them, for tokens that may change only some packages."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Caller
from common.auth.roles import Role
from tests.support.api import Answer
from tests.support.services.upload import UploadApi, make_uploader, sha256

FILE = b"installer " * 100
HALF = len(FILE) // 2


def token(user: Caller, name: str, *packages: str) -> Caller:
    """An API token of the user's tenant."""
    return user.as_administrator(f"token:{name}", "", (Role.PUBLISHER,), packages or ("*",))


def refusal(answer: Answer) -> tuple[int, str, str]:
    return answer.status, answer.body["code"], answer.body["params"].get("reason", "")


REFUSED = (403, "permission_missing", "other_upload")


async def test_a_restricted_token_uploads_in_chunks_and_claims(api: UploadApi) -> None:
    pipeline, file_id = token(make_uploader(), "ci", "Acme.*"), uuid4().hex
    await api.chunk(pipeline, file_id, FILE[:HALF], 0, len(FILE))
    assert (await api.state(pipeline, file_id)).body["received"] == HALF
    last = await api.chunk(pipeline, file_id, FILE[HALF:], HALF, len(FILE))
    name = last.body["server_filename"]
    assert (await api.service.call(pipeline, "GET", "inspect_upload", name)).status == 200
    assert (await api.claim(pipeline, name)).body["sha256"] == sha256(FILE)


@pytest.mark.parametrize("begun", [0, HALF, len(FILE)], ids=["nothing", "half", "all"])
async def test_a_restricted_token_cannot_touch_a_transfer_of_others(api: UploadApi, begun: int) -> None:
    user, file_id = make_uploader(), uuid4().hex
    others = [token(user, "other", "Acme.*"), token(user, "all"), user]
    pipeline = token(user, "ci", "Acme.*")
    for owner in others:
        file_id = uuid4().hex
        if begun:
            await api.chunk(owner, file_id, FILE[:begun], 0, len(FILE))
        else:
            await api.cancel(owner, file_id)
        answers = [
            await api.chunk(pipeline, file_id, FILE[HALF:], HALF, len(FILE)),
            await api.chunk(pipeline, file_id, FILE[:10], 0, len(FILE)),
            await api.chunk(pipeline, file_id, FILE[:10], 7, 3),  # not valid: the answer must not tell the state
            await api.cancel(pipeline, file_id),
        ]
        assert [refusal(answer) for answer in answers] == [REFUSED] * 4
        assert "received" not in str([answer.body for answer in answers])
        assert (await api.state(pipeline, file_id)).status in ({403} if begun else {404})
        if begun == HALF:
            assert (await api.chunk(owner, file_id, FILE[HALF:], HALF, len(FILE))).status == 200


async def test_a_restricted_token_cannot_use_a_finished_upload_of_others(api: UploadApi) -> None:
    user = make_uploader()
    pipeline, other = token(user, "ci", "Acme.*"), token(user, "other", "Acme.*")
    name, own = await api.upload(other, FILE), await api.upload(pipeline, FILE)
    answers = [
        await api.claim(pipeline, name),
        await api.post(pipeline, "discard_installer", server_filename=name),
        await api.post(pipeline, "inspect_installer", server_filename=name),
        await api.service.call(pipeline, "GET", "inspect_upload", name),
        await api.service.call(pipeline, "DELETE", "delete_upload", name),
    ]
    assert [refusal(answer) for answer in answers] == [REFUSED] * 5
    listed = await api.post(pipeline, "unclaimed_installers", server_filenames=[name, own])
    assert listed.body["server_filenames"] == [own]
    everything = await api.post(user, "unclaimed_installers", server_filenames=[name, own])
    assert sorted(everything.body["server_filenames"]) == sorted([name, own])
    assert (await api.claim(user, name)).status == 200


async def test_a_token_for_every_package_continues_uploads_of_others(api: UploadApi) -> None:
    user, file_id = make_uploader(), uuid4().hex
    await api.chunk(token(user, "ci", "Acme.*"), file_id, FILE[:HALF], 0, len(FILE))
    last = await api.chunk(token(user, "all"), file_id, FILE[HALF:], HALF, len(FILE))
    assert (await api.claim(user, last.body["server_filename"])).status == 200


async def test_a_file_of_a_one_call_form_belongs_to_its_token(api: UploadApi) -> None:
    user = make_uploader()
    pipeline = token(user, "ci", "Acme.*")
    stored = await api.store(pipeline, ("file", FILE, "setup.exe"))
    name = stored.body["server_filename"]
    assert refusal(await api.claim(token(user, "other", "Acme.*"), name)) == REFUSED
    assert (await api.claim(pipeline, name)).status == 200


async def test_of_two_first_chunks_at_once_only_the_owner_continues(api: UploadApi) -> None:
    user, file_id = make_uploader(), uuid4().hex
    callers = [token(user, name, "Acme.*") for name in ("a", "b", "c", "d")]
    first = await asyncio.gather(*(api.chunk(c, file_id, FILE[:HALF], 0, len(FILE)) for c in callers))
    assert sorted(answer.status for answer in first) == [200, 403, 403, 403]
    second = await asyncio.gather(*(api.chunk(c, file_id, FILE[HALF:], HALF, len(FILE)) for c in callers))
    assert [answer.status for answer in second] == [answer.status for answer in first]


async def test_a_token_of_the_same_name_in_another_tenant_gets_nothing(api: UploadApi) -> None:
    pipeline = token(make_uploader(), "ci", "Acme.*")
    name = await api.upload(pipeline, FILE)
    stranger = replace(pipeline, tenant=make_uploader().tenant)
    assert (await api.claim(stranger, name)).status == 404
