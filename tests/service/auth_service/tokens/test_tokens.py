"""API tokens at auth_service: created, listed, identified, rotated and deleted."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.collection import AsyncCollection

from common.auth.internal_tokens import Caller
from common.auth.roles import FOR_TOKENS_ONLY, PERMISSIONS, Role
from common.auth.signing import ApiToken
from common.mongo import Document
from tests.support.api import Answer
from tests.support.services.auth import Auth
from tests.support.tables import each

FORM = {"name": "ci", "role": "publisher"}
Records = AsyncCollection[Document]


@pytest.fixture
async def records(auth: Auth, mongo_url: str) -> AsyncIterator[Records]:
    """The stored tokens."""
    async with AsyncMongoClient[Document](mongo_url) as client:
        yield client[auth.settings.database]["tokens"]


@pytest.fixture
async def caller(auth: Auth) -> Caller:
    """The administrator `admin` of a tenant of its own."""
    return replace(await auth.tenant("admin", "ada"), roles=(Role.ADMINISTRATOR,))


async def add(auth: Auth, caller: Caller, **fields: str) -> Answer:
    answer = await auth.call(caller, "POST", "add_token", data={**FORM, **fields})
    assert answer.status == 201, answer.body
    return answer


async def tokens(auth: Auth, caller: Caller) -> dict[str, dict[str, Any]]:
    """The tokens by name."""
    answer = await auth.call(caller, "GET", "get_tokens")
    assert answer.status == 200
    return {token["name"]: token for token in answer.body}


async def identify(auth: Auth, caller: Caller, text: str) -> Answer:
    """The answer to a gateway that asks for a token."""
    return await auth.call(caller, "POST", "identify_token", json=vars(ApiToken.parse(text)))


def days_left(moment: str) -> float:
    return (datetime.fromisoformat(moment) - datetime.now(UTC)) / timedelta(days=1)


async def test_a_token_has_the_rights_of_its_form(auth: Auth, caller: Caller) -> None:
    fields = {"package_ids": "Beta,Acme.*", "networks": "192.0.2.0/24, 2001:db8::1", "expires_in_days": "7"}
    answer = await add(auth, caller, **fields, role="auditor,publisher")
    token = (await tokens(auth, caller))["ci"]
    assert token["token_id"] == answer.body["token_id"] == ApiToken.parse(answer.body["token"]).token_id
    assert token["role"] == ["publisher", "auditor"]
    assert token["package_ids"] == ["Acme.*", "Beta"]
    assert token["networks"] == ["192.0.2.0/24", "2001:db8::1"]
    assert (token["created_by"], token["last_used"]) == ("admin", None)
    assert 6.9 < days_left(token["expires_at"]) <= 7
    identified = await identify(auth, caller, answer.body["token"])
    assert {name: identified.body[name] for name in ("role", "package_ids", "networks", "created_by")} == {
        name: token[name] for name in ("role", "package_ids", "networks", "created_by")
    }


async def test_a_token_without_options_may_change_all_packages(auth: Auth, caller: Caller) -> None:
    await add(auth, caller)
    token = (await tokens(auth, caller))["ci"]
    assert (token["role"], token["package_ids"], token["networks"]) == (["publisher"], ["*"], [])
    assert 89.9 < days_left(token["expires_at"]) <= 90


@each(
    ("fields", "field"),
    [
        ({"role": "administrator"}, "role"),
        ({"role": "publisher,administrator"}, "role"),
        ({"role": "root"}, "role"),
        ({"role": ""}, "role"),
        ({"name": ""}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"package_ids": ""}, "package_ids"),
        ({"package_ids": "Acme/*"}, "package_ids"),
        ({"package_ids": "Acme.?"}, "package_ids"),
        ({"package_ids": "x" * 129}, "package_ids"),
        ({"package_ids": ",".join(f"a{number}" for number in range(31))}, "package_ids"),
        ({"package_ids": ",".join(f"{number}{'é' * 100}" for number in range(10))}, "package_ids"),
        ({"networks": "localhost"}, "networks"),
        ({"networks": "192.0.2.0/33"}, "networks"),
        ({"expires_in_days": "0"}, "expires_in_days"),
        ({"expires_in_days": "367"}, "expires_in_days"),
        ({"expires_in_days": "-1"}, "expires_in_days"),
        ({"expires_in_days": "1.5"}, "expires_in_days"),
    ],
    ids=str,
)
async def test_a_wrong_field_is_named(auth: Auth, caller: Caller, fields: dict[str, str], field: str) -> None:
    answer = await auth.call(caller, "POST", "add_token", data={**FORM, **fields})
    assert (answer.status, answer.body["code"], answer.body["params"]["field"]) == (400, "invalid_field", field)
    assert await tokens(auth, caller) == {}


async def test_a_creator_gives_only_permissions_of_their_own(auth: Auth, caller: Caller) -> None:
    allowed = set(Role) - {Role.ADMINISTRATOR}
    for number, creator in enumerate(sorted(Role)):
        for role in sorted(allowed):
            form = {"name": f"{role} of {number}", "role": role}
            answer = await auth.call(replace(caller, roles=(creator,)), "POST", "add_token", data=form)
            needed = {FOR_TOKENS_ONLY.get(permission, permission) for permission in PERMISSIONS[role]}
            if needed <= PERMISSIONS[creator]:
                assert answer.status == 201, (creator, role)
            else:
                assert (answer.status, answer.body["code"]) == (403, "permission_missing"), (creator, role)


async def test_a_name_is_unique_in_its_tenant(auth: Auth, caller: Caller) -> None:
    await add(auth, caller)
    answer = await auth.call(caller, "POST", "add_token", data=FORM)
    assert (answer.status, answer.body["code"]) == (409, "token_exists")
    other = replace(await auth.tenant(), roles=(Role.ADMINISTRATOR,))
    await add(auth, other)


async def test_only_the_creating_response_has_the_secret(auth: Auth, caller: Caller, records: Records) -> None:
    answer = await add(auth, caller)
    rotated = await auth.call(caller, "POST", "rotate_token", answer.body["token_id"], data={"overlap_hours": "1"})
    texts = (answer.body["token"], rotated.body["token"])
    secrets = {part for text in texts for part in (text, text.split("_")[2], ApiToken.parse(text).digest)}
    identified = await identify(auth, caller, texts[1])
    for shown in (await tokens(auth, caller), identified.body, await auth.audit_log(caller)):
        assert {secret for secret in secrets if secret in str(shown)} == set()
    stored = str(await records.find({"tenant_id": caller.tenant_id}).to_list(None))
    assert ApiToken.parse(texts[1]).digest in stored
    assert {text for text in texts if text.split("_")[2] in stored} == set()


async def test_a_rotation_without_overlap_ends_the_old_secret(auth: Auth, caller: Caller) -> None:
    answer = await add(auth, caller)
    rotated = await auth.call(caller, "POST", "rotate_token", answer.body["token_id"])
    old = await identify(auth, caller, answer.body["token"])
    assert datetime.fromtimestamp(old.body["expires_at"], UTC) <= datetime.now(UTC)
    new = await identify(auth, caller, rotated.body["token"])
    assert 89.9 < days_left(datetime.fromtimestamp(new.body["expires_at"], UTC).isoformat()) <= 90


async def test_a_rotated_token_belongs_to_the_person_who_rotated_it(auth: Auth, caller: Caller) -> None:
    """The old secret keeps its person, who alone knows it."""
    answer = await add(auth, caller)
    texts = [answer.body["token"]]
    for username in ("bob", "$created_by"):
        person = replace(caller, username=username)
        form = {"overlap_hours": "1"}
        rotated = await auth.call(person, "POST", "rotate_token", answer.body["token_id"], data=form)
        texts.append(rotated.body["token"])
        people = [(await identify(auth, caller, text)).body["created_by"] for text in texts[-2:]]
        assert people == [{"bob": caller.username}.get(username, "bob"), username]
    (shown,) = (await tokens(auth, caller)).values()
    assert shown["created_by"] == "$created_by"


async def test_an_old_secret_counts_for_the_overlap(auth: Auth, caller: Caller) -> None:
    answer = await add(auth, caller, expires_in_days="1")
    for hours in ("169", "-1", "x"):
        form = {"overlap_hours": hours}
        refused = await auth.call(caller, "POST", "rotate_token", answer.body["token_id"], data=form)
        assert (refused.status, refused.body["params"]["field"]) == (400, "overlap_hours")
    for hours, expected in (("5", 5), ("100", 24)):  # never longer than it would have lived
        rotated = await auth.call(
            caller, "POST", "rotate_token", answer.body["token_id"], data={"overlap_hours": hours}
        )
        old = await identify(auth, caller, answer.body["token"])
        left = (datetime.fromtimestamp(old.body["expires_at"], UTC) - datetime.now(UTC)) / timedelta(hours=1)
        assert expected - 0.1 < left <= expected
        answer.body["token"] = rotated.body["token"]


async def test_the_secret_before_the_last_one_never_counts(auth: Auth, caller: Caller) -> None:
    answer = await add(auth, caller)
    for _ in range(2):
        await auth.call(caller, "POST", "rotate_token", answer.body["token_id"], data={"overlap_hours": "168"})
    assert (await identify(auth, caller, answer.body["token"])).status == 404


async def test_a_deleted_token_is_unknown(auth: Auth, caller: Caller) -> None:
    answer = await add(auth, caller)
    token_id = answer.body["token_id"]
    assert (await auth.call(caller, "DELETE", "delete_token", token_id)).status == 200
    assert (await identify(auth, caller, answer.body["token"])).status == 404
    for unknown in (token_id, "x", "0" * 16, "{}", "%00", "$ne"):
        for method, operation in (("DELETE", "delete_token"), ("POST", "rotate_token")):
            again = await auth.call(caller, method, operation, unknown)
            assert (again.status, again.body["code"]) == (404, "token_not_found")


async def test_a_token_of_another_tenant_is_unknown(auth: Auth, caller: Caller) -> None:
    answer, other = await add(auth, caller), await auth.tenant()
    assert (await identify(auth, other, answer.body["token"])).status == 404
    assert (await auth.call(other, "DELETE", "delete_token", answer.body["token_id"])).status == 404
    assert (await auth.call(other, "POST", "rotate_token", answer.body["token_id"])).status == 404
    assert (await identify(auth, caller, answer.body["token"])).status == 200


async def test_a_token_stays_when_its_creator_is_deleted(auth: Auth, caller: Caller) -> None:
    answer = await add(auth, replace(caller, username="ada"))
    assert (await auth.call(caller, "DELETE", "delete_user", "ada")).status == 200
    assert (await identify(auth, caller, answer.body["token"])).status == 200
    assert (await tokens(auth, caller))["ci"]["created_by"] == "ada"


async def test_the_last_use_is_written_at_most_once_a_minute(auth: Auth, caller: Caller, records: Records) -> None:
    text = (await add(auth, caller)).body["token"]
    await identify(auth, caller, text)
    first = (await tokens(auth, caller))["ci"]["last_used"]
    for _ in range(3):
        await identify(auth, caller, text)
    assert (await tokens(auth, caller))["ci"]["last_used"] == first
    aged = datetime.now(UTC) - timedelta(seconds=61)
    await records.update_one({"tenant_id": caller.tenant_id, "name": "ci"}, {"$set": {"last_used": aged}})
    await identify(auth, caller, text)
    assert (await tokens(auth, caller))["ci"]["last_used"] >= first


async def test_a_secret_that_has_ended_is_no_use(auth: Auth, caller: Caller, records: Records) -> None:
    answer = await add(auth, caller)
    await auth.call(caller, "POST", "rotate_token", answer.body["token_id"])
    await identify(auth, caller, answer.body["token"])
    expired = await add(auth, caller, name="expired")
    past = datetime.now(UTC) - timedelta(seconds=1)
    await records.update_one({"tenant_id": caller.tenant_id, "name": "expired"}, {"$set": {"expires_at": past}})
    await identify(auth, caller, expired.body["token"])
    assert [token["last_used"] for token in (await tokens(auth, caller)).values()] == [None, None]


async def test_a_write_has_an_audit_target(auth: Auth, caller: Caller) -> None:
    added = await add(auth, caller, package_ids="Acme.*", networks="192.0.2.1")
    expected = {"name": "ci", "role": "publisher", "package_ids": "Acme.*", "networks": "192.0.2.1"}
    assert added.audit_target == expected
    token_id = added.body["token_id"]
    rotated = await auth.call(caller, "POST", "rotate_token", token_id, data={"overlap_hours": "2"})
    assert rotated.audit_target == {"token_id": token_id, "name": "ci", "overlap_hours": "2"}
    deleted = await auth.call(caller, "DELETE", "delete_token", token_id)
    assert deleted.audit_target == {"token_id": token_id, "name": "ci"}


async def test_a_malformed_question_finds_no_token(auth: Auth, caller: Caller) -> None:
    await add(auth, caller)
    malformed: list[object] = [{}, {"token_id": "0"}, [], "text", {"token_id": {"$ne": ""}, "digest": {"$ne": ""}}]
    for body in malformed:
        assert (await auth.call(caller, "POST", "identify_token", json=body)).status in {400, 404}
