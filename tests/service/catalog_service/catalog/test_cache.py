"""The catalog snapshot: fast without changes, and never older than the last acknowledged write."""

import asyncio
import hashlib
import io
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import orjson
import pytest

from catalog_service.catalog.revision_store import CatalogState, MongoRevisions
from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, sign
from common.errors import Unavailable
from common.http.middleware import REVISION_HEADER
from common.http.zero_copy.responses import SocketSink
from common.mongo import Document, MongoError
from tests.support.api import Answer
from tests.support.factories import KEY, make_caller
from tests.support.services.catalog import Catalog, picture, serving_catalog
from tests.support.wait import TIMEOUT

PLAIN = {"Accept-Encoding": "identity"}
PACKAGE = {"package_id": "acme.editor", "package_name": "Other", "package_publisher": "Acme"}


@pytest.fixture(scope="module")
async def served(mongo_url: str, redis_url: str) -> AsyncIterator[tuple[Catalog, Catalog]]:
    async with AsyncExitStack() as stack:
        catalog = await stack.enter_async_context(serving_catalog(mongo_url, redis_url))
        yield (
            catalog,
            await stack.enter_async_context(serving_catalog(mongo_url, redis_url, database=catalog.settings.database)),
        )


@pytest.fixture
def replicas(served: tuple[Catalog, Catalog]) -> tuple[Catalog, Catalog]:
    """Two catalog services on one database."""
    for replica in served:
        replica.stubs.reset()
    return served


@pytest.fixture
def catalog(replicas: tuple[Catalog, Catalog]) -> Catalog:
    return replicas[0]


@pytest.fixture
def caller() -> Caller:
    return make_caller()


async def answer_of(catalog: Catalog, caller: Caller, headers: dict[str, str] | None = None, **query: str) -> Answer:
    return await catalog.call(caller, "POST", "get_packages", headers=headers or PLAIN, params=query)


async def tag_of(catalog: Catalog, caller: Caller, headers: dict[str, str] | None = None, **query: str) -> str:
    return (await answer_of(catalog, caller, headers, **query)).headers["ETag"]


async def seed(catalog: Catalog, caller: Caller, packages: int, description: str = "", noise: int = 0) -> None:
    """Insert packages directly into the database before the service reads the tenant; `noise` is incompressible."""
    documents = [
        {
            "tenant_id": caller.tenant_id,
            "package_id": f"package.{number:05}",
            "id_key": f"package.{number:05}",
            "package_uid": str(uuid4()),
            "name": str(number),
            "publisher": "Acme",
            "description": description + hashlib.shake_256(b"%d" % number).hexdigest(noise),
            "logo": b"",
            "active": True,
            "halfway": False,
        }
        for number in range(packages)
    ]
    await catalog.database["packages"].insert_many(documents)


def collections_of(queries: Sequence[Document]) -> list[str]:
    return [query["ns"].partition(".")[2] for query in queries]


async def edit(catalog: Catalog, caller: Caller, package_id: str = "acme.editor", **fields: str) -> None:
    answer = await catalog.call(caller, "PATCH", "edit_package", package_id, data=fields)
    assert answer.status == 200, answer.body


async def _deactivate(catalog: Catalog, caller: Caller) -> None:
    await catalog.call(caller, "PATCH", "set_package_active", "acme.editor", data={"package_active": "0"})


async def _delete_version(catalog: Catalog, caller: Caller) -> None:
    (package,) = await catalog.packages(caller)
    data = {"versions_uids": package["VERSIONS_UID"][0]}
    await catalog.call(caller, "DELETE", "delete_package_version", "acme.editor", data=data)


async def _delete_half(catalog: Catalog, caller: Caller) -> None:
    catalog.stubs.refusal = Unavailable("away")
    assert (await catalog.call(caller, "DELETE", "delete_package", "acme.editor")).status == 500


WRITES: dict[str, Callable[[Catalog, Caller], Awaitable[Any]]] = {
    "add": lambda catalog, caller: catalog.add_package(caller, "acme.viewer"),
    "edit": lambda catalog, caller: edit(catalog, caller, package_name="New"),
    "logo": lambda catalog, caller: catalog.call(
        caller, "PATCH", "edit_package", "acme.editor", data={"Logo": io.BytesIO(picture())}
    ),
    "deactivate": _deactivate,
    "add a version": lambda catalog, caller: catalog.add_version(caller, package_version="2"),
    "delete a version": _delete_version,
    "delete": lambda catalog, caller: catalog.call(caller, "DELETE", "delete_package", "acme.editor"),
    "half a deletion": _delete_half,
}


@pytest.mark.parametrize("write", WRITES)
async def test_an_acknowledged_write_is_seen_by_other_replicas(
    replicas: tuple[Catalog, Catalog], caller: Caller, write: str
) -> None:
    writer, reader = replicas
    await writer.add_package(caller)
    await writer.add_version(caller)
    before = [await answer_of(replica, caller) for replica in replicas]
    for replica in replicas:
        assert len(await replica.versions(caller)) == 1

    await WRITES[write](writer, caller)

    after = [await answer_of(replica, caller) for replica in (reader, writer)]
    assert before[0].body == before[1].body != after[0].body == after[1].body
    assert before[0].headers["ETag"] == before[1].headers["ETag"] != after[0].headers["ETag"]
    assert after[0].headers["ETag"] == after[1].headers["ETag"]
    stored = await writer.store.versions.of_package(caller.tenant_id, "acme.editor")
    for replica in (reader, writer):
        answer = await replica.call(caller, "GET", "get_package_versions", "acme.editor")
        listed_uids = {version["UID"] for version in answer.body} if answer.status == 200 else None
        assert listed_uids == (None if stored is None else {version.uid for version in stored})


async def test_versions_are_read_from_the_database_during_a_change(
    replicas: tuple[Catalog, Catalog], caller: Caller
) -> None:
    writer, reader = replicas
    await writer.add_package(caller)
    uid = await writer.add_version(caller)
    first_answer = await reader.call(caller, "GET", "get_package_versions", "acme.editor")
    assert REVISION_HEADER in first_answer.headers
    await MongoRevisions(writer.database).record_change(caller.tenant_id, "acme.editor").__aenter__()
    assert [version["UID"] for version in await reader.versions(caller)] == [uid]

    await writer.database["versions"].delete_one({"tenant_id": caller.tenant_id, "uid": uid})

    late = await reader.call(caller, "GET", "get_package_versions", "acme.editor")
    assert (late.body, REVISION_HEADER in late.headers) == ([], False)


async def test_unchanged_versions_need_one_small_query_and_others_two(
    catalog: Catalog, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = int(time.time()) + 3600
    monkeypatch.setattr("catalog_service.versions.routes.expiry_time", lambda _: until)
    for package_id in ("acme.editor", "acme.viewer"):
        await catalog.add_package(caller, package_id)
        await catalog.add_version(caller, package_id)
    first_versions = await catalog.versions(caller)

    async with catalog.queries() as queries:
        assert await catalog.versions(caller) == first_versions
        assert await catalog.versions(caller, "acme.viewer") != first_versions
        other_host = replace(caller, base_url="https://elsewhere.example.com/acme")
        assert (await catalog.versions(other_host))[0]["INSTALLER_URL"].startswith(other_host.base_url)

    assert collections_of(queries) == ["revisions", "revisions", "packages", "revisions", "packages"]


async def test_racing_reads_show_every_acknowledged_write(
    mongo_url: str, redis_url: str, replicas: tuple[Catalog, Catalog], caller: Caller
) -> None:
    chance = random.Random(5)  # noqa: S311  the same each time
    acknowledged = {f"package.{number}": 0 for number in range(4)}
    for package_id in acknowledged:
        await replicas[0].add_package(caller, package_id, package_description="0")
    tags: dict[str, Any] = {}
    writing = True

    async def write(package_id: str) -> None:
        for number in range(1, 16):
            await edit(chance.choice(replicas), caller, package_id, package_description=str(number))
            acknowledged[package_id] = number
            if number % 5 == 0:
                await chance.choice(replicas).add_version(caller, package_id, package_version=str(number))

    async def read() -> None:
        while writing:
            at_least = dict(acknowledged)
            answer = await answer_of(chance.choice(replicas), caller)
            listed = {package["PACKAGE_ID"]: int(package["PACKAGE_DESCRIPTION"]) for package in answer.body}
            assert all(listed[package_id] >= number for package_id, number in at_least.items())

    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(read())
        await asyncio.gather(*map(write, acknowledged))
        writing = False

    async with serving_catalog(mongo_url, redis_url, database=replicas[0].settings.database) as fresh:
        tags = {(await tag_of(each, caller)): (await answer_of(each, caller)).body for each in (*replicas, fresh)}
        rendered = await answer_of(fresh, caller)
    assert list(tags.values()) == [rendered.body]
    assert [package["VERSIONS"] for package in rendered.body] == [["15", "10", "5"]] * 4


async def test_a_write_of_a_service_that_died_is_seen_by_all(replicas: tuple[Catalog, Catalog], caller: Caller) -> None:
    first, second = replicas
    await first.add_package(caller)
    await answer_of(second, caller)
    revisions = MongoRevisions(first.database)
    await revisions.record_change(caller.tenant_id, "acme.editor").__aenter__()
    early = await answer_of(second, caller)  # cached by a reader between the announcement and the write

    await first.database["packages"].update_one({"tenant_id": caller.tenant_id}, {"$set": {"name": "New"}})

    for _ in range(2):
        late = [await answer_of(replica, caller) for replica in replicas]
        assert [answer.body[0]["PACKAGE_NAME"] for answer in (early, *late)] == ["Editor", "New", "New"]
        assert all("ETag" not in answer.headers for answer in (early, *late))


async def test_a_change_of_a_dead_writer_is_settled_after_a_minute(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_package(caller)
    before = await tag_of(catalog, caller)
    changing = MongoRevisions(catalog.database).record_change(caller.tenant_id, "acme.editor")
    await changing.__aenter__()
    open_since = {"$dateSubtract": {"startDate": "$$NOW", "unit": "second", "amount": 61}}
    (token,) = (await catalog.database["revisions"].find_one({"tenant_id": caller.tenant_id}) or {})["open"]
    await catalog.database["revisions"].update_one(
        {"tenant_id": caller.tenant_id}, [{"$set": {f"open.{token}.since": open_since}}]
    )

    assert "ETag" not in (await answer_of(catalog, caller)).headers

    settled = await tag_of(catalog, caller)
    assert settled != before
    await changing.__aexit__(None, None, None)  # The writer was only slow.
    assert await tag_of(catalog, caller) not in {before, settled}


async def test_a_reader_that_missed_many_changes_reads_everything(
    replicas: tuple[Catalog, Catalog], caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog_service.catalog.revision_store.LATEST", 8)
    first, second = replicas
    await first.add_package(caller)
    await second.packages(caller)
    revisions = MongoRevisions(first.database)
    await edit(first, caller, package_name="New")
    for _ in range(8):
        async with revisions.record_change(caller.tenant_id, "acme.viewer"):
            pass

    assert [package["PACKAGE_NAME"] for package in await second.packages(caller)] == ["New"]


async def test_gateways_are_notified_before_a_change_and_after_it(catalog: Catalog, caller: Caller) -> None:
    states_seen: list[CatalogState] = []

    @asynccontextmanager
    async def record_state(tenant_id: str) -> AsyncIterator[None]:
        for _ in range(2):
            states_seen.append(await MongoRevisions(catalog.database).state(tenant_id, ""))
            if len(states_seen) == 1:
                yield

    async with MongoRevisions(catalog.database, record_state).record_change(caller.tenant_id, "an.app"):
        assert len(states_seen) == 1

    assert [state.changing_ids for state in states_seen] == [frozenset()] * 2
    assert states_seen[0].revision != states_seen[1].revision


async def test_a_write_without_notified_gateways_changes_nothing(mongo_url: str, caller: Caller) -> None:
    async with serving_catalog(mongo_url, "redis://127.0.0.1:1/0") as alone:
        before = await tag_of(alone, caller)
        refused = await alone.call(caller, "POST", "add_package", data=PACKAGE)

        assert (refused.status, refused.body["code"]) == (500, "dependency_unavailable")
        assert await tag_of(alone, caller) == before


async def test_a_refused_write_changes_no_revision(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_package(caller)
    before = await tag_of(catalog, caller)

    assert (await catalog.call(caller, "POST", "add_package", data=PACKAGE)).status == 401
    assert (await catalog.call(caller, "DELETE", "delete_package", "unknown")).status == 404

    assert await tag_of(catalog, caller) == before


async def test_an_unchanged_catalog_needs_one_small_query(catalog: Catalog, caller: Caller) -> None:
    await seed(catalog, caller, 1000)
    await answer_of(catalog, caller)

    async with catalog.queries() as queries:
        assert len(await catalog.packages(caller)) == 1000

    assert collections_of(queries) == ["revisions"]
    assert queries[0]["docsExamined"] == 1


async def test_concurrent_requests_share_one_query(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_package(caller)
    await answer_of(catalog, caller)

    async with catalog.queries() as queries:
        answers_ = await asyncio.gather(*(answer_of(catalog, caller) for _ in range(60)))

    assert {answer.status for answer in answers_} == {200}
    assert len(queries) < 30


@pytest.mark.parametrize("encoding", ["identity", "zstd"])
async def test_a_catalog_with_a_current_etag_is_not_sent_again(catalog: Catalog, caller: Caller, encoding: str) -> None:
    await catalog.add_package(caller)
    sent = await answer_of(catalog, caller, {"Accept-Encoding": encoding})
    assert sent.headers.get("Content-Encoding", "identity") == encoding
    assert (sent.headers["Vary"], sent.headers["Cache-Control"]) == ("Accept-Encoding", "private, no-cache")
    tag = sent.headers["ETag"]

    assert tag.startswith("W/")  # Another replica may compress the same catalog differently.
    for if_none_match in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = await answer_of(catalog, caller, {"If-None-Match": if_none_match, "Accept-Encoding": encoding})
        assert (again.status, again.body) == (304, b"")
        assert (again.headers["ETag"], again.headers["Vary"]) == (tag, "Accept-Encoding")

    await edit(catalog, caller, package_name="New")
    assert (await answer_of(catalog, caller, {"If-None-Match": tag})).status == 200


async def test_every_view_has_its_own_etag(catalog: Catalog, caller: Caller) -> None:
    for package_id in ("a", "b"):
        await catalog.add_package(caller, package_id)
    client = caller.as_client("a client")
    tags = [
        await tag_of(catalog, caller),
        await tag_of(catalog, caller, include_disabled="true"),
    ]
    for hidden in (["a"], ["b"], ["a", "b"]):
        catalog.stubs.hidden[caller.tenant_id] = hidden
        tags.append(await tag_of(catalog, client))
        assert (await answer_of(catalog, client, {"If-None-Match": tags[-1]})).status == 304
        assert (await answer_of(catalog, client, {"If-None-Match": tags[0]})).status == 200
    catalog.stubs.hidden[caller.tenant_id] = []
    tags += [await tag_of(catalog, replace(client, ring=ring)) for ring in ("", "pilot", "a ring")]

    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
async def test_every_encoding_has_the_same_content(catalog: Catalog, caller: Caller, encoding: str) -> None:
    await seed(catalog, caller, 600, description="Edits texts. " * 50)
    await edit(catalog, caller, "package.00300", package_name="New")
    catalog.stubs.hidden[caller.tenant_id] = ["package.00007", "package.00599"]
    client = caller.as_client("a client")

    for viewer, count in ((caller, 600), (client, 598), (caller, 600)):
        plain = await answer_of(catalog, viewer)
        answer = await answer_of(catalog, viewer, {"Accept-Encoding": encoding})
        assert answer.body == plain.body
        assert len(answer.body) == count


async def test_a_deleted_tenant_has_an_empty_catalog_at_once(catalog: Catalog, caller: Caller) -> None:
    await catalog.add_package(caller)
    assert len(await catalog.packages(caller)) == 1

    await catalog.store.forget_tenant(caller.tenant_id)

    assert await catalog.packages(caller) == []


async def test_catalogs_stay_within_the_disk_limit(mongo_url: str, redis_url: str) -> None:
    disk, callers = 400_000, [make_caller() for _ in range(6)]
    async with serving_catalog(mongo_url, redis_url, catalog_disk=disk) as catalog:
        for caller in callers:
            await seed(catalog, caller, 100, description="x" * 500)
            await catalog.packages(caller)
            assert 0 < catalog.catalogs.size <= disk

        async with catalog.queries() as queries:
            await catalog.packages(callers[-1])
            await catalog.packages(callers[0])

    assert collections_of(queries) == ["revisions", "revisions", "release_policies", "packages", "versions"]


@pytest.mark.parametrize("disk", [0, 10_000, 500_000])
async def test_a_catalog_is_the_same_with_any_disk_limit(mongo_url: str, redis_url: str, disk: int) -> None:
    caller = make_caller()
    async with serving_catalog(mongo_url, redis_url, catalog_disk=disk) as catalog:
        await seed(catalog, caller, 300, noise=250)
        await catalog.call(caller, "PATCH", "set_package_active", "package.00004", data={"package_active": "0"})
        catalog.stubs.hidden[caller.tenant_id] = ["package.00299"]
        views = [
            (caller, {}, list(range(300))[:4] + list(range(5, 300))),
            (caller, {"include_disabled": "true"}, list(range(300))),
            (caller.as_client("a client"), {}, list(range(4)) + list(range(5, 299))),
        ]
        for viewer, query, numbers in views:
            for encoding in ("identity", "gzip"):
                answer = await answer_of(catalog, viewer, {"Accept-Encoding": encoding}, **query)
                assert [package["PACKAGE_NAME"] for package in answer.body] == [str(number) for number in numbers]
                conditions = {"If-None-Match": answer.headers["ETag"], "Accept-Encoding": encoding}
                assert (await answer_of(catalog, viewer, conditions, **query)).status == 304
            assert catalog.catalogs.size <= disk


async def test_an_interrupted_response_is_incomplete(
    mongo_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = make_caller()

    async def broken(*_: object) -> AsyncIterator[bytes]:
        yield b"[" + b" " * 1000
        raise MongoError("away")

    async with serving_catalog(mongo_url, redis_url, catalog_disk=0) as catalog:
        await seed(catalog, caller, 1)
        monkeypatch.setattr(catalog.catalogs, "stream", broken)
        with pytest.raises(Exception, match=r"payload|disconnected|reset"):
            await answer_of(catalog, caller)


async def test_stalled_readers_hold_no_memory(
    catalog: Catalog, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await seed(catalog, caller, 2000, description="x" * 9000)
    size = len(orjson.dumps((await answer_of(catalog, caller)).body))
    waiting: dict[object, int] = {}
    wait = SocketSink._wait_for_space

    async def record_transport(sink: SocketSink) -> None:
        transport = sink._request.transport
        assert isinstance(transport, asyncio.WriteTransport)
        waiting[transport] = transport.get_write_buffer_size()
        await wait(sink)

    monkeypatch.setattr(SocketSink, "_wait_for_space", record_transport)
    async with AsyncExitStack() as stack:
        for _ in range(6):
            await stack.enter_async_context(aclosing(_Stalled(catalog, caller)))
        async with asyncio.timeout(TIMEOUT):
            while len(waiting) < 6:  # noqa: ASYNC110  nothing tells of it
                await asyncio.sleep(0.01)
        assert len((await answer_of(catalog, caller)).body) == 2000  # on the same event loop

    assert size > 17_000_000
    assert set(waiting.values()) == {0}


class _Stalled:
    """A connection that requests the catalog and reads nothing of the response."""

    def __init__(self, catalog: Catalog, caller: Caller) -> None:
        address = urlsplit(catalog.api.address)
        token = sign(KEY, caller, service="catalog_service", operation="get_packages")
        head = f"POST /{caller.tenant_id}/get_packages HTTP/1.1\r\nHost: x\r\n{INTERNAL_TOKEN}: {token}\r\n"
        self._socket = socket.create_connection((address.hostname, address.port))
        self._socket.sendall(f"{head}Content-Length: 0\r\n\r\n".encode())

    async def aclose(self) -> None:
        self._socket.close()
