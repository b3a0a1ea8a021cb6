"""The text of the roll-out script: what PowerShell, Intune and a log make of it."""

import json
import re

import pytest

from common.tenants import EntraApp
from gateway.dashboard.pages.rollout import RolloutKit
from gateway.winget import source_identifier
from tests.support.factories import make_caller, make_tenant
from tests.support.system.rollout_script import settings_of

BASE = "https://packages.example.com/acme"


@pytest.fixture
def kit() -> RolloutKit:
    return RolloutKit(make_caller(make_tenant(tenant_id="acme"), base_url=BASE))


def lines_with(kit: RolloutKit, *parts: str) -> list[str]:
    return [line.strip() for line in kit.script.splitlines() if all(part in line for part in parts)]


def test_the_first_lines_are_the_settings(kit: RolloutKit) -> None:
    assert settings_of(kit.script) == {
        "token": "<token>",
        "allUsers": "false",
        "explicit": "false",
        "priority": "null",
        "defaultSource": "true",
        "name": "acme",
        "address": BASE,
        "identifier": source_identifier(kit.tenant),
        "ErrorActionPreference": "Stop",
        "ProgressPreference": "SilentlyContinue",
        "policies": r"HKLM:\SOFTWARE\Policies\Microsoft\Windows\AppInstaller",
    }


def test_a_quote_in_the_address_ends_no_text() -> None:
    kit = RolloutKit(make_caller(base_url="https://a.example/'; calc; '"))
    assert settings_of(kit.script)["address"] == "https://a.example/'; calc; '"


def test_the_token_is_sent_in_one_header_only(kit: RolloutKit) -> None:
    assert kit.script.count("<token>") == 1
    (request,) = [line for line in lines_with(kit, "$token") if not line.startswith("$token =")]
    assert 'Uri "$address/enroll_client" -Headers @{ Authorization = "Bearer $token" }' in request
    assert request.count("$token") == 1


def test_no_output_has_the_personal_address(kit: RolloutKit) -> None:
    for line in lines_with(kit, "& $winget"):
        assert "| Out-Null" in line or "$source = & $winget source export" in line, line
    shown = re.findall("(?:Write-Output|throw) (.*)", kit.script)
    assert len(shown) == 8
    for text in shown:
        assert not any(name in text for name in ("$personal", "$source", "$token", "$entry", "$options")), text


def test_a_source_is_added_as_trusted_and_without_a_question(kit: RolloutKit) -> None:
    (options,) = lines_with(kit, "$options = @(")
    assert "'--trust-level', 'trusted'" in options
    (add,) = lines_with(kit, "source add")
    assert "--accept-source-agreements --disable-interactivity" in add


def test_optional_settings_are_sent_only_if_they_are_set(kit: RolloutKit) -> None:
    assert lines_with(kit, "--explicit") == ["if ($explicit) { $options += '--explicit' }"]
    assert lines_with(kit, "--priority") == ["if ($null -ne $priority) { $options += '--priority', \"$priority\" }"]
    assert lines_with(kit, "EnableDefaultSource") == [
        "if (-not $defaultSource) { Set-Policy $policies 'EnableDefaultSource' 0 }"
    ]


def test_certificates_are_always_checked(kit: RolloutKit) -> None:
    script = kit.script.casefold()
    for way in ("skipcertificatecheck", "servercertificatevalidationcallback", "curl", "http://", "invoke-expression"):
        assert way not in script


def test_windows_powershell_reads_every_character(kit: RolloutKit) -> None:
    """Without a byte order mark it reads a file in the code page of the machine."""
    assert kit.script.isascii()
    assert [line for line in kit.script.splitlines() if line.startswith("'@")] == ["'@"]  # It ends a text at column 0.
    assert all(kit.script.count(left) == kit.script.count(right) for left, right in ("{}", "()", "[]"))


def test_the_policy_of_a_fleet_without_tokens_is_json(kit: RolloutKit) -> None:
    assert json.loads(kit.policy)["Arg"] == f"{BASE}/winget"


def test_the_script_is_the_same_with_entra_id(kit: RolloutKit) -> None:
    app = EntraApp(("3f2504e0-4f89-11d3-9a0c-0305e82c3301",), "3f2504e0-4f89-11d3-9a0c-0305e82c3301", "api://a", "b")
    tenant = make_tenant(tenant_id="acme", entra=app)
    assert RolloutKit(make_caller(tenant, base_url=BASE)).script == kit.script
