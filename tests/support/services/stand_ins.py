"""Stand-ins of services: what each answers another service. `tests/contract/test_stand_ins.py` compares the real ones.

A test uses a stand-in in place of a ServiceClient, or serves its `app`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from inspect import isawaitable
from typing import Any
from uuid import uuid4

from aiohttp import web

from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, Callers, Kind
from common.auth.signing import ApiToken
from common.errors import NotFound, Problem, UpstreamProblem
from common.http.middleware import json_response, problems
from common.tenants import ALL_TENANTS, Tenant
from tests.support.factories import KEYS

DIGEST = "ab" * 32
SIZE = 4096  # bytes of each file
NO_SCAN = {"state": "off", "reason": "", "engine": "", "signatures": "", "sha256": "", "at": None}
NO_SIGNATURE = {
    "state": "unsigned",
    "reason": "",
    "signer": "",
    "issuer": "",
    "signed_at": None,
    "at": None,
    "revocation": "not checked",
}
EMPTY_INSPECTION: dict[str, Any] = {
    "state": "done",
    "reason": "",
    "file_type": "",
    "file_architect": "",
    "file_scope": "",
    "package_version": "",
    "package_name": "",
    "package_publisher": "",
    "productcode": "",
    "upgradecode": "",
    "package_family_name": "",
    "signature_sha256": "",
    "nested": [],
    "signer": None,
    "signature": NO_SIGNATURE,
}


class InstallerNotFound(NotFound):
    code = "installer_not_found"


class TenantNotFound(NotFound):
    code = "tenant_not_found"


class TokenNotFound(NotFound):
    code = "token_not_found"


@dataclass
class StandIn:
    """Answers each operation with the method of its name, which takes the caller and the JSON body.

    It records the `requests`: operation and body. It raises the operation's one of `refusals`, or else `refusal`.
    """

    requests: list[tuple[str, Any]] = field(default_factory=list)
    refusal: Problem | None = None
    refusals: dict[str, Problem | None] = field(default_factory=dict)

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.requests]

    def reset(self) -> None:
        """Forget everything."""
        vars(self).update(vars(type(self)()))

    async def json(
        self, caller: Caller, operation: str, body: Mapping[str, Any] | None = None, *, timeout: float = 0
    ) -> Any:
        """Answer as a ServiceClient does. A refusal means that the service cannot be reached."""
        await asyncio.sleep(0)
        try:
            return await self._answer(caller, operation, body or {})
        except NotFound as problem:
            raise UpstreamProblem(problem.detail, status=problem.status, code=problem.code) from None

    def app(self, service: str) -> web.Application:
        """This stand-in as the service of this name."""
        callers = Callers(KEYS, service=service)

        async def answer(request: web.Request) -> web.Response:
            tenant_id, operation, rest = (request.match_info[name] for name in ("tenant_id", "operation", "rest"))
            token = request.headers.get(INTERNAL_TOKEN, "")
            caller = callers.verify(token, operation=operation, tenant_id=tenant_id)
            body = await request.json() if request.method == "POST" else rest.removeprefix("/")
            return json_response(await self._answer(caller, operation, body))

        app = web.Application(middlewares=[problems])
        app.router.add_route("*", "/{tenant_id}/{operation}{rest:.*}", answer)
        return app

    async def _answer(self, caller: Caller, operation: str, body: Any) -> Any:
        self.requests.append((operation, body))
        if refusal := self.refusals.get(operation, self.refusal):
            raise refusal
        answer = getattr(self, operation)(caller, body)
        return await answer if isawaitable(answer) else answer


@dataclass
class UploadStandIn(StandIn):
    """upload_service.

    `links` are the files by name, each with its version or None. `during` runs before the answer to a claim.
    Restricted tokens may not use the files in `others`. Other unknown files are free too, except the `missing` ones.
    `damaged` are the damaged installers. `downloads` are the counts, requested for `days`. `inspected` are the facts
    of every file; `not_inspected` is raised instead, if set. A claim answers `claim_fields` of them, and
    `late_claim_fields` too after the first inspection.
    """

    links: dict[str, str | None] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    damaged: list[dict[str, str]] = field(default_factory=list)
    inspected: dict[str, Any] = field(default_factory=dict)
    claim_fields: dict[str, str] = field(default_factory=dict)
    late_claim_fields: dict[str, str] = field(default_factory=dict)
    downloads: dict[str, dict[str, int]] = field(default_factory=dict)
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)  # by version, of its file
    withheld: dict[str, tuple[int, bool]] = field(default_factory=dict)  # fence and state, by version
    infected: list[tuple[str, str]] = field(default_factory=list)  # tenants and versions
    hangs: bool = False  # for download counts
    days: int = 0
    counting_since: str | None = None
    not_inspected: Problem | None = None
    during: Callable[[], Awaitable[object]] | None = None
    usage: dict[str, int] = field(
        default_factory=lambda: {"storage_used": 0, "storage_reserved": 0, "damaged_installers": 0}
    )

    def add_file(self) -> str:
        """Add an uploaded file. Returns its name."""
        name = f"{uuid4()}.msi"
        self.links[name] = None
        return name

    @property
    def linked_uids(self) -> set[str]:
        return {uid for uid in self.links.values() if uid}

    async def claim_installer(self, _: Caller, body: Any) -> object:
        name, uid = body["server_filename"], body["version_uid"]
        if name not in self.links or self.links[name] not in {None, uid}:
            raise InstallerNotFound("There is no such file.")
        self.links[name] = uid
        withhold = bool(body.get("withheld"))
        if withhold:
            self.withheld.setdefault(uid, (0, True))
        if self.during:
            await self.during()
        is_withheld = withhold or self.withheld.get(uid, (0, False))[1]
        return {"size": SIZE, "sha256": DIGEST, "is_withheld": is_withheld, **self.claim_fields}

    def inspect_installer(self, _: Caller, body: Any) -> object:
        name = body["server_filename"]
        if name not in self.links:
            raise InstallerNotFound("There is no such file.")
        if self.not_inspected:
            raise self.not_inspected
        self.claim_fields = {**self.claim_fields, **self.late_claim_fields}
        return {"server_filename": name, **EMPTY_INSPECTION, **self.inspected}

    def inspect_upload(self, caller: Caller, server_filename: str) -> object:
        if server_filename not in self.links:
            raise InstallerNotFound("There is no such file.")
        if server_filename in self.others:
            caller.require_uploader("another user")
        return {"server_filename": server_filename, **EMPTY_INSPECTION, "scan": NO_SCAN}

    def release_installers(self, _: Caller, body: Any) -> object:
        self.links = {name: uid for name, uid in self.links.items() if uid not in body["version_uids"]}
        return {}

    def unclaimed_installers(self, _: Caller, body: Any) -> object:
        requested = body["server_filenames"]
        names = [name for name in requested if self.links.get(name) is None and name not in self.missing]
        return {"server_filenames": names}

    def damaged_installers(self, _: Caller, __: Any) -> object:
        return {"installers": self.damaged}

    async def download_counts(self, _: Caller, body: Any) -> object:
        if self.hangs:
            await asyncio.Event().wait()
        self.days = body["days"]
        return {"versions": self.downloads, "since": self.counting_since}

    def download_totals(self, _: Caller, body: Any) -> object:
        self.days = body["days"]
        days: Counter[str] = Counter()
        for numbers in self.downloads.values():
            days.update(numbers)
        return {"days": days, "versions": {uid: sum(numbers.values()) for uid, numbers in self.downloads.items()}}

    def installer_checks(self, _: Caller, body: Any) -> object:
        return {"installers": {uid: self.checks[uid] for uid in body["version_uids"] if uid in self.checks}}

    def withhold_installers(self, _: Caller, body: Any) -> object:
        for version in body["versions"]:
            if version["fence"] > self.withheld.get(version["uid"], (-1, False))[0]:
                self.withheld[version["uid"]] = version["fence"], version["withheld"]
        return {}

    def infected_installers(self, caller: Caller, _: Any) -> object:
        asked = caller.tenant_id
        return {"installers": [[tenant, uid] for tenant, uid in self.infected if asked in {tenant, ALL_TENANTS}]}

    def storage_usage(self, _: Caller, __: Any) -> object:
        return self.usage


@dataclass
class RegistryStandIn(StandIn):
    """client_registry.

    `clients` are the ids and rings of clients by tenant and token. `hidden` are the package ids that are hidden in a
    tenant, from a client, or at an address. `no_address` are the ids of clients that may not use a source address.
    """

    no_address: set[str] = field(default_factory=set)
    clients: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    hidden: dict[str, list[str]] = field(default_factory=dict)

    def identify_client(self, caller: Caller, body: Any) -> object:
        client_id, ring = self.clients.get((caller.tenant_id, body["auth_token"]), (None, ""))
        return {"client_id": client_id, "ring": ring, "source_address": client_id not in {None, *self.no_address}}

    def hidden_packages(self, caller: Caller, _: Any) -> object:
        places = (caller.tenant_id, caller.client_id, caller.ip) if caller.kind is Kind.CLIENT else ()
        return {"package_ids": sorted({package_id for place in places for package_id in self.hidden.get(place, ())})}

    def client_usage(self, caller: Caller, body: Any) -> object:
        rings = body.get("rings", ())
        chosen = [ring for (tenant_id, _), (_, ring) in self.clients.items() if tenant_id == caller.tenant_id]
        placed = Counter(ring if ring in rings else rings[-1] for ring in chosen) if rings else {}
        return {"clients": len(chosen), "clients_by_ring": {ring: placed[ring] for ring in rings}}


@dataclass
class AuthStandIn(StandIn):
    """auth_service.

    `tenants` are those that exist, `roles` those of users by tenant and name. `tokens` are the fields of API tokens by
    their text. `audited` are the recorded entries by their ids.
    """

    tenants: dict[str, Tenant] = field(default_factory=dict)
    roles: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    audited: dict[str, dict[str, Any]] = field(default_factory=dict)

    def find_tenant(self, caller: Caller, _: Any) -> object:
        if caller.tenant_id not in self.tenants:
            raise TenantNotFound("There is no such tenant.")
        return self.tenants[caller.tenant_id].to_document()

    def find_roles(self, caller: Caller, _: Any) -> object:
        return {"roles": self.roles.get((caller.tenant_id, caller.username), [])}

    def identify_token(self, _: Caller, body: Any) -> object:
        for text, fields in self.tokens.items():
            token = ApiToken.parse(text)
            if body == vars(token):
                now = datetime.now(UTC)
                rights = {"name": "ci", "role": ["publisher"], "package_ids": ["*"], "networks": []}
                dates = {"created_at": now.isoformat(), "expires_at": now.timestamp() + 60, "last_used": None}
                return {"token_id": token.token_id, "created_by": "ada", **rights, **dates, **fields}
        raise TokenNotFound("There is no token with this id.")

    def identify_entra_user(self, _: Caller, body: Any) -> object:
        """The user has every app role: the first rule gives the ring."""
        rings = [ring for _, ring in body["rules"]]
        return {"ring": rings[0] if rings else "", "expires_at": datetime.now(UTC).timestamp() + 60}

    def record_audit(self, _: Caller, entry: Any) -> object:
        self.audited.setdefault(entry["id"], entry)
        return {}


@dataclass
class CatalogStandIn(StandIn):
    """catalog_service, whose tenants all have one `policy`."""

    policy: dict[str, Any] = field(
        default_factory=lambda: {"rings": [], "ring_rules": [], "gates": {}, "retention": []}
    )

    def find_release_policy(self, _: Caller, __: Any) -> object:
        return self.policy
