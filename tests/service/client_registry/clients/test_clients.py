"""Clients over HTTP (sections 4.6 and 5.2)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from common.auth.internal_tokens import Deployment
from tests.support.factories import UNKNOWN_ID, make_caller, make_tenant
from tests.support.services.registry import Registry
from tests.support.tables import each


async def test_a_client_is_added_with_an_id_and_a_token(registry: Registry) -> None:
    answer = await registry.call(make_caller(), "POST", "add_client", data={"client_name": "pc-1.example.com"})

    assert answer.status == 201
    assert set(answer.body) == {"Message", "client_id", "auth_token", "source_url"}
    assert answer.body["Message"] == "Client was added successfully!"
    assert UUID(answer.body["client_id"]) != UUID(answer.body["auth_token"])


@each(
    "form",
    [
        {},
        {"client_name": ""},
        {"client_name": "  "},
        {"name": "pc"},
        {"client_name": "pc 1"},
        {"client_name": "pc/../x"},
        {"client_name": "pc\u202e"},
    ],
)
async def test_a_client_has_a_host_name(registry: Registry, form: dict[str, str]) -> None:
    answer = await registry.call(make_caller(), "POST", "add_client", data=form)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert answer.body["detail"].startswith("client_name: ")


async def test_a_hostname_is_unique_within_its_tenant(registry: Registry) -> None:
    caller = make_caller()
    for tenant in (caller, make_caller()):
        await registry.add_client(tenant, "pc-1")

    for again in ("pc-1", "PC-1"):
        answer = await registry.call(caller, "POST", "add_client", data={"client_name": again})
        assert (answer.status, answer.body["code"]) == (409, "client_exists")


async def test_a_removed_client_frees_its_slot(registry: Registry) -> None:
    caller = make_caller(make_tenant(max_clients=1))
    first = await registry.add_client(caller, "pc-1")
    refused = await registry.call(caller, "POST", "add_client", data={"client_name": "pc-2"})
    await registry.call(caller, "DELETE", "delete_client", first["client_id"], first["auth_token"])

    assert (refused.status, refused.body["code"]) == (403, "client_limit_exceeded")
    await registry.add_client(caller, "pc-2")


async def test_the_single_tenant_deployment_resolves_names(registry: Registry) -> None:
    caller = make_caller(deployment=Deployment.SINGLE)
    added = await registry.add_client(caller, "localhost")
    refused = await registry.call(caller, "POST", "add_client", data={"client_name": "nowhere.invalid"})

    assert (refused.status, refused.body["code"]) == (400, "name_not_resolved")
    (client,) = (await registry.call(caller, "GET", "get_clients")).body
    assert client["client_id"] == added["client_id"]
    assert client["ip"] in {"127.0.0.1", "::1"}


async def test_clients_are_listed_with_their_full_metadata(registry: Registry) -> None:
    caller = make_caller()
    added = await registry.add_client(caller, "pc-1")

    (client,) = (await registry.call(caller, "GET", "get_clients")).body

    created_at = datetime.fromisoformat(client.pop("created_at"))
    assert abs(datetime.now(UTC) - created_at) < timedelta(minutes=5)
    assert client == {
        "client_id": added["client_id"],
        "client_name": "pc-1",
        "ip": None,
        "last_seen": None,
        "client": 0,
        "enabled": True,
        "ring": "",
        "source_address": True,
        "enrolled_by": "",
        "token_hint": added["auth_token"][-4:],
    }


async def test_clients_are_listed_by_name(registry: Registry) -> None:
    caller = make_caller()
    for name in ("pc-b", "PC-A", "pc-c"):
        await registry.add_client(caller, name)

    clients = (await registry.call(caller, "GET", "get_clients")).body

    assert [client["client_name"] for client in clients] == ["PC-A", "pc-b", "pc-c"]


@each(
    ("query", "expected", "total"),
    [
        ({}, ["a.b", "PC-1", "pc-10", "z-pc-1"], 4),
        ({"text": "Pc-1"}, ["PC-1", "pc-10", "z-pc-1"], 3),
        ({"text": "z-PC-1"}, ["z-pc-1"], 1),
        ({"text": "c-1", "offset": "1", "limit": "1"}, ["pc-10"], 3),
        ({"text": "a.b"}, ["a.b"], 1),
        ({"text": ".*"}, [], 0),
        ({"text": "$."}, [], 0),
        ({"text": "192.0.2.77"}, ["pc-10"], 1),
        ({"offset": "4"}, [], 4),
        ({"client_id": "nobody"}, [], 0),
    ],
)
async def test_clients_are_searched_by_text_and_paged(
    registry: Registry, query: dict[str, str], expected: list[str], total: int
) -> None:
    caller = make_caller(ip="192.0.2.77")
    added = {name: await registry.add_client(caller, name) for name in ("z-pc-1", "pc-10", "PC-1", "a.b")}
    await registry.identify(caller, added["pc-10"]["auth_token"])

    answer = await registry.call(caller, "GET", "find_clients", params=query)

    assert [client["client_name"] for client in answer.body["clients"]] == expected
    assert answer.body["total"] == total


async def test_an_exact_name_comes_first(registry: Registry) -> None:
    caller = make_caller()
    for name in ("a-pc", "b-pc", "PC"):
        await registry.add_client(caller, name)

    (first,) = (await registry.call(caller, "GET", "find_clients", params={"text": "pc", "limit": "1"})).body["clients"]

    assert first["client_name"] == "PC"


async def test_clients_are_found_by_id_and_by_the_end_of_their_token(registry: Registry) -> None:
    caller, other = make_caller(), make_caller()
    first, second = [await registry.add_client(caller, name) for name in ("pc-1", "pc-2")]
    await registry.add_client(caller, "pc-3")
    clients = (await registry.call(caller, "GET", "get_clients")).body
    ids = f"{first['client_id']},{second['client_id'].upper()}"

    for text, query, expected in (
        (caller, {"client_id": ids}, clients[:2]),
        (caller, {"client_id": ids, "text": first["auth_token"][-4:].upper()}, clients[:1]),
        (other, {"client_id": ids}, []),
    ):
        answer = await registry.call(text, "GET", "find_clients", params=query)
        assert answer.body == {"clients": expected, "total": len(expected)}


@each("query", [{"limit": "0"}, {"limit": "101"}, {"offset": "-1"}, {"text": "x" * 254}])
async def test_an_invalid_page_of_clients_is_refused(registry: Registry, query: dict[str, str]) -> None:
    answer = await registry.call(make_caller(), "GET", "find_clients", params=query)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")


async def test_a_token_is_shown_once_and_never_stored(registry: Registry) -> None:
    caller = make_caller()
    added = await registry.add_client(caller)
    stored = await registry.database["clients"].find_one({"tenant_id": caller.tenant_id})

    assert added["auth_token"] not in str(stored)
    assert added["auth_token"] not in str((await registry.call(caller, "GET", "get_clients")).body)


async def test_a_client_is_removed_with_its_own_token_only(registry: Registry) -> None:
    caller = make_caller()
    added, other = await registry.add_client(caller, "pc-1"), await registry.add_client(caller, "pc-2")

    refused = await registry.call(caller, "DELETE", "delete_client", added["client_id"], other["auth_token"])
    assert (refused.status, refused.body["code"]) == (404, "client_not_found")
    assert await registry.identify(caller, added["auth_token"]) == added["client_id"]

    answer = await registry.call(caller, "DELETE", "delete_client", added["client_id"], added["auth_token"])
    assert (answer.status, answer.body) == (200, {"Message": "Client was removed successfully!"})
    assert [client["client_name"] for client in (await registry.call(caller, "GET", "get_clients")).body] == ["pc-2"]
    assert await registry.identify(caller, added["auth_token"]) is None


@each("deployment", Deployment)
@each("parts", [(), ("",), ("c1",), ("c1", ""), ("", "t1"), (" ", "t1"), ("c1", " ")])
async def test_removing_a_client_needs_its_id_and_its_token(
    registry: Registry, parts: tuple[str, ...], deployment: Deployment
) -> None:
    answer = await registry.call(make_caller(deployment=deployment), "DELETE", "delete_client", *parts)

    assert (answer.status, answer.body["code"]) == (400, "invalid_request")


async def test_an_unknown_client_is_neither_changed_nor_removed(registry: Registry) -> None:
    caller, other = make_caller(), await registry.add_client(make_caller())
    for client_id, token in (
        (other["client_id"], other["auth_token"]),  # of another tenant
        (str(uuid4()), str(uuid4())),
        ("nonsense", "nonsense"),
        ("{}", "\u202e"),
    ):
        deleted = await registry.call(caller, "DELETE", "delete_client", client_id, token)
        edited = await registry.call(caller, "PATCH", "edit_client", client_id, data={"enabled": "0"})
        rotated = await registry.call(caller, "POST", "rotate_client_token", client_id)
        refused = [(answer.status, answer.body["code"]) for answer in (deleted, edited, rotated)]
        assert refused == [(404, "client_not_found")] * 3, client_id
    assert await registry.identify(caller, other["auth_token"]) is None
    assert (await registry.call(caller, "GET", "get_clients")).body == []


async def test_a_disabled_client_is_unknown_until_it_is_enabled(registry: Registry) -> None:
    caller = make_caller()
    added = await registry.add_client(caller)

    answer = await registry.call(caller, "PATCH", "edit_client", added["client_id"], data={"enabled": "0"})
    assert (answer.status, answer.body) == (200, {"Message": "Client was updated successfully!"})
    assert await registry.identify(caller, added["auth_token"]) is None

    await registry.call(caller, "PATCH", "edit_client", added["client_id"], data={"enabled": "1"})
    assert await registry.identify(caller, added["auth_token"]) == added["client_id"]


async def test_an_administrator_chooses_the_ring_of_a_client(registry: Registry) -> None:
    caller = make_caller()
    added = await registry.add_client(caller)
    for form, ring, enabled in (
        ({}, "", True),
        ({"ring": "pilot"}, "pilot", True),
        ({"enabled": "0"}, "pilot", False),
        ({"ring": "everyone", "enabled": "1"}, "everyone", True),
        ({"ring": "pilot", "enabled": "1"}, "pilot", True),
        ({"ring": ""}, "", True),
    ):
        if form:
            answer = await registry.call(caller, "PATCH", "edit_client", added["client_id"], data=form)
            assert answer.status == 200, answer.body
        listed = await registry.client(caller, added["client_id"])
        found = (await registry.call(caller, "GET", "find_clients")).body["clients"][0]
        assert (listed["ring"], found["ring"], listed["enabled"]) == (ring, ring, enabled)
        identified = await registry.call(
            caller, "POST", "identify_client", json={"auth_token": added["auth_token"], "client": 1}
        )
        expected = {"client_id": added["client_id"] if enabled else None, "ring": ring if enabled else ""}
        assert identified.body == {**expected, "source_address": enabled}


@each(("setting", "allowed"), [(True, True), (False, True), (True, False)])
async def test_a_client_gets_its_source_address_if_it_may_use_one(
    registry: Registry, *, setting: bool, allowed: bool
) -> None:
    caller = replace(make_caller(make_tenant(source_address=setting)), base_url="https://pkg.example.com/acme")
    added = await registry.add_client(caller)
    form = {"source_address": str(int(allowed))}
    assert (await registry.call(caller, "PATCH", "edit_client", added["client_id"], data=form)).status == 200
    rotated = (await registry.call(caller, "POST", "rotate_client_token", added["client_id"])).body
    for issued, may_use in ((added, setting), (rotated, setting and allowed)):
        address = f"https://pkg.example.com/acme/source/{issued['auth_token']}/winget"
        assert issued["source_url"] == (address if may_use else "")
    assert (await registry.client(caller, added["client_id"]))["source_address"] is allowed
    known = await registry.call(caller, "POST", "identify_client", json={"auth_token": rotated["auth_token"]})
    assert known.body == {"client_id": added["client_id"], "ring": "", "source_address": allowed}


@each(
    "form",
    [
        {},
        {"enabled": ""},
        {"enabled": "2"},
        {"enabled": "yes"},
        {"ring": "p" * 40, "enabled": "0"},
        {"ring": "\0", "enabled": "0"},
    ],
)
async def test_an_invalid_change_changes_nothing(registry: Registry, form: dict[str, str]) -> None:
    caller = make_caller()
    added = await registry.add_client(caller)

    answer = await registry.call(caller, "PATCH", "edit_client", added["client_id"], data=form)

    assert (answer.status, answer.body["params"]["field"]) == (400, "ring" if "ring" in form else "enabled")
    listed = await registry.client(caller, added["client_id"])
    assert (listed["ring"], listed["enabled"]) == ("", True)


async def test_a_new_token_ends_the_old_one(registry: Registry) -> None:
    caller = make_caller()
    added = await registry.add_client(caller)

    answer = await registry.call(caller, "POST", "rotate_client_token", added["client_id"])

    assert answer.status == 200
    assert answer.body["Message"] == "Client token was replaced successfully!"
    assert await registry.identify(caller, added["auth_token"]) is None
    assert await registry.identify(caller, answer.body["auth_token"]) == added["client_id"]
    client = await registry.client(caller, added["client_id"])
    assert client["token_hint"] == answer.body["auth_token"][-4:]


async def test_a_token_identifies_its_client_and_records_the_sighting(registry: Registry) -> None:
    caller = make_caller(ip="192.0.2.7")
    added = await registry.add_client(caller)

    assert await registry.identify(caller, added["auth_token"], client=1) == added["client_id"]

    client = await registry.client(caller, added["client_id"])
    assert (client["ip"], client["client"]) == ("192.0.2.7", 1)
    assert datetime.fromisoformat(client["last_seen"]).utcoffset() == timedelta(0)


@each("token", [UNKNOWN_ID, "", "nonsense", None, 5, True, [], {"$ne": ""}, "\0", "é" * 5000])
async def test_an_unknown_token_identifies_no_client(registry: Registry, token: object) -> None:
    caller = make_caller()
    await registry.add_client(caller)

    assert await registry.identify(caller, token) is None


@each("client", [-1, 2**31, 2**63, 10**30, 1.5, "1", True, None, {}])
async def test_the_kind_of_program_is_a_whole_number(registry: Registry, client: object) -> None:
    body = {"auth_token": "", "client": client}
    answer = await registry.call(make_caller(), "POST", "identify_client", json=body)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")


@each("body", [b"", b"nonsense", b"[]", b"null", b"\xff"])
async def test_a_request_body_that_is_no_object_is_refused(registry: Registry, body: bytes) -> None:
    assert (await registry.call(make_caller(), "POST", "identify_client", data=body)).status == 400


async def test_clients_are_counted(registry: Registry) -> None:
    caller = make_caller()
    assert (await registry.call(caller, "POST", "client_usage", json={})).body["clients"] == 0

    await registry.add_client(caller)

    assert (await registry.call(caller, "POST", "client_usage", json={})).body["clients"] == 1


async def test_writes_have_audit_targets_without_tokens(registry: Registry) -> None:
    caller = make_caller()
    added = await registry.call(caller, "POST", "add_client", data={"client_name": "pc-1"})
    client_id = added.body["client_id"]
    edited = await registry.call(caller, "PATCH", "edit_client", client_id, data={"enabled": "1"})
    rotated = await registry.call(caller, "POST", "rotate_client_token", client_id)
    deleted = await registry.call(caller, "DELETE", "delete_client", client_id, rotated.body["auth_token"])

    targets = [answer.audit_target for answer in (added, edited, rotated, deleted)]

    assert [target["client_id"] for target in targets] == [client_id] * 4
    assert targets[0]["client_name"] == "pc-1"
    assert not any(token in str(targets) for token in (added.body["auth_token"], rotated.body["auth_token"]))


@each(
    ("query", "expected"),
    [
        ({"state": "enabled"}, ["today", "days-10", "days-40"]),
        ({"state": "disabled"}, ["never"]),
        ({"seen": "day"}, ["today"]),
        ({"seen": "week"}, ["today"]),
        ({"seen": "month"}, ["today", "days-10"]),
        ({"seen": "silent"}, ["days-40"]),
        ({"seen": "never"}, ["never"]),
        ({"seen": "month", "text": "days"}, ["days-10"]),
        ({"seen": "never", "state": "enabled"}, []),
    ],
)
async def test_clients_are_found_by_state_and_last_call(
    registry: Registry, query: dict[str, str], expected: list[str]
) -> None:
    caller, now = make_caller(), datetime.now(UTC)
    for name, days in (("today", 0), ("days-10", 10), ("days-40", 40), ("never", None)):
        added = await registry.add_client(caller, name)
        seen = None if days is None else now - timedelta(days=days)
        key = {"tenant_id": caller.tenant_id, "client_id": added["client_id"]}
        changes = {"last_seen": seen, "enabled": name != "never"}
        await registry.database["clients"].update_one(key, {"$set": changes})

    answer = await registry.call(caller, "GET", "find_clients", params=query)

    assert sorted(client["client_name"] for client in answer.body["clients"]) == sorted(expected)
    assert answer.body["total"] == len(expected)


RULES = {
    "rings": ["pilot", "broad", "everyone"],
    "ring_rules": [{"network": "192.0.2.0/24", "ring": "pilot"}, {"app_role": "Pilot", "ring": "pilot"}],
}


@each(
    ("rules", "expected"),
    [
        (RULES, {"pilot": ["chosen", "network"], "broad": ["broad"], "everyone": ["new", "outside", "removed"]}),
        (
            {**RULES, "ring_rules": []},
            {"pilot": ["chosen"], "broad": ["broad"], "everyone": ["network", "new", "outside", "removed"]},
        ),
    ],
)
async def test_clients_are_found_and_counted_by_the_ring_they_are_in(
    registry: Registry, rules: dict[str, object], expected: dict[str, list[str]]
) -> None:
    caller = make_caller()
    places = (
        ("chosen", "pilot", ""),
        ("network", "", "192.0.2.9"),
        ("broad", "broad", "192.0.2.9"),
        ("outside", "", "198.51.100.1"),
        ("removed", "gone", "192.0.2.9"),
        ("new", "", ""),
    )
    for name, ring, ip in places:
        added = await registry.add_client(caller, name)
        await registry.call(caller, "PATCH", "edit_client", added["client_id"], data={"ring": ring})
        if ip:
            await registry.identify(make_caller(caller.tenant, ip=ip), added["auth_token"])

    usage = await registry.call(caller, "POST", "client_usage", json=rules)
    found = {}
    for ring in expected:
        answer = await registry.call(
            caller, "POST", "find_clients_in_ring", params={"ring": ring, "limit": "2"}, json=rules
        )
        found[ring] = ([client["client_name"] for client in answer.body["clients"]], answer.body["total"])

    assert usage.body == {"clients": 6, "clients_by_ring": {ring: len(names) for ring, names in expected.items()}}
    assert found == {ring: (names[:2], len(names)) for ring, names in expected.items()}


async def test_an_unknown_ring_has_no_clients_to_find(registry: Registry) -> None:
    answer = await registry.call(make_caller(), "POST", "find_clients_in_ring", params={"ring": "gone"}, json=RULES)

    assert (answer.status, answer.body["params"]["reason"]) == (400, "no_such_ring")
