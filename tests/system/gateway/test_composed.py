"""Operations that concern two services, through the gateway."""

import pytest

from tests.support.system.publishing import add_package, package_id
from tests.support.system.services import Api

LISTS = [
    ("add_blacklist_entry", {"network": "10.0.0.0/8"}, "get_blacklist"),
    ("add_blacklist_group", {"name": "Tools"}, "get_blacklist_groups"),
]


@pytest.mark.parametrize(("operation", "form", "listing"), LISTS)
async def test_a_list_of_packages_may_name_unknown_ones_on_request_only(
    tenant: Api, operation: str, form: dict[str, str], listing: str
) -> None:
    known = package_id()
    await add_package(tenant, known)
    form = {**form, "package_ids": f"{known},{known[:-1]}"}

    refused = await tenant.call("POST", operation, data=form)
    items = (await tenant.call("GET", listing)).body
    accepted = await tenant.call("POST", operation, data={**form, "allow_unknown": "true"})

    assert (refused.status, refused.body["code"], items) == (400, "invalid_field", [])
    assert refused.body["params"]["nearest"] == known
    assert accepted.status == 201
    entries = (await tenant.call("GET", "get_audit_log", params={"operation": operation})).body
    assert [entry["target"]["package_ids"] for entry in entries] == [form["package_ids"]] * 2


async def test_a_form_without_packages_names_none(tenant: Api) -> None:
    group = {"name": "Tools", "package_ids": "Not.There", "allow_unknown": "1"}
    group_id = (await tenant.call("POST", "add_blacklist_group", data=group)).body["group_id"]

    assert (await tenant.call("POST", "add_blacklist_entry", data={"group": group_id})).status == 201
