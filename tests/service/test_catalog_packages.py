"""Packages through catalog_service's own door (sections 2.1, 4.2 and 4.3)."""

from collections.abc import AsyncIterator

import pytest

from tests.factories import make_caller
from tests.service.catalog_fixtures import Catalog, serving_catalog


@pytest.fixture(scope="module")
async def catalog(mongo_url: str) -> AsyncIterator[Catalog]:
    async with serving_catalog(mongo_url) as served:
        yield served


async def test_a_package_is_added(catalog: Catalog) -> None:
    data = {
        "package_id": "acme.editor",
        "package_name": "Editor",
        "package_publisher": "Acme",
        "package_description": "Edits\ntext.",
    }

    answer = await catalog.call(make_caller(), "POST", "add_package", data=data)

    assert answer.status == 200
    assert answer.body == {"Message": "Package was added successfully!"}


async def test_the_catalog_shows_a_package_with_exactly_the_specified_fields(catalog: Catalog) -> None:
    caller = make_caller()
    await catalog.add_package(caller, package_description="Edits\ntext.")
    uid = await catalog.add_version(caller)

    assert await catalog.packages(caller) == [
        {
            "PACKAGE_ID": "acme.editor",
            "PACKAGE_NAME": "Editor",
            "PACKAGE_PUBLISHER": "Acme",
            "PACKAGE_DESCRIPTION": "Edits\ntext.",
            "PACKAGE_LOGO": "",
            "PACKAGE_ACTIVE": "1",
            "VERSIONS": ["1.0"],
            "VERSIONS_UID": [uid],
        }
    ]
