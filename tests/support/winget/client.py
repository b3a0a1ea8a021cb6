"""A small model of Windows' winget client.

It sends the same requests and accepts the same answers. An answer that winget would discard raises AnswerRejected.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from aiohttp import ClientSession

from tests.support.winget.rules import AnswerRejected, check_hit, check_manifest

CONTRACTS = ("1.0.0", "1.1.0", "1.4.0", "1.5.0", "1.6.0", "1.7.0", "1.9.0", "1.10.0", "1.12.0", "1.28.0")
# A field, a match type and a keyword.
Match = tuple[str, str, str]


@dataclass(frozen=True)
class Hit:
    """A package of a search result, with its versions in the order of the answer."""

    package_id: str
    name: str
    publisher: str
    versions: Sequence[Mapping[str, Any]]

    @property
    def newest(self) -> str:
        return max((str(version["PackageVersion"]) for version in self.versions), key=version_key)


@dataclass(frozen=True)
class Installed:
    """A program in the list of installed programs."""

    name: str
    version: str
    product_code: str = ""
    family_name: str = ""


@dataclass
class WingetClient:
    """A client with one source. `header` is the user's `--header`.

    `https_only` rejects addresses without https, like the real client; services in tests have no certificates.
    `contract` is the negotiated version.
    """

    session: ClientSession
    address: str
    header: str = ""
    versions: Sequence[str] = CONTRACTS
    https_only: bool = False
    contract: str = ""

    async def add(self) -> Mapping[str, Any]:
        """`winget source add`: get the source's information, and choose the highest common contract."""
        data: Mapping[str, Any] = ((await self._request("GET", "information")) or {}).get("Data") or {}
        if not data.get("SourceIdentifier") or not data.get("ServerSupportedVersions"):
            raise AnswerRejected("no source")
        if not data.get("SourceAgreements", {"AgreementsIdentifier": "none"}).get("AgreementsIdentifier"):
            raise AnswerRejected("agreements without an identifier")
        supported = {_major_minor(version) for version in data["ServerSupportedVersions"]}
        common = [version for version in self.versions if _major_minor(version) in supported]
        if not common:
            raise AnswerRejected("no common contract")
        self.contract = max(common, key=version_key)
        return data

    async def search(
        self,
        query: str = "",
        *,
        inclusions: Iterable[Match] = (),
        filters: Iterable[Match] = (),
        limit: int = 0,
        kind: str = "Substring",
    ) -> list[Hit]:
        """`winget search`, also as used by other commands. Without arguments, it lists the whole source."""
        body: dict[str, Any] = {"MaximumResults": limit} if limit else {}
        if query:
            body["Query"] = {"KeyWord": query, "MatchType": kind}
        for name, matches in (("Inclusions", list(inclusions)), ("Filters", list(filters))):
            if matches:
                body[name] = [_filter(match) for match in matches]
        if not body.keys() - {"MaximumResults"}:
            body["FetchAllManifests"] = True
        hits: list[Hit] = []
        token: str | None = ""
        while token is not None and (not limit or len(hits) < limit):
            answer = await self._request("POST", "manifestSearch", token, json=body) or {}
            hits += [_hit(row) for row in answer.get("Data") or []]
            token = answer.get("ContinuationToken") or None
        return hits[: limit or None]

    async def manifests(self, package_id: str, **query: str) -> list[dict[str, Any]]:
        """All versions of a package. Empty if the package does not exist."""
        answer = await self._request("GET", f"packageManifests/{quote(package_id, safe='')}", params=query)
        if answer is None or answer.get("Data") is None:
            return []
        check_manifest(answer["Data"], int(self.contract.split(".")[1]))
        versions: list[dict[str, Any]] = answer["Data"]["Versions"]
        return versions

    async def show(self, package_id: str, version: str = "") -> dict[str, Any]:
        """`winget show --id`: the manifest of the newest version, or of `version`."""
        manifests = await self.manifests(package_id, **({"Version": version} if version else {}))
        matching = [row for row in manifests if version.casefold() in {"", row["PackageVersion"].casefold()}]
        if not matching:
            raise AnswerRejected("no such package or version")
        return max(matching, key=lambda row: version_key(row["PackageVersion"]))

    async def install(self, package_id: str, version: str = "", architecture: str = "x64") -> bytes:
        """`winget install`: download the installer for a machine without a token, and check its digest."""
        installers = (await self.show(package_id, version))["Installers"]
        applicable = [row for row in installers if row["Architecture"] in {architecture, "neutral"}]
        if not applicable:
            raise AnswerRejected("no applicable installer")
        self._check_scheme(applicable[0]["InstallerUrl"])
        async with self.session.get(applicable[0]["InstallerUrl"]) as response:
            content = await response.read()
            if response.status != 200:
                raise AnswerRejected(f"the download was answered {response.status}")
        if hashlib.sha256(content).hexdigest() != applicable[0]["InstallerSha256"].lower():
            raise AnswerRejected("another digest")
        return content

    async def upgrade(self, installed: Installed) -> tuple[str, str] | None:
        """`winget upgrade`: the package of an installed program and its newest version. None without a newer one."""
        known = {"ProductCode": installed.product_code, "PackageFamilyName": installed.family_name}
        codes = [(field, "Exact", code.casefold()) for field, code in known.items() if code]
        name = ("NormalizedPackageNameAndPublisher", "Exact", normalize_name(installed.name))
        hits = await self.search(inclusions=[*codes, name])
        if len(hits) != 1:
            return None
        newest = hits[0].newest
        return (hits[0].package_id, newest) if version_key(newest) > version_key(installed.version) else None

    async def _request(self, method: str, path: str, token: str | None = None, **request: Any) -> Any:
        self._check_scheme(self.address)
        if path != "information" and not self.contract:
            await self.add()
        headers = {"Content-Type": "application/json"} | ({"Version": self.contract} if self.contract else {})
        headers |= {"Windows-Package-Manager": self.header} if self.header else {}
        headers |= {"ContinuationToken": token} if token else {}
        async with self.session.request(method, f"{self.address}/{path}", headers=headers, **request) as response:
            if response.status == 204:
                return None
            is_json = response.headers.get("Content-Type", "").startswith("application/json")
            body = await response.json() if is_json else {}
            if response.status == 404 and {"code", "message"} <= body.keys():
                return None
            if response.status != 200 or not is_json:
                raise AnswerRejected(f"{response.status} {response.headers.get('Content-Type')}")
            return body

    def _check_scheme(self, address: str) -> None:
        if self.https_only and urlsplit(address).scheme != "https":
            raise AnswerRejected("an address without https")


def _filter(match: Match) -> dict[str, Any]:
    field, kind, keyword = match
    return {"PackageMatchField": field, "RequestMatch": {"KeyWord": keyword, "MatchType": kind}}


def _hit(row: Mapping[str, Any]) -> Hit:
    check_hit(row)
    return Hit(row["PackageIdentifier"], row["PackageName"], row["Publisher"], row["Versions"])


def _major_minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def version_key(version: str) -> tuple[int, ...]:
    """The sort key of a numeric version."""
    return tuple(int(part) for part in re.sub(r"(\.0+)+$", "", version).split("."))


def normalize_name(name: str) -> str:
    """A program's name as the client normalizes it, for the names in tests."""
    remaining = re.sub(r"\(.*?\)|\b\d+(\.\d+)+\b|\b(x64|x86)\b|\b(32|64)-bit\b", " ", name.casefold())
    return "".join(word for word in re.findall(r"[^\W_]+", remaining) if word not in {"inc", "corp", "gmbh", "ltd"})
