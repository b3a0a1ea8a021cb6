"""The stand-ins of services answer as the real services do: one suite runs on both."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from common.auth.internal_tokens import Caller
from common.auth.roles import Role
from common.auth.signing import ApiToken, new_token, new_token_id
from common.errors import UpstreamProblem
from common.http.server import serving
from common.mongo import MongoDatabase, open_database
from common.service_client.client import ServiceClient, json_of, open_service
from common.tenants import ALL_TENANTS, Tenant
from tests.support.factories import KEYS, make_caller, make_tenant
from tests.support.releases import AT
from tests.support.services.auth import Auth, serving_auth
from tests.support.services.catalog import serving_catalog
from tests.support.services.registry import Registry, serving_registry
from tests.support.services.releases import checks
from tests.support.services.stand_ins import AuthStandIn, CatalogStandIn, RegistryStandIn, UploadStandIn
from tests.support.services.upload import UploadApi, serving_uploads, settings_for
from upload_service.downloads.store import Download, MongoDownloadStore

TODAY = datetime.now(UTC).date().isoformat()
ENTRY = {
    "operation": "promote_version",
    "user": "service",
    "ip": "",
    "status": 200,
    "request_id": "",
    "target": {"uid": "v1"},
    "changes": {},
    "at": AT,
}


def shape(answer: Any) -> Any:
    """The names and the types in an answer."""
    if isinstance(answer, Mapping):
        return {name: shape(value) for name, value in answer.items()}
    return [shape(item) for item in answer] if isinstance(answer, list) else type(answer)


async def error_of(service: ServiceClient, caller: Caller, operation: str, **body: Any) -> tuple[int, str]:
    """The status and the code of a refusal."""
    with pytest.raises(UpstreamProblem) as error:
        await service.json(caller, operation, body)
    return error.value.status, error.value.code


@dataclass
class Uploads:
    """upload_service, or its stand-in, and what happens to its files."""

    service: ServiceClient
    stand_in: UploadStandIn | None = None
    api: UploadApi | None = None
    database: MongoDatabase | None = None

    async def add_file(self, caller: Caller) -> str:
        if self.api:
            return await self.api.upload(caller, b"MZ file")
        assert self.stand_in
        return self.stand_in.add_file()

    async def claim(self, caller: Caller, name: str, uid: str, **options: Any) -> Any:
        return await self.service.json(
            caller, "claim_installer", {"server_filename": name, "version_uid": uid, **options}
        )

    async def claim_error(self, caller: Caller, name: str, uid: str) -> tuple[int, str]:
        return await error_of(self.service, caller, "claim_installer", server_filename=name, version_uid=uid)

    async def add_findings(self, caller: Caller, name: str) -> None:
        """The file of version v1 is damaged and infected, and was downloaded once."""
        if self.stand_in:
            self.stand_in.infected, self.stand_in.downloads = [(caller.tenant_id, "v1")], {"v1": {TODAY: 1}}
            self.stand_in.checks = {"v1": checks("infected", "unsigned")}
            finding = {"server_filename": name, "version_uid": "v1", "damage": "missing", "found_at": AT}
            self.stand_in.damaged = [finding]
            return
        assert self.database is not None
        scan = {**checks("infected")["scan"], "at": datetime.now(UTC)}
        found = {"damage": "missing", "damaged_at": datetime.now(UTC), "scan": scan}
        await self.database["uploads"].update_one({"tenant_id": caller.tenant_id}, {"$set": found})
        await MongoDownloadStore(self.database).add([Download(caller.tenant_id, "v1", "c1", datetime.now(UTC))])


@pytest.fixture(params=["stand-in", "real"])
async def uploads(request: pytest.FixtureRequest, mongo_url: str, tmp_path: Path) -> AsyncIterator[Uploads]:
    async with AsyncExitStack() as stack:
        if request.param == "stand-in":
            stand_in = UploadStandIn()
            address = await stack.enter_async_context(serving(stand_in.app("upload_service"), "127.0.0.1:0"))
            service = await stack.enter_async_context(open_service(address, service="upload_service", keys=KEYS))
            yield Uploads(service, stand_in)
            return
        settings = settings_for(mongo_url, tmp_path)
        api = await stack.enter_async_context(serving_uploads(settings))
        database = await stack.enter_async_context(open_database(mongo_url, settings.database))
        service = await stack.enter_async_context(
            open_service(api.service.address, service="upload_service", keys=KEYS)
        )
        yield Uploads(service, api=api, database=database)


async def test_a_file_is_claimed_for_one_version(uploads: Uploads) -> None:
    caller, not_found = make_caller(), (404, "installer_not_found")
    name, free = await uploads.add_file(caller), await uploads.add_file(caller)
    for _ in range(2):
        file = await uploads.claim(caller, name, "v1")
        assert shape(file) == {"size": int, "sha256": str, "is_withheld": bool}
        assert not file["is_withheld"]
    for other, uid in ((name, "v2"), ("unknown.msi", "v1")):
        assert await uploads.claim_error(caller, other, uid) == not_found
    unclaimed = await uploads.service.json(caller, "unclaimed_installers", {"server_filenames": [name, free]})
    assert unclaimed == {"server_filenames": [free]}

    for _ in range(2):
        assert await uploads.service.json(caller, "release_installers", {"version_uids": ["v1", "v9"]}) == {}
    assert (
        await error_of(uploads.service, caller, "claim_installer", server_filename=name, version_uid="v1") == not_found
    )


async def test_a_file_is_withheld_by_the_newest_fence(uploads: Uploads) -> None:
    caller = make_caller()
    name = await uploads.add_file(caller)
    assert (await uploads.claim(caller, name, "v1", withheld=True))["is_withheld"]
    for fence, withheld, expected in ((0, False, True), (2, False, False), (1, True, False), (3, True, True)):
        change = {"uid": "v1", "withheld": withheld, "fence": fence}
        assert await uploads.service.json(caller, "withhold_installers", {"versions": [change]}) == {}
        assert (await uploads.claim(caller, name, "v1"))["is_withheld"] is expected
    await uploads.service.json(caller, "withhold_installers", {"versions": [{**change, "fence": 4, "withheld": False}]})
    assert (await uploads.claim(caller, name, "v1", withheld=True))["is_withheld"]


async def test_an_inspection_has_the_fields_of_the_form(uploads: Uploads) -> None:
    caller = make_caller()
    name = await uploads.add_file(caller)
    token = replace(caller, username="token:ci", roles=(Role.PUBLISHER,), packages=("Acme.*",))
    inspection = await uploads.service.json(caller, "inspect_installer", {"server_filename": name})
    async with uploads.service.open(caller, "GET", ["inspect_upload", name]) as response:
        upload = shape(await json_of(response))
    assert upload.keys() - inspection.keys() == {"scan"}
    assert upload["scan"].keys() == checks()["scan"].keys()
    texts = "server_filename state reason file_type file_architect file_scope package_version package_name"
    texts += " package_publisher productcode upgradecode package_family_name signature_sha256"
    assert {field for field, value in inspection.items() if isinstance(value, str)} == set(texts.split())
    assert (inspection["nested"], inspection["signer"]) == ([], None)
    assert shape(inspection["signature"]).keys() == shape(checks()["signature"]).keys()
    assert inspection["state"] in {"done", "failed"}

    assert await error_of(uploads.service, caller, "inspect_installer", server_filename="unknown.msi") == (
        404,
        "installer_not_found",
    )
    if uploads.stand_in:
        uploads.stand_in.others = {name}
    for asked, expected in ((name, (403, "permission_missing")), ("unknown.msi", (404, "installer_not_found"))):
        with pytest.raises(UpstreamProblem) as error:
            async with uploads.service.open(token, "GET", ["inspect_upload", asked]) as response:
                await json_of(response)
        assert (error.value.status, error.value.code) == expected


async def test_findings_about_files_have_these_forms(uploads: Uploads) -> None:
    caller = make_caller()
    name = await uploads.add_file(caller)
    await uploads.claim(caller, name, "v1")
    await uploads.add_findings(caller, name)
    ask = uploads.service.json
    (damaged,) = (await ask(caller, "damaged_installers"))["installers"]
    assert {**damaged, "found_at": ""} == {
        "server_filename": name,
        "version_uid": "v1",
        "damage": "missing",
        "found_at": "",
    }
    for asking in (caller, Caller.service(Tenant(ALL_TENANTS))):
        assert [caller.tenant_id, "v1"] in (await ask(asking, "infected_installers"))["installers"]
    answer = await ask(caller, "installer_checks", {"version_uids": ["v1", "v2"]})
    assert answer.keys() == {"installers"}
    assert answer["installers"].keys() == {"v1"}
    found, expected = answer["installers"]["v1"], checks("infected")
    assert {part: set(found[part]) for part in ("scan", "signature")} == {
        part: set(expected[part]) for part in ("scan", "signature")
    }
    assert (set(found), found["scan"]["state"]) == ({"sha256", "scan", "signature"}, "infected")
    counts = await ask(caller, "download_counts", {"days": 7, "version_uids": ["v1"]})
    assert counts["versions"] == {"v1": {TODAY: 1}}
    assert counts["since"] is None or datetime.fromisoformat(counts["since"])
    assert await ask(caller, "download_totals", {"days": 7}) == {"days": {TODAY: 1}, "versions": {"v1": 1}}
    assert shape(await ask(caller, "storage_usage")) == dict.fromkeys(
        ("storage_used", "storage_reserved", "damaged_installers"), int
    )


@pytest.fixture(params=["stand-in", "real"])
async def auth(request: pytest.FixtureRequest, mongo_url: str, redis_url: str) -> AsyncIterator[AuthStandIn | Auth]:
    if request.param == "stand-in":
        yield AuthStandIn()
        return
    async with serving_auth(mongo_url, redis_url) as served:
        yield served


async def test_auth_service_knows_tenants_users_and_tokens(auth: AuthStandIn | Auth) -> None:
    tenant = make_tenant(allowed_networks=("127.0.0.0/8",), storage_quota=5)
    admin = make_caller(tenant, username="ada", roles=(Role.ADMINISTRATOR,))
    async with AsyncExitStack() as stack:
        if isinstance(auth, AuthStandIn):
            text = new_token(new_token_id())
            auth.tenants[tenant.tenant_id] = tenant
            auth.roles[tenant.tenant_id, "ada"] = ["administrator"]
            auth.tokens[text] = {}
            address = await stack.enter_async_context(serving(auth.app("auth_service"), "127.0.0.1:0"))
        else:
            await auth.tenants.create(tenant)
            await auth.add_user(admin, "ada")
            added = await auth.call(admin, "POST", "add_token", data={"name": "ci", "role": "publisher"})
            text, address = added.body["token"], auth.api.address
        service = await stack.enter_async_context(open_service(address, service="auth_service", keys=KEYS))
        caller = Caller.service(tenant)

        assert Tenant.from_document(await service.json(caller, "find_tenant")) == tenant
        unknown = Caller.service(make_tenant())
        assert await error_of(service, unknown, "find_tenant") == (404, "tenant_not_found")
        assert await service.json(admin, "find_roles") == {"roles": ["administrator"]}
        assert await service.json(replace(admin, username="eve"), "find_roles") == {"roles": []}

        token = await service.json(caller, "identify_token", vars(ApiToken.parse(text)))
        assert {name: token[name] for name in ("name", "role", "package_ids", "networks", "created_by")} == {
            "name": "ci",
            "role": ["publisher"],
            "package_ids": ["*"],
            "networks": [],
            "created_by": "ada",
        }
        assert shape({name: token[name] for name in ("token_id", "created_at", "expires_at")}) == {
            "token_id": str,
            "created_at": str,
            "expires_at": float,
        }
        assert token["last_used"] is None
        other = vars(ApiToken.parse(new_token(new_token_id())))
        assert await error_of(service, caller, "identify_token", **other) == (404, "token_not_found")

        for _ in range(2):
            assert await service.json(caller, "record_audit", {**ENTRY, "id": uuid4().hex}) == {}


@pytest.fixture(params=["stand-in", "real"])
async def registry(
    request: pytest.FixtureRequest, mongo_url: str, redis_url: str
) -> AsyncIterator[RegistryStandIn | Registry]:
    if request.param == "stand-in":
        yield RegistryStandIn()
        return
    async with serving_registry(mongo_url, redis_url) as served:
        yield served


async def test_client_registry_knows_clients_and_hidden_packages(registry: RegistryStandIn | Registry) -> None:
    caller, other = make_caller(), make_caller()
    async with AsyncExitStack() as stack:
        if isinstance(registry, RegistryStandIn):
            client_id, token = "c1", "a-token"
            registry.clients[caller.tenant_id, token] = client_id, "pilot"
            registry.hidden = {client_id: ["One", "Both"], "192.0.2.9": ["There", "Both"]}
            address = await stack.enter_async_context(serving(registry.app("client_registry"), "127.0.0.1:0"))
        else:
            added = await registry.add_client(caller)
            client_id, token, address = added["client_id"], added["auth_token"], registry.api.address
            await registry.call(caller, "PATCH", "edit_client", client_id, data={"ring": "pilot"})
            for entry in (
                {"client_id": client_id, "package_ids": "One,Both"},
                {"network": "192.0.2.9", "package_ids": "There,Both"},
            ):
                answer = await registry.call(caller, "POST", "add_blacklist_entry", data=entry)
                assert answer.status == 201, answer.body
        service = await stack.enter_async_context(open_service(address, service="client_registry", keys=KEYS))

        for asker, text, expected in ((caller, token, client_id), (caller, "wrong", None), (other, token, None)):
            answer = await service.json(asker, "identify_client", {"auth_token": text, "client": 1})
            assert answer == {
                "client_id": expected,
                "ring": "pilot" if expected else "",
                "source_address": bool(expected),
            }
        here, there = (replace(caller, ip=ip).as_client(client_id) for ip in ("192.0.2.1", "192.0.2.9"))
        for asker, hidden in ((here, ["Both", "One"]), (there, ["Both", "One", "There"]), (caller, [])):
            assert await service.json(asker, "hidden_packages") == {"package_ids": hidden}
        rings, pilot = {"rings": ["pilot", "everyone"], "ring_rules": []}, {"pilot": 1, "everyone": 0}
        assert await service.json(caller, "client_usage", rings) == {"clients": 1, "clients_by_ring": pilot}
        assert await service.json(other, "client_usage") == {"clients": 0, "clients_by_ring": {}}


@pytest.mark.parametrize("is_real", [False, True], ids=["stand-in", "real"])
async def test_catalog_service_has_a_policy_for_each_tenant(is_real: bool, mongo_url: str, redis_url: str) -> None:
    async with AsyncExitStack() as stack:
        if is_real:
            address = (await stack.enter_async_context(serving_catalog(mongo_url, redis_url))).api.address
        else:
            app = CatalogStandIn().app("catalog_service")
            address = await stack.enter_async_context(serving(app, "127.0.0.1:0"))
        service = await stack.enter_async_context(open_service(address, service="catalog_service", keys=KEYS))
        policy = await service.json(Caller.service(make_tenant()), "find_release_policy")
        assert policy == {"rings": [], "ring_rules": [], "gates": {}, "retention": []}
