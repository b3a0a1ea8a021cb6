"""A tenant with rings on all services, and clients of each ring that read everything that clients can read."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from yarl import URL

from common.mongo import MongoDatabase
from tests.support.api import Answer
from tests.support.system.publishing import add_package, package_id, publish, version_of
from tests.support.system.services import PASSWORD, Api, Services
from tests.support.wait import until

TOKEN_HEADER = "Windows-Package-Manager"
Seen = dict[str, set[str]]  # the versions that a client sees, by operation


@dataclass
class ReleaseSystem:
    """The users ada, bob and eve, a client of each ring, and one that changes its ring."""

    catalog: MongoDatabase
    api: Api
    package_id: str
    users: dict[str, Api] = field(default_factory=dict)
    clients: dict[str, tuple[str, str]] = field(default_factory=dict)  # ids and tokens
    links: dict[str, str] = field(default_factory=dict)  # by version

    @classmethod
    async def create(
        cls, services: Services, catalog: MongoDatabase, rings: tuple[str, ...], gates: object
    ) -> "ReleaseSystem":
        api = await services.tenant()
        tenant = cls(catalog, api, package_id())
        await add_package(api, tenant.package_id)
        policy = {"rings": ",".join(rings), "gates": orjson.dumps(gates).decode()}
        assert (await api.call("PATCH", "edit_settings", data=policy)).status == 200
        for name in ("ada", "bob", "eve"):
            assert (await api.call("POST", "add_user", data={"username": name, "password": PASSWORD})).status == 201
            tenant.users[name] = await api.signed_in(name)
        for ring in (*rings, "mover"):
            client = (await api.call("POST", "add_client", data={"client_name": ring})).body
            tenant.clients[ring] = client["client_id"], client["auth_token"]
            if ring != "mover":
                await tenant.move_client(ring, ring)
        return tenant

    async def publish(self, version: str) -> str:
        published = await publish(self.users["ada"], self.package_id, version)
        self.links[published.uid] = (await version_of(self.api, published))["INSTALLER_URL"]
        return published.uid

    async def send_as(self, user: str, operation: str, uid: str, **data: str) -> Answer:
        return await self.users[user].call("POST", operation, uid, data=data)

    async def releases(self) -> dict[str, dict[str, Any]]:
        """The releases of all versions, by their uids."""
        answer = await self.api.call("GET", "find_releases", params={"state": "all"})
        return {release["uid"]: release for release in answer.body["releases"]}

    async def is_withheld(self, uid: str) -> bool:
        """Whether the file is not delivered at an address from its publication."""
        async with self.api.session.head(URL(self.links[uid], encoded=True)) as response:
            assert response.status in {200, 404}
            return response.status == 404

    async def move_client(self, client: str, ring: str) -> None:
        answer = await self.api.call("PATCH", "edit_client", self.clients[client][0], data={"ring": ring})
        assert answer.status == 200, answer.body

    async def seen_by(self, client: str) -> Seen:
        """The versions of the package in the answers to a client."""
        api, token = self.api.anonymous(), self.clients[client][1]
        packages = (await api.call("POST", "get_packages", data={"auth_token": token})).body
        own = {TOKEN_HEADER: token}
        match = {"KeyWord": self.package_id, "MatchType": "Exact"}
        body = {"Filters": [{"PackageMatchField": "PackageIdentifier", "RequestMatch": match}]}
        search = await api.call("POST", "winget", "manifestSearch", json=body, headers=own)
        manifest = await api.call("GET", "winget", "packageManifests", self.package_id, headers=own)
        found = search.body["Data"] if search.status == 200 else []
        versions = manifest.body["Data"]["Versions"] if manifest.status == 200 else []
        return {
            "get_packages": {version for package in packages for version in package["VERSIONS"]},
            "manifestSearch": {version["PackageVersion"] for package in found for version in package["Versions"]},
            "packageManifests": {version["PackageVersion"] for version in versions},
        }

    async def days_pass(self, days: int) -> None:
        """Move all times of the tenant's versions into the past, and wait until the service has looked at them."""
        milliseconds = days * 24 * 3600 * 1000
        earlier = {"$mergeObjects": ["$$this", {"at": {"$subtract": ["$$this.at", milliseconds]}}]}
        times = {
            "changed_at": {"$subtract": ["$changed_at", milliseconds]},
            "release.entered": {"$map": {"input": "$release.entered", "in": earlier}},
            "release.due": datetime.now(UTC) - timedelta(hours=1),
        }
        tenant: dict[str, Any] = {"tenant_id": self.api.tenant_id}
        await self.catalog["versions"].update_many(tenant, [{"$set": times}])

        async def is_looked_at() -> bool:
            past = {"release.due": {"$lte": datetime.now(UTC) - timedelta(minutes=30)}}
            return not await self.catalog["versions"].count_documents({**tenant, **past})

        await until(is_looked_at)
