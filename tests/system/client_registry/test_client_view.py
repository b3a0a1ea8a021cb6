"""The view of a registered client: authentication, blacklist, and the version of the client program."""

from aiohttp import FormData

from common.auth.internal_tokens import Deployment
from tests.support.system.publishing import add_package, catalog, download, package_id
from tests.support.system.services import Api, Services


async def add_client(api: Api, name: str = "pc-17") -> dict[str, str]:
    answer = await api.call("POST", "add_client", data={"client_name": name})
    assert answer.status == 201, answer.body
    added: dict[str, str] = answer.body
    assert added["Message"] == "Client was added successfully!"
    return added


async def test_the_catalog_request_of_an_existing_client_is_answered(single: Api) -> None:
    name = package_id()
    await add_package(single, name)
    answer = await single.anonymous().call("POST", "get_packages", data={"Auth-Token": "unknown", "Client": "1"})
    package = next(package for package in answer.body if package["PACKAGE_ID"] == name)
    assert {
        "PACKAGE_ID",
        "PACKAGE_NAME",
        "PACKAGE_PUBLISHER",
        "PACKAGE_DESCRIPTION",
        "PACKAGE_LOGO",
        "VERSIONS",
    } <= package.keys()


async def test_client_authentication_requires_a_token_for_the_catalog(tenant: Api) -> None:
    token = (await add_client(tenant))["auth_token"]
    changed = await tenant.call("PATCH", "edit_settings", data={"client_authentication": "true"})
    assert changed.status == 200
    anonymous = tenant.anonymous()
    for operation in ("get_packages", "client_version"):
        assert (await anonymous.call("POST", operation)).status == 401
        assert (await anonymous.call("POST", operation, data={"auth_token": "wrong"})).status == 401
        assert (await anonymous.call("POST", operation, data={"auth_token": token, "client": "1"})).status == 200
        assert (await tenant.call("POST", operation)).status == 200


async def test_a_disabled_client_and_an_old_token_are_rejected(services: Services) -> None:
    tenant = await services.tenant(client_authentication=True)
    client = await add_client(tenant)
    old = {"auth_token": client["auth_token"]}
    rotated = await tenant.call("POST", "rotate_client_token", client["client_id"])
    new = {"auth_token": rotated.body["auth_token"]}
    assert (await tenant.anonymous().call("POST", "get_packages", data=old)).status == 401
    assert (await tenant.anonymous().call("POST", "get_packages", data=new)).status == 200
    await tenant.call("PATCH", "edit_client", client["client_id"], data={"enabled": "0"})
    assert (await tenant.anonymous().call("POST", "get_packages", data=new)).status == 401


async def test_a_deleted_client_is_not_listed(either: Api) -> None:
    # The single-tenant deployment needs a name that resolves.
    client = await add_client(either, "localhost")
    answer = await either.call("DELETE", "delete_client", client["client_id"], client["auth_token"])
    assert (answer.status, answer.body) == (200, {"Message": "Client was removed successfully!"})
    assert client["client_id"] not in {row["client_id"] for row in (await either.call("GET", "get_clients")).body}


async def test_a_client_does_not_see_its_blacklisted_packages(tenant: Api) -> None:
    for name in ("Seen.App", "Hidden.App"):
        await add_package(tenant, name)
    client, other = await add_client(tenant, "pc-1"), await add_client(tenant, "pc-2")
    entry = {"client_id": client["client_id"], "network": "127.0.0.0/8", "package_ids": "Hidden.App"}
    assert (await tenant.call("POST", "add_blacklist_entry", data=entry)).status == 201
    anonymous = tenant.anonymous()
    assert set(await catalog(anonymous, data={"auth_token": client["auth_token"]})) == {"Seen.App"}
    assert set(await catalog(anonymous, data={"auth_token": other["auth_token"]})) == {"Seen.App", "Hidden.App"}
    assert set(await catalog(anonymous)) == {"Seen.App", "Hidden.App"}


async def test_a_group_hides_its_packages_from_the_clients_of_its_entries(tenant: Api) -> None:
    for name in ("Seen.App", "Game.One", "Game.Two"):
        await add_package(tenant, name)
    group = await tenant.call("POST", "add_blacklist_group", data={"name": "Games", "package_ids": "Game.One,Game.Two"})
    await tenant.call("POST", "add_blacklist_entry", data={"network": "127.0.0.1", "group": group.body["group_id"]})
    token = (await add_client(tenant))["auth_token"]
    assert set(await catalog(tenant.anonymous(), data={"auth_token": token})) == {"Seen.App"}


async def test_an_unchanged_catalog_is_answered_with_304(tenant: Api) -> None:
    await add_package(tenant, "Some.App")
    token = {"auth_token": (await add_client(tenant))["auth_token"]}
    for encoding in ("identity", "gzip", "zstd"):
        accept = {"Accept-Encoding": encoding}
        sent = await tenant.anonymous().call("POST", "get_packages", data=token, headers=accept)
        assert sent.headers.get("Content-Encoding", "identity") == encoding
        known = accept | {"If-None-Match": sent.headers["ETag"]}
        again = await tenant.anonymous().call("POST", "get_packages", data=token, headers=known)
        assert (again.status, again.body) == (304, b"")
        assert sent.headers["Vary"] == again.headers["Vary"] == "Accept-Encoding"

    await add_package(tenant, "Another.App")
    changed = await tenant.anonymous().call("POST", "get_packages", data=token, headers=known)
    assert [package["PACKAGE_ID"] for package in changed.body] == ["Another.App", "Some.App"]


async def test_the_last_call_of_a_client_is_recorded(tenant: Api) -> None:
    client = await add_client(tenant)
    await catalog(tenant.anonymous(), data={"auth_token": client["auth_token"], "client": "1"})
    (row,) = (await tenant.call("GET", "get_clients")).body
    assert (row["client_id"], row["ip"], row["client"]) == (client["client_id"], "127.0.0.1", 1)
    assert row["last_seen"] is not None
    assert "auth_token" not in row


async def test_the_client_program_has_a_version_and_a_file(either: Api) -> None:
    version = "1.2.3.4" if either.deployment is Deployment.MULTI else "1.2.3.5"
    form = FormData({"version": version})
    form.add_field("file", b"the new client", filename="client.exe")
    assert (await either.call("POST", "publish_client", data=form)).status == 200
    answer = await either.anonymous().call("POST", "client_version")
    assert answer.body["Version"] == version
    assert await download(either, answer.body["INSTALLER_URL"]) == b"the new client"


async def test_clients_above_the_limit_are_rejected(services: Services) -> None:
    tenant = await services.tenant(max_clients=1)
    await add_client(tenant, "pc-1")
    answer = await tenant.call("POST", "add_client", data={"client_name": "pc-2"})
    assert (answer.status, answer.body["code"]) == (403, "client_limit_exceeded")


async def test_a_client_name_must_resolve_in_the_single_tenant_deployment(single: Api) -> None:
    answer = await single.call("POST", "add_client", data={"client_name": "nowhere.invalid"})
    assert answer.status == 400
    assert "client_name" in answer.body["detail"]


async def test_deleting_a_client_requires_its_id_and_token(either: Api) -> None:
    for segments in ((), ("an-id",), ("",), ("an-id", ""), ("", "a-token")):
        answer = await either.call("DELETE", "delete_client", *segments)
        assert (answer.status, answer.body["code"]) == (400, "invalid_request")
