"""The roll-out kit is right for every kind of authentication."""

import html
import json
import re
from typing import Any

import pytest

from tests.support.servers.entra import APP
from tests.support.system.pages import sign_in
from tests.support.system.services import Api, Services

HEADER = "--header \"{'Token': '<token>'}\""


async def kit(services: Services, **settings: Any) -> tuple[Api, list[str], str]:
    """A tenant, what its page offers to copy, and the page."""
    api = await services.tenant(**settings)
    answer = await api.anonymous().call("GET", "dashboard", "rollout", headers=await sign_in(api))
    assert answer.status == 200
    page = answer.body.decode()
    return api, [html.unescape(text) for text in re.findall('data-copy="([^"]*)"', page)], page


async def test_the_kit_has_every_way(services: Services) -> None:
    api, (command, policy, detection, remediation, auto_update), _ = await kit(services)
    address = f"{api.base_url}/winget"
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
    for script in (detection, remediation):
        assert f"'{address}'" in script
        assert f"'{api.tenant_id}'" in script
    assert "--trust-level trusted" in remediation
    assert auto_update.endswith(f"/d {api.tenant_id} /f")


@pytest.mark.parametrize(
    ("enforced", "app", "in_command", "in_remediation"),
    [(False, None, False, False), (True, None, True, True), (False, APP, False, True), (True, APP, False, True)],
)
async def test_commands_show_a_token_where_the_caller_needs_one(
    services: Services, enforced: bool, app: Any, in_command: bool, in_remediation: bool
) -> None:
    _, copies, page = await kit(services, client_authentication=enforced, entra=app)
    assert (HEADER in copies[0], HEADER in copies[3]) == (in_command, in_remediation)
    assert not any(HEADER in text for text in copies[1:3])
    assert len(copies) == (4 if in_remediation else 5)
    assert ("sign in with Entra ID" in page) == (app is not None)
    assert ("Replace &lt;token&gt; with the token" in page) == in_remediation


async def test_the_overview_links_to_the_kit(services: Services) -> None:
    api = await services.tenant()
    answer = await api.anonymous().call("GET", "dashboard", headers=await sign_in(api))
    assert f"/{api.tenant_id}/dashboard/rollout" in answer.body.decode()
