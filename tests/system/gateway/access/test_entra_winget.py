"""winget signs users in with Entra ID, and SYSTEM shows a client token."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from auth_service.app import create_app as create_auth_service
from auth_service.settings import AuthSettings
from common.http.server import serving
from gateway.app import create_app as create_gateway
from gateway.settings import GatewaySettings
from tests.support.api import Answer
from tests.support.factories import KEY, KEYS
from tests.support.servers.entra import APP, OTHER_DIRECTORY, Entra, running_entra
from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.services import Api, Services, bearer
from tests.support.winget.client import WingetClient
from tests.support.winget.rules import AnswerRejected

HEADER = "Windows-Package-Manager"
ANSWERED = {200, 204}  # 204: an empty catalog
LISTING = {"FetchAllManifests": True}


@dataclass(frozen=True)
class EntraServices:
    """A gateway and an auth_service that read the settings of a double of Entra ID, beside the other services."""

    entra: Entra
    services: Services

    async def tenant(self, **settings: Any) -> Api:
        return await self.services.tenant(**{"entra": APP, "client_authentication": True, **settings})


@pytest.fixture(scope="module")
async def served(
    services: Services, mongo_url: str, redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[EntraServices]:
    folder: Path = tmp_path_factory.mktemp("entra")
    settings: dict[str, Any] = {"audit_key": KEY, "internal_key": KEYS, "session_key": KEYS, "redis_url": redis_url}
    settings |= {f"{name}_url": url for name, url in services.addresses.items() if "_" in name}
    async with running_entra(folder) as entra:
        auth = AuthSettings(**settings, mongo_url=mongo_url, entra_authority=entra.authority)
        async with serving(create_auth_service(auth), "127.0.0.1:0") as auth_address:
            gateway = create_gateway(GatewaySettings(**{**settings, "auth_service_url": auth_address}))
            async with serving(gateway, "127.0.0.1:0") as address:
                yield EntraServices(entra, replace(services, addresses={**services.addresses, "multi": address}))


async def search(api: Api, *tokens: str, **headers: str) -> Answer:
    """Search without a session, with these Bearer tokens."""
    all_headers = [*(("Authorization", f"Bearer {token}") for token in tokens), *headers.items()]
    return await api.anonymous().call("POST", "winget", "manifestSearch", json=LISTING, headers=all_headers)


async def manifest(api: Api, name: str, token: str) -> Answer:
    headers = {**bearer(token), "Version": "1.10.0"}
    return await api.anonymous().call("GET", "winget", "packageManifests", name, headers=headers)


async def information(api: Api, **headers: str) -> Answer:
    return await api.anonymous().call("GET", "winget", "information", headers=headers)


async def client_token(api: Api) -> tuple[str, str]:
    """The id and the token of a new client."""
    answer = await api.call("POST", "add_client", data={"client_name": package_id()})
    assert answer.status == 201, answer.body
    return answer.body["client_id"], answer.body["auth_token"]


async def test_winget_is_told_to_sign_in_with_entra(served: EntraServices) -> None:
    answer = await information(await served.tenant())
    data = answer.body["Data"]
    assert data["Authentication"] == {
        "AuthenticationType": "microsoftEntraId",
        "MicrosoftEntraIdAuthenticationInfo": {"Resource": APP.resource, "Scope": APP.scope},
    }
    assert data["ServerSupportedVersions"] == ["1.7.0", "1.9.0", "1.10.0", "1.12.0", "1.28.0"]
    assert (answer.headers["Vary"], "public" in answer.headers["Cache-Control"]) == (HEADER, False)


async def test_a_tenant_without_an_app_announces_no_sign_in_and_ignores_tokens(served: EntraServices) -> None:
    api = await served.tenant(entra=None, client_authentication=False)
    answer = await information(api)
    assert "Authentication" not in answer.body["Data"]
    assert "Vary" not in answer.headers
    assert (await search(api, served.entra.token())).status in ANSWERED


async def test_a_client_older_than_contract_1_7_is_turned_away(served: EntraServices) -> None:
    api = await served.tenant()
    winget = WingetClient(api.session, f"{api.base_url}/winget", versions=["1.0.0", "1.6.0"])
    with pytest.raises(AnswerRejected):
        await winget.add()


async def test_only_a_valid_client_token_hides_entra(served: EntraServices) -> None:
    api, other = await served.tenant(), await served.tenant()
    client_id, token = await client_token(api)
    _, foreign = await client_token(other)
    answer = await information(api, **{HEADER: f"{{'Token': '{token}'}}"})
    assert "Authentication" not in answer.body["Data"]
    assert answer.body["Data"]["ServerSupportedVersions"][0] == "1.0.0"
    assert (answer.headers["Vary"], "public" in answer.headers["Cache-Control"]) == (HEADER, False)
    for wrong in ("x", foreign, served.entra.token(), api.headers["Authorization"].removeprefix("Bearer ")):
        assert "Authentication" in (await information(api, **{HEADER: wrong})).body["Data"]
    await api.call("PATCH", "edit_client", client_id, data={"enabled": "0"})
    assert "Authentication" in (await information(api, **{HEADER: token})).body["Data"]


async def test_an_access_token_searches_and_shows_manifests(served: EntraServices) -> None:
    api, name = await served.tenant(), package_id()
    await add_package(api, name)
    await publish(api, name, "1.2")
    for version in (1, 2):
        token = served.entra.token(served.entra.claims(version))
        for _ in range(2):  # The second answer comes from the caches.
            found = await search(api, token)
            assert [hit["PackageIdentifier"] for hit in found.body["Data"]] == [name]
            shown = await manifest(api, name, token)
            assert [row["PackageVersion"] for row in shown.body["Data"]["Versions"]] == ["1.2"]


async def test_a_refused_token_has_no_rights(served: EntraServices) -> None:
    entra, wrong = served.entra, served.entra.token({**served.entra.claims(), "scp": "other"})
    closed = await served.tenant()
    for api in (closed, await served.tenant(client_authentication=False)):
        for token in (wrong, entra.token().rpartition(".")[0] + "."):
            assert (await search(api, token)).status == 401
    assert (await search(closed, entra.token(), entra.token())).status == 401


async def test_an_access_token_opens_winget_only(served: EntraServices) -> None:
    api = await served.tenant()
    user = replace(api, headers=bearer(served.entra.token()))
    assert (await search(api, served.entra.token())).status in ANSWERED
    for method, operation in (
        ("POST", "get_packages"),
        ("POST", "client_version"),
        ("GET", "test"),
        ("GET", "server_information"),
        ("POST", "add_package"),
    ):
        assert (await user.call(method, operation)).status == 401, operation


async def test_a_tenant_takes_tokens_of_its_own_app_only(served: EntraServices) -> None:
    token = served.entra.token()
    api = await served.tenant()
    assert (await search(api, token)).status in ANSWERED
    for app in (replace(APP, client_id=OTHER_DIRECTORY), replace(APP, directories=(OTHER_DIRECTORY,)), None):
        await served.services.operator.tenants.edit(api.tenant_id, {"entra": app})
        assert (await search(api, token)).status == 401


async def test_the_blacklist_of_a_network_applies_to_entra_users(served: EntraServices) -> None:
    api, shown, hidden = await served.tenant(), package_id(), package_id()
    for name in (shown, hidden):
        await add_package(api, name)
        await publish(api, name)
    _, token = await client_token(api)
    answer = await api.call("POST", "add_blacklist_entry", data={"network": "127.0.0.0/8", "package_ids": hidden})
    assert answer.status == 201, answer.body
    for found in (await search(api, served.entra.token()), await search(api, **{HEADER: token})):
        assert [hit["PackageIdentifier"] for hit in found.body["Data"]] == [shown]
    assert (await manifest(api, hidden, served.entra.token())).status == 204


async def test_client_tokens_and_sessions_go_on_beside_entra(served: EntraServices) -> None:
    api = await served.tenant()
    _, token = await client_token(api)
    assert (await search(api, **{HEADER: token})).status in ANSWERED
    assert (await search(api, api.headers["Authorization"].removeprefix("Bearer "))).status in ANSWERED
    assert (await search(api, served.entra.token(), **{HEADER: "an-old-token"})).status in ANSWERED
    wrong = served.entra.token({**served.entra.claims(), "scp": "other"})
    assert (await search(api, wrong, **{HEADER: token})).status in ANSWERED


async def test_known_users_go_on_while_entra_is_away(served: EntraServices) -> None:
    api, token = await served.tenant(), served.entra.token()
    unknown = replace(APP, directories=(OTHER_DIRECTORY,))
    other = await served.tenant(entra=unknown)
    assert (await search(api, token)).status in ANSWERED
    served.entra.is_away = True
    try:
        assert (await search(api, token)).status in ANSWERED
        answer = await search(other, served.entra.token(served.entra.claims(2, OTHER_DIRECTORY)))
        assert (answer.status, answer.body["ErrorCode"], answer.headers["Retry-After"]) == (503, 503, "5")
        _, client = await client_token(other)
        assert (await search(other, **{HEADER: client})).status in ANSWERED
    finally:
        served.entra.is_away = False
