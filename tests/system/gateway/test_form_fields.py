"""Unknown fields of a form are refused, and nothing of the request stays."""

import pytest
from aiohttp import FormData

from tests.support.system.publishing import INSTALLER, add_package, package_id
from tests.support.system.services import Api
from tests.support.tables import each


@each("is_file", [False, True])
async def test_an_unknown_field_beside_an_installer_leaves_no_file(tenant: Api, is_file: bool) -> None:
    name, form = package_id(), FormData({**INSTALLER, "package_version": "1.0"})
    await add_package(tenant, name)
    form.add_field("file", b"an installer", filename="setup.exe")
    form.add_field("package_dependencies", "Acme.Runtime", filename="a" if is_file else None)

    answer = await tenant.call("POST", "add_package_version", name, data=form)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert answer.body["detail"].startswith("package_dependencies: ")
    assert "did you mean dep_pkg_identifier?" in answer.body["detail"]
    assert (await tenant.call("GET", "get_package_versions", name)).body == []
    assert (await tenant.call("GET", "server_information")).body["storage_used"] == 0


async def test_an_unknown_field_changes_nothing(tenant: Api) -> None:
    form = {"version_key": "installer", "client_auth": "true"}
    answer = await tenant.call("PATCH", "edit_settings", data=form)
    detail = "client_auth: is no field of this operation; did you mean client_authentication?"
    assert (answer.status, answer.body["detail"]) == (400, detail)
    settings = (await tenant.call("GET", "server_information")).body["settings"]
    assert (settings["version_key"], settings["client_authentication"]) == ("version", False)


@pytest.mark.parametrize("name", ["Logo", "logo"])
async def test_both_spellings_of_the_logo_are_fields(tenant: Api, name: str) -> None:
    package, form = package_id(), FormData()
    await add_package(tenant, package)
    form.add_field(name, b"no picture", filename="logo.png")
    answer = await tenant.call("PATCH", "edit_package", package, data=form)
    assert answer.body["detail"].startswith("Logo: is not a PNG or JPEG image")


async def test_programs_of_clients_may_send_more_fields(tenant: Api) -> None:
    client = (await tenant.call("POST", "add_client", data={"client_name": "pc"})).body
    form = {"auth_token": client["auth_token"], "client": "1", "computer": "pc"}
    for operation in ("client_version", "get_packages"):
        assert (await tenant.anonymous().call("POST", operation, data=form)).status == 200
    session = (await tenant.signed_in()).headers["Authorization"].removeprefix("Bearer ")
    assert (await tenant.call("POST", "logout", data={"token": session, "computer": "pc"})).status == 200
