"""The settings of a tenant: reading, changes by administrators, notification of gateways, and deletion."""

import json
from dataclasses import replace
from typing import Any

import pytest

from auth_service.tenants.service import to_audit_text
from common.auth.internal_tokens import Caller
from common.http.middleware import AUDIT_HEADER
from common.service_client.client import HEADER_LIMIT
from tests.support.api import Answer
from tests.support.factories import make_caller
from tests.support.servers.entra import APP, DIRECTORY
from tests.support.services.auth import Auth
from tests.support.tables import each

HERE = "192.0.2.7"
GRAZ = {"name": "Graz", "networks": ["10.20.0.0/16"], "downloads": "https://graz.pkg.example.com"}
NAMES = (
    "client_authentication",
    "allowed_networks",
    "version_key",
    "strict_installers",
    "source_address",
    "source_agreements",
    "sites",
)


@pytest.fixture
async def caller(auth: Auth) -> Caller:
    return replace(await auth.tenant(), ip=HERE)


async def edit(auth: Auth, caller: Caller, **form: str) -> Answer:
    return await auth.call(caller, "PATCH", "edit_settings", data=form)


async def settings(auth: Auth, caller: Caller) -> dict[str, Any]:
    """The settings that `edit_settings` changes."""
    tenant = (await auth.call(caller, "POST", "find_tenant", json={})).body
    return {name: tenant[name] for name in NAMES}


async def test_settings_are_changed(auth: Auth, caller: Caller) -> None:
    answer = await edit(
        auth,
        caller,
        client_authentication="true",
        allowed_networks=f"{HERE},10.0.0.0/8",
        version_key="installer",
        strict_installers="1",
        source_address="0",
        source_agreements='[{"label": "Terms", "url": ""}, {"text": "Be kind.\\nAlways."}]',
        sites=json.dumps([GRAZ]),
    )

    assert (answer.status, answer.body) == (200, {"Message": "Settings were updated successfully!"})
    assert await settings(auth, caller) == {
        "client_authentication": True,
        "allowed_networks": [HERE, "10.0.0.0/8"],
        "version_key": "installer",
        "strict_installers": True,
        "source_address": False,
        "source_agreements": '[{"label":"Terms"},{"text":"Be kind.\\nAlways."}]',
        "sites": [GRAZ],
    }


@each(
    "form",
    [
        {"client_authentication": "false"},
        {"allowed_networks": f"{HERE}/32,2001:db8::/32"},
        {"version_key": "version"},
        {"strict_installers": "0"},
        {"source_address": "1"},
        {"source_agreements": ""},
        {"sites": ""},
        {},
        {"storage_quota": "1", "max_clients": "1", "tenant_id": "acme", "user_deletions": "9"},
    ],
    ids=str,
)
async def test_a_partial_change_keeps_the_rest(auth: Auth, caller: Caller, form: dict[str, str]) -> None:
    everything = {
        "client_authentication": "true",
        "allowed_networks": HERE,
        "version_key": "installer",
        "strict_installers": "true",
        "source_address": "false",
        "source_agreements": '[{"label": "Terms"}]',
        "sites": json.dumps([GRAZ]),
    }
    await edit(auth, caller, **everything)
    before = (await auth.call(caller, "POST", "find_tenant", json={})).body

    assert (await edit(auth, caller, **form)).status == 200

    after = (await auth.call(caller, "POST", "find_tenant", json={})).body
    changed = {name for name, value in after.items() if value != before[name]}
    assert changed == form.keys() & everything.keys()


@each(
    "sent",
    [
        "terms",
        "{}",
        "[1]",
        "[{}]",
        '[{"label": " "}]',
        '[{"label": 1}]',
        '[{"url": "javascript:alert(1)"}]',
        '[{"label": "\\u0000"}]',
        json.dumps([{"label": "a" * 101}]),
        json.dumps([{"text": "a" * 9000}] * 2),
    ],
    ids=lambda sent: sent[:20],
)
async def test_invalid_source_agreements_are_refused(auth: Auth, caller: Caller, sent: str) -> None:
    answer = await edit(auth, caller, source_agreements=sent)

    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
    assert answer.body["detail"].startswith("source_agreements: ")
    assert (await settings(auth, caller))["source_agreements"] == ""


@each(
    ("sites", "reason"),
    [
        ("Graz", "not_sites"),
        ("7", "not_sites"),
        ([7], "not_sites"),
        ([{"name": "Graz"}], "not_sites"),
        ([{**GRAZ, "name": 1}], "not_sites"),
        ([{**GRAZ, "networks": [1]}], "not_sites"),
        ([{**GRAZ, "networks": "10.20.0.0/16"}], "not_sites"),
        ([{**GRAZ, "name": " "}], "site_name"),
        ([{**GRAZ, "name": "a" * 65}], "too_long"),
        ([{**GRAZ, "name": "a\u202eb"}], "bad_character"),
        ([{**GRAZ, "networks": []}], "site_networks"),
        ([{**GRAZ, "networks": [f"10.0.0.{last}" for last in range(101)]}], "site_networks"),
        ([{**GRAZ, "networks": ["Graz"]}], "not_a_network"),
        ([{**GRAZ, "downloads": ""}], "site_downloads"),
        ([{**GRAZ, "downloads": "graz.example.com"}], "site_downloads"),
        ([{**GRAZ, "downloads": "https://graz.example.com/"}], "site_downloads"),
        ([{**GRAZ, "downloads": "https://graz.example.com/cache"}], "site_downloads"),
        ([{**GRAZ, "downloads": "https://user@graz.example.com"}], "site_downloads"),
        ([{**GRAZ, "downloads": "https://graz.example.com?a=b"}], "site_downloads"),
        ([{**GRAZ, "downloads": "ftp://graz.example.com"}], "site_downloads"),
        ([GRAZ, GRAZ], "too_many_sites"),
        ([{**GRAZ, "name": f"Graz {number}"} for number in range(101)], "too_many_sites"),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_invalid_sites_are_refused(auth: Auth, caller: Caller, sites: object, reason: str) -> None:
    answer = await edit(auth, caller, sites=sites if isinstance(sites, str) else json.dumps(sites))

    assert (answer.status, answer.body["code"], answer.body["params"]["reason"]) == (400, "invalid_field", reason)
    assert (await settings(auth, caller))["sites"] == []


async def test_a_hundred_sites_are_stored_in_one_spelling(auth: Auth, caller: Caller) -> None:
    sites = [{**GRAZ, "name": f"Graz {n}", "networks": [f"10.{n}.3.4/16", f"10.{n}.0.0/16"]} for n in range(100)]

    assert (await edit(auth, caller, sites=json.dumps(sites))).status == 200
    stored = (await settings(auth, caller))["sites"]
    assert stored == [{**site, "networks": [f"10.{n}.0.0/16"]} for n, site in enumerate(sites)]


async def test_the_audit_log_has_the_sites(auth: Auth, caller: Caller) -> None:
    answer = await edit(auth, caller, sites=json.dumps([GRAZ]))

    before, after = json.loads(answer.headers[AUDIT_HEADER])["changes"]["sites"]
    assert (before, json.loads(after)) == ("", [GRAZ])


async def test_an_empty_list_allows_every_address(auth: Auth, caller: Caller) -> None:
    await edit(auth, caller, allowed_networks=HERE)

    assert (await edit(auth, caller, allowed_networks="")).status == 200
    assert (await settings(auth, caller))["allowed_networks"] == []


@each(
    ("ip", "sent", "stored"),
    [
        (HERE, HERE, HERE),
        (HERE, f"{HERE}/24", "192.0.2.0/24"),
        (HERE, "::ffff:192.0.2.7", HERE),
        ("::ffff:192.0.2.7", HERE, HERE),
        ("2001:db8::7", "2001:db8::1-2001:db8::f", "2001:db8::1-2001:db8::f"),
    ],
)
async def test_addresses_networks_and_ranges_are_stored_in_one_spelling(
    auth: Auth, caller: Caller, ip: str, sent: str, stored: str
) -> None:
    caller = replace(caller, ip=ip)

    assert (await edit(auth, caller, allowed_networks=sent)).status == 200
    assert (await settings(auth, caller))["allowed_networks"] == [stored]


@each(
    ("ip", "networks"),
    [
        (HERE, "192.0.2.8"),
        (HERE, "10.0.0.0/8, 2001:db8::/32"),
        (HERE, "192.0.2.8-192.0.2.255"),
        (HERE, "::/0"),
        ("2001:db8::7", "0.0.0.0/0"),
    ],
)
async def test_a_list_that_locks_out_the_caller_is_refused(auth: Auth, caller: Caller, ip: str, networks: str) -> None:
    answer = await edit(auth, replace(caller, ip=ip), allowed_networks=networks, client_authentication="true")

    assert (answer.status, answer.body["code"]) == (400, "shuts_out_caller")
    assert ip in answer.body["detail"]
    current = await settings(auth, caller)
    assert (current["allowed_networks"], current["client_authentication"]) == ([], False)


@each(
    ("field", "value"),
    [
        ("allowed_networks", f"{HERE},nonsense"),
        ("allowed_networks", ",".join([HERE] * 1001)),
        ("client_authentication", "yes"),
        ("client_authentication", ""),
        ("version_key", "neither"),
        ("version_key", ""),
        ("strict_installers", "perhaps"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_an_invalid_setting_is_refused_and_changes_nothing(
    auth: Auth, caller: Caller, field: str, value: str
) -> None:
    before = await settings(auth, caller)
    form = {"client_authentication": "true", "allowed_networks": HERE, "version_key": "installer", field: value}

    answer = await edit(auth, caller, **form)

    assert (answer.status, answer.body["detail"].partition(":")[0]) == (400, field)
    assert await settings(auth, caller) == before


async def test_a_checked_form_changes_nothing(auth: Auth, caller: Caller) -> None:
    before = await settings(auth, caller)
    for form, status in (
        ({"client_authentication": "true", "version_key": "installer"}, 200),
        ({"client_authentication": "true", "version_key": "neither"}, 400),
        ({"client_authentication": "true", "allowed_networks": "192.0.2.8"}, 400),
        ({}, 200),
    ):
        assert (await auth.call(caller, "PATCH", "check_settings", data=form)).status == status
        assert await settings(auth, caller) == before


async def test_a_change_has_an_audit_target(auth: Auth, caller: Caller) -> None:
    answer = await edit(auth, caller, client_authentication="1", allowed_networks=f"{HERE},10.0.0.0/8")

    changes = {"client_authentication": ["false", "true"], "allowed_networks": ["", f"{HERE},10.0.0.0/8"]}
    assert json.loads(answer.headers[AUDIT_HEADER]) == {"target": {}, "changes": changes}


async def test_a_refused_change_has_an_audit_target(auth: Auth) -> None:
    unknown_caller = make_caller(ip=HERE)

    answer = await edit(auth, unknown_caller, version_key="installer")

    assert answer.status == 404
    assert json.loads(answer.headers[AUDIT_HEADER]) == {"target": {"version_key": "installer"}, "changes": {}}


async def test_the_audit_target_of_the_longest_list_fits_a_header(auth: Auth, caller: Caller) -> None:
    longest = [HERE, *(f"2001:db8:ffff:{n:x}::ffff:ffff-2001:db8:ffff:{n:x}:ffff:ffff:ffff:ffff" for n in range(999))]
    form = {
        "allowed_networks": ",".join(longest),
        "source_agreements": json.dumps([{"text": "\u00fc" * 7900}] * 2, ensure_ascii=False),
    }

    for _ in range(2):
        answer = await edit(auth, caller, **form)

    assert answer.status == 200
    stored = (await auth.tenants.find(caller.tenant_id)).allowed_networks
    assert len(stored) == len(longest)
    assert len(answer.headers[AUDIT_HEADER]) < HEADER_LIMIT
    assert json.loads(answer.headers[AUDIT_HEADER])["changes"]["allowed_networks"] == [to_audit_text(stored)] * 2


async def test_the_gateway_receives_all_settings(auth: Auth) -> None:
    caller = await auth.tenant(storage_quota=5, max_clients=2, allowed_networks=("10.0.0.0/8",), entra=APP)

    answer = await auth.call(caller, "POST", "find_tenant", json={})

    assert (answer.status, answer.body) == (
        200,
        {
            "tenant_id": caller.tenant_id,
            "client_authentication": False,
            "allowed_networks": ["10.0.0.0/8"],
            "storage_quota": 5,
            "max_clients": 2,
            "version_key": "version",
            "strict_installers": False,
            "source_address": True,
            "source_agreements": "",
            "login_name": "",
            "password_login": True,
            "entra": {
                "directories": [DIRECTORY],
                "client_id": APP.client_id,
                "resource": APP.resource,
                "scope": APP.scope,
                "rings": [["Pilot", "pilot"], ["group-1", "broad"]],
            },
            "sites": [],
        },
    )


@each(("method", "operation"), [("POST", "find_tenant"), ("PATCH", "edit_settings")])
async def test_an_unknown_tenant_is_refused(auth: Auth, method: str, operation: str) -> None:
    answer = await auth.call(make_caller(ip=HERE), method, operation, data={"version_key": "version"})

    assert (answer.status, answer.body["code"]) == (404, "tenant_not_found")


async def test_deleting_a_tenant_keeps_other_tenants(auth: Auth, caller: Caller) -> None:
    other = await auth.tenant()

    await auth.tenants.delete(other.tenant_id)

    assert (await auth.login(caller)).status == 200
