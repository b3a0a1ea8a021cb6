"""The blacklist over HTTP (section 5.2), also for names of clients that do not exist."""

from typing import Any
from uuid import UUID

from aiohttp import FormData

from common.auth.internal_tokens import Caller
from common.http.middleware import AUDIT_HEADER
from common.service_client.client import HEADER_LIMIT
from tests.support.factories import UNKNOWN_ID, make_caller
from tests.support.services.registry import Registry
from tests.support.tables import each


async def add_entry(registry: Registry, caller: Caller, **form: Any) -> str:
    """Add an entry and return its id."""
    answer = await registry.call(caller, "POST", "add_blacklist_entry", data=form)
    assert answer.status == 201, answer.body
    entry_id: str = answer.body["entry_id"]
    return entry_id


async def add_group(registry: Registry, caller: Caller, name: str = "Browsers", package_ids: str = "a.a,b.b") -> str:
    """Add a group and return its id."""
    form = {"name": name, "package_ids": package_ids}
    answer = await registry.call(caller, "POST", "add_blacklist_group", data=form)
    assert answer.status == 201, answer.body
    group_id: str = answer.body["group_id"]
    return group_id


async def test_an_entry_is_added_and_listed(registry: Registry) -> None:
    caller = make_caller()
    client = await registry.add_client(caller)

    answer = await registry.call(
        caller,
        "POST",
        "add_blacklist_entry",
        data={"client_id": client["client_id"].upper(), "network": "192.0.2.7/24", "package_ids": "b.b, a.a,b.b"},
    )

    assert (answer.status, answer.body["Message"]) == (201, "Blacklist entry was added successfully!")
    (entry,) = (await registry.call(caller, "GET", "get_blacklist")).body
    assert entry.pop("created_at").endswith("+00:00")
    assert entry == {
        "entry_id": str(UUID(answer.body["entry_id"])),
        "client_id": client["client_id"],
        "network": "192.0.2.0/24",
        "package_ids": ["b.b", "a.a"],
        "group_id": None,
    }


async def test_package_ids_may_be_repeated(registry: Registry) -> None:
    caller = make_caller()
    form = [("package_ids", "a.a"), ("package_ids", "b.b,c.c"), ("client_id", ""), ("network", ""), ("group", "")]
    await registry.call(caller, "POST", "add_blacklist_entry", data=form)

    (entry,) = (await registry.call(caller, "GET", "get_blacklist")).body
    assert entry["package_ids"] == ["a.a", "b.b", "c.c"]
    assert (entry["client_id"], entry["network"], entry["group_id"]) == (None, None, None)


async def test_entries_are_listed_oldest_first(registry: Registry) -> None:
    caller = make_caller()
    added = [await add_entry(registry, caller, package_ids="a.a") for _ in range(3)]

    entries = (await registry.call(caller, "GET", "get_blacklist")).body
    assert [entry["entry_id"] for entry in entries] == added


@each(
    ("operation", "form"),
    [
        ("add_blacklist_entry", {}),
        ("add_blacklist_entry", {"network": "192.0.2.0/24"}),
        ("add_blacklist_entry", {"package_ids": " , "}),
        ("add_blacklist_entry", {"package_ids": "a\0"}),
        ("add_blacklist_entry", {"package_ids": "a" * 129}),
        ("add_blacklist_entry", {"package_ids": "a.a", "network": "192.0.2.9-192.0.2.1"}),
        ("add_blacklist_entry", {"package_ids": "a.a", "network": "9" * 999}),
        ("add_blacklist_group", {"package_ids": "a.a"}),
        ("add_blacklist_group", {"name": "Browsers"}),
        ("add_blacklist_group", {"name": "B\0", "package_ids": "a.a"}),
    ],
)
async def test_invalid_fields_are_refused(registry: Registry, operation: str, form: dict[str, str]) -> None:
    caller = make_caller()

    answer = await registry.call(caller, "POST", operation, data=form)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert (await registry.call(caller, "GET", "get_blacklist")).body == []


async def test_an_entry_for_an_unknown_client_or_group_is_refused(registry: Registry) -> None:
    other, caller = make_caller(), make_caller()
    client, group_id = await registry.add_client(other), await add_group(registry, other)

    for unknown in ("nonsense", client["client_id"], UNKNOWN_ID):
        form = {"client_id": unknown, "package_ids": "a.a"}
        answer = await registry.call(caller, "POST", "add_blacklist_entry", data=form)
        assert (answer.status, answer.body["code"]) == (404, "client_not_found")
    assert answer.audit_target == form
    for unknown in (UNKNOWN_ID, "nonsense", group_id):
        answer = await registry.call(caller, "POST", "add_blacklist_entry", data={"group": unknown})
        assert (answer.status, answer.body["code"]) == (404, "group_not_found")
    assert (await registry.call(caller, "GET", "get_blacklist")).body == []


async def test_an_unknown_entry_or_group_is_not_deleted(registry: Registry) -> None:
    other = make_caller()
    for kind, other_id in (
        ("entry", await add_entry(registry, other, package_ids="a.a")),
        ("group", await add_group(registry, other)),
    ):
        for unknown in (other_id, UNKNOWN_ID, "nonsense", "{}"):
            answer = await registry.call(make_caller(), "DELETE", f"delete_blacklist_{kind}", unknown)
            assert (answer.status, answer.body["code"]) == (404, f"{kind}_not_found")


async def test_an_entry_is_deleted(registry: Registry) -> None:
    caller = make_caller()
    entry_id = await add_entry(registry, caller, package_ids="a.a")

    answer = await registry.call(caller, "DELETE", "delete_blacklist_entry", entry_id)

    assert (answer.status, answer.body) == (200, {"Message": "Blacklist entry was deleted successfully!"})
    assert (await registry.call(caller, "GET", "get_blacklist")).body == []


async def test_a_group_is_added_and_listed(registry: Registry) -> None:
    caller = make_caller()
    form = {"name": "Browsers", "package_ids": "a.a,b.b"}
    answer = await registry.call(caller, "POST", "add_blacklist_group", data=form)

    assert (answer.status, answer.body["Message"]) == (201, "Blacklist group was added successfully!")
    (group,) = (await registry.call(caller, "GET", "get_blacklist_groups")).body
    assert group.pop("created_at").endswith("+00:00")
    assert group == {
        "group_id": str(UUID(answer.body["group_id"])),
        "name": "Browsers",
        "package_ids": ["a.a", "b.b"],
    }


async def test_groups_are_listed_by_name(registry: Registry) -> None:
    caller = make_caller()
    for name in ("b", "A", "c"):
        await add_group(registry, caller, name)

    groups = (await registry.call(caller, "GET", "get_blacklist_groups")).body
    assert [group["name"] for group in groups] == ["A", "b", "c"]


async def test_the_name_of_a_group_is_unique_within_its_tenant(registry: Registry) -> None:
    caller = make_caller()
    await add_group(registry, caller, "Browsers")
    await add_group(registry, make_caller(), "Browsers")

    form = {"name": "browsers", "package_ids": "c.c"}
    answer = await registry.call(caller, "POST", "add_blacklist_group", data=form)

    assert (answer.status, answer.body["code"]) == (409, "group_exists")


async def test_a_group_is_deleted_if_no_entry_uses_it(registry: Registry) -> None:
    caller = make_caller()
    group_id = await add_group(registry, caller)
    entry_id = await add_entry(registry, caller, group=group_id)

    refused = await registry.call(caller, "DELETE", "delete_blacklist_group", group_id)
    await registry.call(caller, "DELETE", "delete_blacklist_entry", entry_id)
    deleted = await registry.call(caller, "DELETE", "delete_blacklist_group", group_id)

    assert (refused.status, refused.body["code"]) == (409, "group_in_use")
    assert (deleted.status, deleted.body) == (200, {"Message": "Blacklist group was deleted successfully!"})
    assert (await registry.call(caller, "GET", "get_blacklist_groups")).body == []


async def test_hidden_packages_are_the_union_of_applicable_entries(registry: Registry) -> None:
    caller = make_caller()
    client, other_client = await registry.add_client(caller, "pc-1"), await registry.add_client(caller, "pc-2")
    group_id = await add_group(registry, caller, package_ids="g.1,g.2,all")
    await add_entry(registry, caller, package_ids="all")
    await add_entry(registry, caller, client_id=client["client_id"], package_ids="one")
    await add_entry(registry, caller, client_id=other_client["client_id"], package_ids="other")
    await add_entry(registry, caller, network="198.51.100.0/24", group=group_id, package_ids="there")
    await add_entry(registry, caller, client_id=client["client_id"], network="198.51.100.7", package_ids="both")
    await add_entry(registry, make_caller(), package_ids="of.another.tenant")

    for hidden_from, ip, hidden in (
        (client, "203.0.113.1", "all one"),
        (other_client, "198.51.100.7", "all g.1 g.2 other there"),
        (client, "198.51.100.7", "all both g.1 g.2 one there"),
    ):
        assert await registry.hidden_from(caller, hidden_from["client_id"], ip) == hidden.split()
    no_client = await registry.call(caller, "POST", "hidden_packages", json={})
    assert no_client.body == {"package_ids": []}


async def test_the_entries_of_a_deleted_client_are_deleted(registry: Registry) -> None:
    caller = make_caller()
    gone, staying = await registry.add_client(caller, "pc-1"), await registry.add_client(caller, "pc-2")
    await add_entry(registry, caller, client_id=gone["client_id"], package_ids="a.a")
    remaining_ids = [
        await add_entry(registry, caller, client_id=staying["client_id"], package_ids="a.a"),
        await add_entry(registry, caller, package_ids="a.a"),
    ]

    await registry.call(caller, "DELETE", "delete_client", gone["client_id"], staying["auth_token"])
    assert len((await registry.call(caller, "GET", "get_blacklist")).body) == 3

    await registry.call(caller, "DELETE", "delete_client", gone["client_id"], gone["auth_token"])
    entries = (await registry.call(caller, "GET", "get_blacklist")).body
    assert [entry["entry_id"] for entry in entries] == remaining_ids


async def test_writes_have_audit_targets(registry: Registry) -> None:
    caller = make_caller()
    form = {"name": "Browsers", "package_ids": "a.a"}
    group = await registry.call(caller, "POST", "add_blacklist_group", data=form)
    client_id = (await registry.add_client(caller, "pc-1"))["client_id"]
    fields = {"client_id": client_id, "network": "192.0.2.0/24", "package_ids": "b.b,c.c"}
    fields["group"] = group.body["group_id"]
    entry = await registry.call(caller, "POST", "add_blacklist_entry", data=fields)
    no_entry = await registry.call(caller, "DELETE", "delete_blacklist_entry", entry.body["entry_id"])
    no_group = await registry.call(caller, "DELETE", "delete_blacklist_group", group.body["group_id"])

    targets = [answer.audit_target for answer in (group, entry, no_entry, no_group)]

    assert targets == [
        {"group_id": group.body["group_id"], "name": "Browsers", "package_ids": "a.a"},
        {"entry_id": entry.body["entry_id"], **fields},
        {"entry_id": entry.body["entry_id"]},
        {"group_id": group.body["group_id"]},
    ]


@each(("operation", "fields"), [("add_blacklist_entry", {}), ("add_blacklist_group", {"name": "All"})])
async def test_the_audit_target_of_a_long_entry_fits_a_header(
    registry: Registry, operation: str, fields: dict[str, str]
) -> None:
    ids = [f"{number:03}{'包' * 125}" for number in range(1000)]
    form = FormData({**fields, "package_ids": ",".join(ids)}, default_to_multipart=True)

    answer = await registry.call(make_caller(), "POST", operation, data=form)

    package_ids_of_target = answer.audit_target["package_ids"]
    assert answer.status == 201
    assert len(answer.headers[AUDIT_HEADER]) < HEADER_LIMIT
    assert package_ids_of_target.startswith(f"{ids[0]},{ids[1]},")
    assert package_ids_of_target.endswith(f" and {1000 - package_ids_of_target.count(',') - 1} more")


async def test_a_client_is_named_in_any_letter_case(registry: Registry) -> None:
    caller = make_caller()
    client = await registry.add_client(caller, "pc-0042")

    await add_entry(registry, caller, hostname="PC-0042", package_ids="a.a")

    (entry,) = (await registry.call(caller, "GET", "get_blacklist")).body
    assert entry["client_id"] == client["client_id"]
    for form, reason in (
        ({"hostname": "pc-004"}, "hostname: there is no client 'pc-004'; did you mean 'pc-0042'?"),
        ({"hostname": "pc-0042", "client_id": client["client_id"]}, ""),
    ):
        data = {**form, "package_ids": "a.a"}
        answer = await registry.call(caller, "POST", "add_blacklist_entry", data=data)
        assert (answer.status, answer.body["code"]) == (400, "invalid_field")
        assert reason in answer.body["detail"]
