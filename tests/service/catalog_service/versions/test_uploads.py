"""Finished uploads: received as events and listed until claimed, in any order and with repeated delivery."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Caller
from common.events import Event, EventsUnavailable
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog, serving_catalog
from tests.support.services.stand_ins import DIGEST
from tests.support.tables import each

FINISHED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
async def catalog(mongo_url: str, redis_url: str) -> AsyncIterator[Catalog]:
    async with serving_catalog(mongo_url, redis_url, finished_uploads_age=3600) as served:
        yield served


def finished(caller: Caller, server_filename: str = "a.msi", **fields: Any) -> Event:
    """The event of a finished upload of a tenant."""
    data = {"server_filename": server_filename, "file_id": "setup", "size": 4096, "sha256": DIGEST, **fields}
    return Event(uuid4().hex, "upload.finished", "/upload_service", caller.tenant_id, FINISHED_AT, data)


async def listed_filenames(catalog: Catalog, caller: Caller) -> list[str]:
    """The server filenames that `get_finished_uploads` returns."""
    answer = await catalog.call(caller, "GET", "get_finished_uploads")
    assert answer.status == 200, answer.body
    return [upload["server_filename"] for upload in answer.body]


async def test_a_finished_upload_is_listed_with_its_fields(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.events.publish(finished(caller))

    answer = await catalog.call(caller, "GET", "get_finished_uploads")

    assert answer.body == [
        {
            "server_filename": "a.msi",
            "file_id": "setup",
            "size": 4096,
            "sha256": DIGEST,
            "finished_at": "2026-01-02T03:04:05+00:00",
        }
    ]


async def test_repeated_concurrent_events_of_an_upload_make_one_entry(catalog: Catalog) -> None:
    caller = make_caller()

    await asyncio.gather(*(catalog.events.publish(finished(caller)) for _ in range(20)))
    await catalog.events.publish(finished(caller))

    assert await listed_filenames(catalog, caller) == ["a.msi"]


async def test_an_upload_is_listed_to_its_own_tenant_only(catalog: Catalog) -> None:
    await catalog.events.publish(finished(make_caller()))

    assert await listed_filenames(catalog, make_caller()) == []


@pytest.mark.parametrize("order", ["heard of first", "linked first", "heard of again"])
async def test_an_upload_with_a_version_is_not_listed(catalog: Catalog, order: str) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    name = catalog.stubs.add_file()

    if order != "linked first":
        await catalog.events.publish(finished(caller, name))
    await catalog.add_version(caller, server_filename=name)
    if order != "heard of first":
        await catalog.events.publish(finished(caller, name))

    assert await listed_filenames(catalog, caller) == []


async def test_an_upload_without_a_file_or_of_a_client_release_is_not_listed(catalog: Catalog) -> None:
    caller, released = make_caller(), catalog.stubs.add_file()
    for name in ("a.msi", "gone.msi", released):
        await catalog.events.publish(finished(caller, name))
    catalog.stubs.missing = {"gone.msi"}
    catalog.stubs.links[released] = "a release that the catalog does not know of"

    assert await listed_filenames(catalog, caller) == ["a.msi"]


async def test_any_number_of_uploads_is_listed(catalog: Catalog) -> None:
    caller = make_caller()
    names = [f"{number:04}.msi" for number in range(1001)]
    await asyncio.gather(*(catalog.events.publish(finished(caller, name)) for name in names))

    assert await listed_filenames(catalog, caller) == names


async def test_an_upload_is_removed_from_the_list_after_its_maximum_age(catalog: Catalog) -> None:
    caller = make_caller()
    before = datetime.now(UTC)
    await catalog.events.publish(finished(caller))

    stored = await catalog.database["finished_uploads"].find_one({"tenant_id": caller.tenant_id})
    indexes = await catalog.database["finished_uploads"].index_information()

    assert stored is not None
    assert timedelta(0) <= stored["expires_at"] - before - timedelta(seconds=3599) < timedelta(seconds=60)
    assert indexes["expires_at_1"]["expireAfterSeconds"] == 0


@each(
    "changes",
    [{"size": None}, {"size": "much"}, {"size": 2**63}, {"sha256": None}, {"file_id": "x" * (16 << 20)}],
    ids=lambda value: str(value)[:30],
)
async def test_an_event_with_a_wrong_field_is_not_accepted(catalog: Catalog, changes: dict[str, Any]) -> None:
    caller = make_caller()
    event = finished(caller, **changes)
    for name in [name for name, value in changes.items() if value is None]:
        del event.data[name]

    with pytest.raises(EventsUnavailable):
        await catalog.events.publish(event)
    assert await listed_filenames(catalog, caller) == []
