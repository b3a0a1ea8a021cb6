"""The list of damaged installers, each with the version to publish again."""

from typing import Any
from uuid import uuid4

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from tests.support.factories import make_caller
from tests.support.services.catalog import Catalog

FOUND_AT = "2026-01-31T09:30:00+00:00"


def damaged(version_uid: str, damage: str = "altered") -> dict[str, str]:
    """A damaged file in the format of upload_service."""
    return {
        "server_filename": f"{uuid4().hex}.msi",
        "version_uid": version_uid,
        "damage": damage,
        "found_at": FOUND_AT,
    }


async def damaged_files(catalog: Catalog, caller: Caller) -> list[dict[str, Any]]:
    answer = await catalog.call(caller, "GET", "get_damaged_installers")
    assert answer.status == 200, answer.body
    files: list[dict[str, Any]] = answer.body
    return files


async def test_a_damaged_file_is_listed_with_its_version(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller)
    uids = [await catalog.add_version(caller, package_version=version) for version in ("1.0", "2.0")]
    files = catalog.stubs.damaged = [damaged(uids[1]), damaged(uids[0], "missing")]
    versions = [{"package_id": "acme.editor", "version": version} for version in ("2.0", "1.0")]
    assert await damaged_files(catalog, caller) == [
        {**file, **version} for file, version in zip(files, versions, strict=True)
    ]


async def test_a_version_that_is_not_of_the_tenant_is_not_named(catalog: Catalog) -> None:
    owner = make_caller()
    await catalog.add_package(owner)
    files = catalog.stubs.damaged = [damaged(""), damaged(str(uuid4())), damaged(await catalog.add_version(owner))]
    assert await damaged_files(catalog, make_caller()) == [{**file, "package_id": "", "version": ""} for file in files]


async def test_an_unavailable_upload_service_is_reported(catalog: Catalog) -> None:
    catalog.stubs.refusal = Unavailable("The upload service does not answer.")
    assert (await catalog.call(make_caller(), "GET", "get_damaged_installers")).status == 500
