"""The view of a registered client: authentication, blacklist, and the version of the client program."""

from aiohttp import FormData

from common.auth.internal_tokens import Deployment
from tests.support.system.publishing import add_package, catalog, download, package_id
from tests.support.system.services import Api


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


async def test_entries_and_groups_hide_packages_from_their_clients_only(tenant: Api) -> None:
    for name in ("Seen.App", "Game.One", "Game.Two"):
        await add_package(tenant, name)
    group = await tenant.call("POST", "add_blacklist_group", data={"name": "Games", "package_ids": "Game.One,Game.Two"})
    await tenant.call("POST", "add_blacklist_entry", data={"network": "127.0.0.1", "group": group.body["group_id"]})
    client, other = await add_client(tenant), await add_client(tenant, "pc-18")
    entry = {"client_id": client["client_id"], "network": "127.0.0.0/8", "package_ids": "Seen.App"}
    assert (await tenant.call("POST", "add_blacklist_entry", data=entry)).status == 201
    for token, seen in ((client["auth_token"], set()), (other["auth_token"], {"Seen.App"})) * 2:
        assert set(await catalog(tenant.anonymous(), data={"auth_token": token})) == seen
    assert len(await catalog(tenant.anonymous())) == 3


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


async def test_deleting_a_client_requires_its_id_and_token(either: Api) -> None:
    for segments in ((), ("an-id",), ("",), ("an-id", ""), ("", "a-token")):
        answer = await either.call("DELETE", "delete_client", *segments)
        assert (answer.status, answer.body["code"]) == (400, "invalid_request")
