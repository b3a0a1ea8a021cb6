"""The page *Roll out to machines*, and its script against the real services."""

import html
import json
import re
from typing import Any

import pytest

from tests.support.servers.entra import APP
from tests.support.system.pages import load_page, load_text
from tests.support.system.rollout_script import ScriptEnded, WindowsMachine, settings_of
from tests.support.system.seed import add_enroller
from tests.support.system.services import Api, Services

HEADER = "--header \"{'Token': '<token>'}\""


async def kit(services: Services, **settings: Any) -> tuple[Api, list[str], str]:
    """A tenant, what its page offers to copy for machines, and the page."""
    api = await services.tenant(**settings)
    assert f"/{api.tenant_id}/dashboard/rollout" in await load_page(api)
    page = await load_page(api, "rollout")
    copied = [html.unescape(text) for text in re.findall('data-copy="([^"]+)"', page)]
    return api, [text for text in copied if not text.startswith("pkgrepo up")], page


async def script_for(api: Api) -> str:
    """The script as the page fills it in after it made a token."""
    page = await load_page(api, "rollout")
    (pattern,) = re.findall('data-issued="([^"]*)"', page)
    secret = (await add_enroller(api)).headers["Authorization"].removeprefix("Bearer ")
    return html.unescape(pattern).replace("{token}", secret)


async def test_the_kit_begins_with_the_certificate_and_warns_of_http(tenant: Api) -> None:
    text = await load_text(tenant, "rollout")
    assert "Certificate Machines cannot use this address, because winget needs HTTPS." in text
    assert "pkgrepo up --tls --host 0.0.0.0 --name" in text


async def test_the_kit_has_every_way(services: Services) -> None:
    api, (command, policy, auto_update), _ = await kit(services)
    address = f"{api.base_url}/winget"
    assert settings_of(await script_for(api))["address"] == api.base_url
    assert command == f"winget source add -n {api.tenant_id} -t Microsoft.Rest --trust-level trusted -a {address}"
    information = await api.session.get(f"{address}/information")
    assert json.loads(policy) == {
        "Name": api.tenant_id,
        "Arg": address,
        "Type": "Microsoft.Rest",
        "Data": "",
        "Identifier": (await information.json())["Data"]["SourceIdentifier"],
        "TrustLevel": ["Trusted"],
    }
    assert auto_update.endswith(f"/d {api.tenant_id} /f")


@pytest.mark.parametrize(
    ("enforced", "app", "in_command", "has_policy"),
    [(False, None, False, True), (True, None, True, False), (False, APP, False, True), (True, APP, False, True)],
)
async def test_commands_show_a_token_where_the_caller_needs_one(
    services: Services, enforced: bool, app: Any, in_command: bool, has_policy: bool
) -> None:
    _, copies, page = await kit(services, client_authentication=enforced, entra=app)
    assert (HEADER in copies[0], len(copies) == 3) == (in_command, has_policy)
    assert ("sign in with Entra ID" in page) == (app is not None)


async def test_the_page_lists_the_enrollment_tokens(tenant: Api) -> None:
    assert "Enrollment tokens" not in await load_page(tenant, "rollout")
    await add_enroller(tenant)
    (token,) = (await tenant.call("GET", "get_tokens")).body
    assert f"/clients?enrolled_by={token['token_id']}" in await load_page(tenant, "rollout")


async def test_the_clients_of_one_token_are_shown(tenant: Api) -> None:
    await tenant.call("POST", "add_client", data={"client_name": "pc-added"})
    await (await add_enroller(tenant)).call("POST", "enroll_client", data={"client_name": "pc-enrolled"})
    (token,) = (await tenant.call("GET", "get_tokens")).body
    shown = await load_text(tenant, "clients", enrolled_by=token["token_id"])
    assert ("pc-enrolled" in shown, "pc-added" in shown, "Enrolled with one token" in shown) == (True, False, True)


async def test_the_script_enrolls_a_machine(tenant: Api) -> None:
    machine = WindowsMachine(tenant.session, "pc-1")

    assert await machine.run(await script_for(tenant))
    (client,) = (await tenant.call("GET", "get_clients")).body
    assert (client["client_name"], client["ip"]) == ("pc-1", "127.0.0.1")
    assert machine.transcript == [f"POST {tenant.base_url}/enroll_client client_name=pc-1 -> 201"]


async def test_the_script_changes_nothing_when_it_runs_again(tenant: Api) -> None:
    machine, script = WindowsMachine(tenant.session, "pc-1"), await script_for(tenant)
    await machine.run(script)
    source, (before,) = machine.source, (await tenant.call("GET", "get_clients")).body

    assert not await machine.run(script)
    (after,) = (await tenant.call("GET", "get_clients")).body
    assert (machine.source, after["token_hint"]) == (source, before["token_hint"])
    assert machine.transcript == [
        f"POST {tenant.base_url}/enroll_client client_name=pc-1 -> 201",
        f"GET {tenant.base_url}/source/<client token>/winget/information -> 200",
    ]


async def test_the_script_enrolls_again_after_its_address_has_ended(tenant: Api) -> None:
    machine, script = WindowsMachine(tenant.session, "pc-1"), await script_for(tenant)
    await machine.run(script)
    (client,) = (await tenant.call("GET", "get_clients")).body
    await tenant.call("POST", "rotate_client_token", client["client_id"])

    assert await machine.run(script)
    assert not await machine.run(script)
    assert [line.rpartition("-> ")[2] for line in machine.transcript] == ["201", "401", "200", "200"]


async def test_a_disabled_machine_does_not_come_back(tenant: Api) -> None:
    machine, script = WindowsMachine(tenant.session, "pc-1"), await script_for(tenant)
    await machine.run(script)
    (client,) = (await tenant.call("GET", "get_clients")).body
    await tenant.call("PATCH", "edit_client", client["client_id"], data={"enabled": "0"})

    with pytest.raises(ScriptEnded, match="that is disabled"):
        await machine.run(script)


async def test_the_script_needs_personal_addresses(tenant: Api) -> None:
    assert (await tenant.call("PATCH", "edit_settings", data={"source_address": "false"})).status == 200
    with pytest.raises(ScriptEnded, match="does not offer personal addresses"):
        await WindowsMachine(tenant.session, "pc-1").run(await script_for(tenant))


async def test_the_script_ends_with_the_reason_of_the_server(services: Services) -> None:
    tenant = await services.tenant(max_clients=0)
    with pytest.raises(ScriptEnded, match="did not enroll this machine: The tenant may have 0 clients"):
        await WindowsMachine(tenant.session, "pc-1").run(await script_for(tenant))
