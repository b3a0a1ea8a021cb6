"""A withheld or infected installer is not opened, also at an address that was given out before."""

from typing import Any

from common.auth.internal_tokens import Caller
from common.mongo import MongoDatabase
from tests.support.services.upload import UploadApi, make_uploader, serving_uploads
from tests.support.tables import each
from upload_service.settings import UploadSettings

REQUESTS: list[dict[str, str]] = [
    {},
    {"method": "HEAD"},
    {"Range": "bytes=0-0"},
    {"Range": "bytes=999-"},
    {"If_None_Match": "*"},
]


async def linked(api: UploadApi, caller: Caller, uid: str = "v1") -> str:
    """The address of the file of a version."""
    name = await api.upload(caller, b"MZ file")
    await api.claim(caller, name, uid)
    return api.address(caller, name)


async def withhold(api: UploadApi, caller: Caller, fence: int, *, withheld: bool = True, uid: str = "v1") -> None:
    change = {"uid": uid, "withheld": withheld, "fence": fence}
    answer = await api.post(caller, "withhold_installers", versions=[change])
    assert (answer.status, answer.body) == (200, {})


async def infect(database: MongoDatabase, caller: Caller) -> None:
    await database["uploads"].update_many({"tenant_id": caller.tenant_id}, {"$set": {"scan": {"state": "infected"}}})


async def statuses(api: UploadApi, address: str) -> set[tuple[int, Any]]:
    answers = [await api.get(address, **request) for request in REQUESTS]
    return {(answer.status, answer.body["code"] if answer.body else None) for answer in answers}


async def test_a_withheld_file_is_refused_until_it_is_released(api: UploadApi) -> None:
    caller = make_uploader()
    address = await linked(api, caller)
    assert (await api.get(address)).status == 200
    await withhold(api, caller, 1)
    assert await statuses(api, address) == {(404, "installer_withheld"), (404, None)}
    await withhold(api, caller, 2, withheld=False)
    assert (await api.get(address)).status == 200


async def test_a_claim_withholds_a_file_at_once_but_not_again(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, b"MZ file")
    claim = {"server_filename": name, "version_uid": "v1", "withheld": True}
    assert (await api.post(caller, "claim_installer", **claim)).body["is_withheld"]
    assert await statuses(api, api.address(caller, name)) == {(404, "installer_withheld"), (404, None)}
    await withhold(api, caller, 1, withheld=False)
    assert (await api.post(caller, "claim_installer", **claim)).status == 200
    assert (await api.get(api.address(caller, name))).status == 200


async def test_an_infected_file_can_be_claimed_and_is_not_opened(
    settings: UploadSettings, database: MongoDatabase
) -> None:
    caller = make_uploader()
    async with serving_uploads(settings) as api:
        name = await api.upload(caller, b"MZ file")
        await infect(database, caller)
        assert (await api.claim(caller, name)).status == 200
        assert await statuses(api, api.address(caller, name)) == {(404, "installer_infected"), (404, None)}


async def test_an_earlier_state_has_no_effect_after_a_later_one(api: UploadApi) -> None:
    caller = make_uploader()
    address = await linked(api, caller)
    await withhold(api, caller, 7)
    await withhold(api, caller, 7, withheld=False)
    await withhold(api, caller, 6, withheld=False)
    assert (await api.get(address)).status == 404
    await withhold(api, caller, 7)
    assert (await api.get(address)).status == 404


async def test_only_the_named_versions_of_the_tenant_are_withheld(api: UploadApi) -> None:
    one, other = make_uploader(), make_uploader()
    addresses = [await linked(api, one, "v2"), await linked(api, other, "v1")]
    await withhold(api, one, 1)
    assert [(await api.get(address)).status for address in addresses] == [200, 200]


@each(
    "body",
    [
        {},
        {"versions": {}},
        {"versions": ["v1"]},
        {"versions": [{"uid": "v1", "withheld": True}]},
        {"versions": [{"uid": "v1", "withheld": 1, "fence": 1}]},
        {"versions": [{"uid": "v1", "withheld": True, "fence": True}]},
        {"versions": [{"uid": "v1", "withheld": True, "fence": "1"}]},
        {"versions": [{"uid": {"$gt": ""}, "withheld": True, "fence": 1}]},
    ],
)
async def test_a_malformed_body_withholds_nothing(api: UploadApi, body: dict[str, Any]) -> None:
    answer = await api.post(make_uploader(), "withhold_installers", **body)
    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
