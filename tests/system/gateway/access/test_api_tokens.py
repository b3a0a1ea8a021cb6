"""API tokens: what a pipeline may do with one, and what it may not."""

import os
from dataclasses import replace
from typing import Any
from uuid import uuid4

from aiohttp import FormData

from tests.support.api import Answer
from tests.support.system.gateways import at_gateway, run_gateway
from tests.support.system.publishing import (
    INSTALLER,
    add_package,
    publish,
    publish_in_one_call,
    send_chunk,
    upload,
    upload_listed,
)
from tests.support.system.seed import LONG_PASSWORD
from tests.support.system.services import PASSWORD, Api, Services, bearer

CONTENT = os.urandom(3000)
NEW = {"package_name": "App", "package_publisher": "Acme", "package_description": ""}


async def add_token(tenant: Api, **fields: Any) -> tuple[str, Api]:
    """The id of a new token, and a caller with it."""
    answer = await tenant.call("POST", "add_token", data={"name": "ci", "role": "publisher", **fields})
    assert answer.status == 201, answer.body
    return answer.body["token_id"], replace(tenant, headers=bearer(answer.body["token"]))


def text_of(api: Api) -> str:
    return api.headers["Authorization"].removeprefix("Bearer ")


def refusal(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.body["code"]


MISSING, UNKNOWN = (403, "permission_missing"), (401, "not_authenticated")


async def test_a_pipeline_does_everything_within_its_patterns(tenant: Api) -> None:
    _, pipeline = await add_token(tenant, package_ids="Acme.*")
    await add_package(pipeline, "Acme.App")
    name = await upload_listed(pipeline, CONTENT)
    assert (await pipeline.call("GET", "inspect_upload", name)).status == 200
    form = {**INSTALLER, "package_version": "1.0", "server_filename": name}
    added = await pipeline.call("POST", "add_package_version", "Acme.App", data=form)
    assert added.status == 201, added.body
    details = (await tenant.call("GET", "get_version_details", added.body["UID"])).body
    assert details["published_by"] == "token:ci"
    await publish_in_one_call(pipeline, "Acme.App", "2.0", content=CONTENT)
    calls = [
        await pipeline.call("PATCH", "set_package_active", "Acme.App", data={"package_active": "0"}),
        await pipeline.call("PATCH", "edit_package", "Acme.App", data={"package_name": "Better"}),
        await pipeline.call("DELETE", "delete_package_version", "Acme.App", data={"versions_uids": added.body["UID"]}),
        await pipeline.call("DELETE", "delete_package", "Acme.App"),
    ]
    assert [answer.status for answer in calls] == [200] * 4


async def test_each_step_outside_the_patterns_is_refused(tenant: Api) -> None:
    _, pipeline = await add_token(tenant, package_ids="Acme.*,Tool")
    for name in ("Acme.App", "Other.App"):
        await add_package(tenant, name)
    version = await publish(tenant, "Other.App", "1.0")
    before = (await tenant.call("POST", "get_packages", params={"include_disabled": "true"})).body
    one_call = FormData({**INSTALLER, "package_version": "3.0"})
    one_call.add_field("file", CONTENT, filename="setup.exe")
    own = {**INSTALLER, "package_version": "2.0", "server_filename": await upload(pipeline, CONTENT)}
    answers = [
        *[
            await pipeline.call("POST", "add_package", data={"package_id": name, **NEW})
            for name in ("Other.New", "acme.App", "Acme", "Tool2", "Other/Acme.App")
        ],
        await pipeline.call("POST", "add_package_version", "Other.App", data=own),
        await pipeline.call("POST", "add_package_version", "Other.App", data=one_call),
        await pipeline.call("PATCH", "edit_package", "Other.App", data={"package_name": "x"}),
        await pipeline.call("PATCH", "set_package_active", "Other.App", data={"package_active": "0"}),
        await pipeline.call("DELETE", "delete_package_version", "Other.App", data={"versions_uids": version.uid}),
        await pipeline.call("DELETE", "delete_package", "Other.App"),
        await pipeline.call("DELETE", "delete_package_version", "Acme.App", data={"versions_uids": version.uid}),
    ]
    codes = [refusal(answer) for answer in answers]
    assert codes == [MISSING] * 4 + [(400, "invalid_field")] + [MISSING] * 6 + [(404, "version_not_found")]
    assert (await tenant.call("POST", "get_packages", params={"include_disabled": "true"})).body == before


async def test_winget_never_offers_a_package_for_the_program_of_another(tenant: Api) -> None:
    """A token publishes the codes and the name of a package that it may not change: winget does not see that."""
    _, pipeline = await add_token(tenant, package_ids="Small.*")
    code, name = "{1294A4C5-9977-480F-9497-C0EA1E630130}", "Big Editor"
    await add_package(tenant, "Big.Editor", package_name=name)
    await publish(tenant, "Big.Editor", "1.0", productcode=code)
    await add_package(pipeline, "Small.Tool", package_name="Small Tool")
    file = await upload(pipeline, b"setup")
    form = {**INSTALLER, "package_version": "1.0", "server_filename": file, "productcode": code}

    answers = [
        await pipeline.call("POST", "add_package_version", "Small.Tool", data=form),
        await pipeline.call("PATCH", "edit_package", "Small.Tool", data={"package_name": name}),
    ]

    assert [refusal(answer) for answer in answers] == [(403, "identity_taken")] * 2
    for field, keyword in (("ProductCode", code), ("NormalizedPackageNameAndPublisher", "bigeditor")):
        match = {"PackageMatchField": field, "RequestMatch": {"KeyWord": keyword, "MatchType": "Exact"}}
        found = await tenant.call("POST", "winget", "manifestSearch", json={"Inclusions": [match]})
        assert [package["PackageIdentifier"] for package in found.body["Data"]] == ["Big.Editor"]


async def test_the_largest_token_works_at_every_service(tenant: Api) -> None:
    patterns = [f"{number:03}{'x' * 124}*" for number in range(26)]
    networks = ["127.0.0.0/8", *(f"192.0.{number}.0/24" for number in range(99))]
    _, pipeline = await add_token(tenant, package_ids=",".join([*patterns, "Acme.*"]), networks=",".join(networks))
    await add_package(pipeline, "Acme.App")
    await publish(pipeline, "Acme.App")
    for operation in ("server_information", "find_clients", "get_finished_uploads"):
        assert (await pipeline.call("GET", operation)).status == 200, operation
    refused = await pipeline.call("DELETE", "delete_package", "Other")
    assert refusal(refused) == MISSING


async def test_a_restricted_token_uses_no_upload_of_others(tenant: Api) -> None:
    _, pipeline = await add_token(tenant, package_ids="Acme.*")
    await add_package(pipeline, "Acme.App")
    name, file_id = await upload_listed(tenant, CONTENT), uuid4().hex
    await send_chunk(tenant, file_id, CONTENT, 0, 1000)
    form = {**INSTALLER, "package_version": "1.0", "server_filename": name}
    answers = [
        await pipeline.call("POST", "add_package_version", "Acme.App", data=form),
        await pipeline.call("GET", "inspect_upload", name),
        await send_chunk(pipeline, file_id, CONTENT, 1000, 3000),
        await pipeline.call("GET", "upload_package_version", headers={"X-File-ID": file_id}),
        await pipeline.call("DELETE", "upload_package_version", headers={"X-File-ID": file_id}),
    ]
    assert [refusal(answer) for answer in answers] == [MISSING] * 5

    assert (await pipeline.call("GET", "get_finished_uploads")).body == []
    assert (await tenant.call("POST", "add_package_version", "Acme.App", data=form)).status == 201


async def test_a_token_ends_at_every_gateway_at_once(tenant: Api, services: Services, redis_url: str) -> None:
    async with run_gateway(services, redis_url) as address:
        token_id, pipeline = await add_token(tenant)
        other = at_gateway(pipeline, address)
        assert [(await api.call("GET", "test")).status for api in (pipeline, other)] == [200, 200]
        answer = await tenant.call("POST", "rotate_token", token_id)
        new = replace(pipeline, headers=bearer(answer.body["token"]))
        assert [refusal(await api.call("GET", "test")) for api in (other, pipeline)] == [(401, "token_expired")] * 2
        assert (await at_gateway(new, address).call("GET", "test")).status == 200
        assert (await tenant.call("DELETE", "delete_token", token_id)).status == 200
        assert [refusal(await api.call("GET", "test")) for api in (at_gateway(new, address), new)] == [UNKNOWN] * 2


async def test_no_token_passes_as_another_kind_or_at_another_tenant(services: Services, other_tenant: Api) -> None:
    tenant = await services.tenant(client_authentication=True)
    _, pipeline = await add_token(tenant)
    assert refusal(await replace(other_tenant, headers=pipeline.headers).call("GET", "find_packages")) == UNKNOWN
    client = (await tenant.call("POST", "add_client", data={"client_name": "pc-1"})).body["auth_token"]
    anonymous, api_token, session = tenant.anonymous(), text_of(pipeline), text_of(tenant)
    assert (await pipeline.call("POST", "get_packages")).status == 200
    assert (await pipeline.call("POST", "winget", "manifestSearch", json={})).status < 400
    for text in (api_token, session):
        for name in ("auth_token", "Auth-Token"):
            assert refusal(await anonymous.call("POST", "get_packages", data={name: text})) == UNKNOWN
            assert refusal(await anonymous.call("POST", "client_version", data={name: text})) == UNKNOWN
        header = {"Windows-Package-Manager": f"{{'Token': '{text}'}}"}
        assert (await anonymous.call("POST", "winget", "manifestSearch", json={}, headers=header)).status == 401
    for text in (client, f"pkgr_{client}", f"pkgr_{session}", f"{api_token}.{session}", api_token.upper()):
        assert refusal(await anonymous.call("GET", "find_packages", headers=bearer(text))) == UNKNOWN
    for scheme in ("Basic", "Token", "pkgr"):
        headers = {"Authorization": f"{scheme} {api_token}"}
        assert refusal(await anonymous.call("GET", "find_packages", headers=headers)) == UNKNOWN
    for query in ({"token": api_token}, {"auth_token": api_token}, {"access_token": api_token}):
        assert refusal(await anonymous.call("GET", "find_packages", params=query)) == UNKNOWN


async def test_a_token_is_no_session_and_no_password(tenant: Api) -> None:
    _, pipeline = await add_token(tenant)
    text = text_of(pipeline)
    form = {"old_password": PASSWORD, "new_password": LONG_PASSWORD}
    assert refusal(await pipeline.call("POST", "change_password", data=form)) == UNKNOWN
    for user, password in (("admin", text), ("token:ci", text), ("ci", text), ("token:ci", PASSWORD)):
        answer = await tenant.anonymous().call("POST", "login", data={"username": user, "password": password})
        assert answer.status == 401
    for cookie in (f"session-{tenant.tenant_id}={text}", f"__Host-session-{tenant.tenant_id}={text}"):
        for path in (("dashboard",), ("dashboard", "tokens"), ("docs",)):
            page = await tenant.anonymous().call("GET", *path, headers={"Cookie": cookie})
            assert page.status == 307
            assert "sign_in" in page.headers["Location"]
    assert (await pipeline.call("GET", "dashboard", "tokens")).status == 307
    await pipeline.call("POST", "logout", data={"token": text})
    assert (await pipeline.call("GET", "test")).status == 200


async def test_the_audit_log_names_the_token_and_its_creator(tenant: Api) -> None:
    _, pipeline = await add_token(tenant, package_ids="Acme.*")
    await add_package(pipeline, "Acme.App")
    await pipeline.call("DELETE", "delete_package", "Other.App")
    entries = (await tenant.call("GET", "get_audit_log", params={"user": "token:ci"})).body
    assert [(entry["operation"], entry["status"], entry["target"]) for entry in entries] == [
        ("delete_package", 403, {"package_id": "Other.App", "token_created_by": "admin"}),
        ("add_package", 200, {"package_id": "Acme.App", "token_created_by": "admin"}),
    ]
    (created,) = (await tenant.call("GET", "get_audit_log", params={"operation": "add_token"})).body
    assert (created["user"], created["target"]["name"]) == ("admin", "ci")
    assert text_of(pipeline).split("_")[2] not in str(
        (await tenant.call("GET", "get_audit_log", params={"format": "jsonl"})).body
    )


async def test_the_audit_log_has_no_token_that_was_sent_as_an_id(tenant: Api) -> None:
    _, pipeline = await add_token(tenant, role="viewer")
    text = text_of(pipeline)
    for caller, status in ((tenant, 404), (pipeline, 403)):
        assert (await caller.call("DELETE", "delete_token", text)).status == status
        assert (await caller.call("POST", "rotate_token", text)).status == status
    entries = (await tenant.call("GET", "get_audit_log")).body
    assert [entry["target"]["token_id"] for entry in entries if entry["status"] >= 400] == ["pkgr_…"] * 4
    assert text not in str(entries)
