"""Builds the manifest of a package for winget clients, with the package's logo as an icon."""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from catalog_service.catalog.reader import EntryReader, RingReader, WholeEntry
from catalog_service.model.manifest import Icon, ReleaseTexts, VersionManifest
from catalog_service.model.manifest_fields import to_document
from catalog_service.model.packages import Package
from catalog_service.model.versions import Dependencies, PackageVersion
from catalog_service.winget.contracts import (
    PACKAGED,
    WITH_NESTED,
    Contract,
    installable_versions,
    since_contract,
    with_winget_names,
    without_empty,
)
from catalog_service.winget.index import Field
from catalog_service.winget.requests import Match, MatchType, Query, Search
from catalog_service.winget.search import WingetSearch
from common.auth.downloads import signed_query
from common.auth.internal_tokens import Caller
from common.auth.signing import Keys

# Fields that have another place or another name in the protocol.
ELSEWHERE = {*ReleaseTexts.model_fields, "locales", "installer_locale", "portable_command_alias", "signature_sha256"}


def installer(version: PackageVersion, contract: Contract, address: str) -> Mapping[str, Any]:
    """Return the members of an installer that the contract supports."""
    fields = {name: value for name, value in to_document(version.manifest).items() if name not in ELSEWHERE}
    entries = _entries(version, fields.pop("apps_and_features_entries", ()))
    markets = {name: fields.pop(name) for name in ("allowed_markets", "excluded_markets") if name in fields}
    metadata = {
        "default_install_location": fields.pop("default_install_location", ""),
        "files": fields.pop("installed_files", ()),
    }
    family_name = version.package_family_name
    if contract.minor < WITH_NESTED and version.effective_type not in PACKAGED:
        family_name = ""  # Older clients know no other types that install packaged apps.
    return contract.supported(
        without_empty(
            {
                **with_winget_names(fields),
                "Architecture": version.architecture.value,
                "InstallerType": version.installer_type.lower(),
                "InstallerUrl": address,
                "InstallerSha256": version.sha256.upper(),
                "SignatureSha256": signature_of(version).upper(),
                "InstallerLocale": version.language,
                "Scope": version.scope.value,
                "UpgradeBehavior": version.upgrades.value,
                "ProductCode": version.product_code,
                "PackageFamilyName": family_name,
                "InstallerSwitches": with_winget_names(without_empty(vars(version.switches))),
                "Dependencies": _dependencies(version.dependencies),
                "AppsAndFeaturesEntries": entries,
                "InstallationMetadata": with_winget_names(without_empty(metadata)),
                "Markets": with_winget_names(markets),
                **_nested(version),
            }
        )
    )


def signature_of(version: PackageVersion) -> str:
    """Return the SHA-256 of the signature of an MSIX or APPX; "" for other installers, or if it is unknown."""
    return version.manifest.signature_sha256 if version.installer_type in PACKAGED else ""


def _entries(version: PackageVersion, declared: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the entries of Apps and Features, with the version's upgrade code."""
    entries = [dict(entry) for entry in declared]
    for entry in entries:
        if "installer_type" in entry:
            entry["installer_type"] = entry["installer_type"].lower()
    if version.upgrade_code and version.effective_type not in PACKAGED:
        if not entries:
            entries.append({})
        entries[0].setdefault("upgrade_code", version.upgrade_code)
    return [with_winget_names(entry) for entry in entries]


def _nested(version: PackageVersion) -> Mapping[str, Any]:
    if version.effective_type in {None, version.installer_type}:
        return {}
    aliases = version.manifest.portable_command_alias or ("",) * len(version.nested_paths)
    files = zip(version.nested_paths, aliases, strict=True)
    return {
        "NestedInstallerType": version.effective_type.lower(),
        "NestedInstallerFiles": [
            without_empty({"RelativeFilePath": path, "PortableCommandAlias": alias}) for path, alias in files
        ],
    }


def _dependencies(dependencies: Dependencies) -> Mapping[str, Any]:
    packages = [
        without_empty({"PackageIdentifier": package.package_id, "MinimumVersion": package.min_version})
        for package in dependencies.packages
    ]
    return without_empty(
        {
            "WindowsFeatures": dependencies.windows_features,
            "WindowsLibraries": dependencies.windows_libraries,
            "PackageDependencies": packages,
            "ExternalDependencies": dependencies.external,
        }
    )


DEFAULT_LANGUAGE = "en-US"
SHORT = 256  # characters of a short description
UNKNOWN_LICENSE = "Unknown"  # Manifests require a license.
Address = Callable[[PackageVersion], str]


def manifest(entry: WholeEntry, contract: Contract, query: Query, address: Address) -> Mapping[str, Any] | None:
    """Return the manifest, None if the client can install nothing; `address` returns an installer's address."""
    requested = query.version.casefold()
    versions = [
        {
            "PackageVersion": version,
            **contract.supported(_locales(entry.package, supported[0].manifest)),
            "Installers": [installer(each, contract, address(each)) for each in supported],
        }
        for version, installers in installable_versions(entry).items()
        if requested in {"", version.casefold()}
        and (supported := list(_supported_installers(installers, contract, query.market)))
    ]
    return {"PackageIdentifier": entry.package.package_id, "Versions": versions} if versions else None


def _supported_installers(
    installers: Sequence[PackageVersion], contract: Contract, market: str
) -> Iterator[PackageVersion]:
    """Yield the installers that the contract supports in this market."""
    for version in installers:
        allowed, excluded = version.manifest.allowed_markets, version.manifest.excluded_markets
        in_market = not market or (market.upper() in allowed if allowed else market.upper() not in excluded)
        if in_market and contract.minor >= since_contract(version.installer_type, version.nested_type):
            yield version


def _locales(package: Package, version: VersionManifest) -> Mapping[str, Any]:
    """Return `DefaultLocale`, and `Locales` if there are further languages."""
    texts = to_document(package.manifest)
    default = texts.pop("package_locale", DEFAULT_LANGUAGE)
    others = {local.pop("package_locale"): local for local in texts.pop("locales", ())}
    for local in to_document(version).get("locales", ()):
        language = local.pop("package_locale")
        others[language] = {**others.get(language, {}), **local}
    description = package.description.strip()
    first_line = description.partition("\n")[0].strip()
    short = first_line if len(first_line) <= SHORT else f"{first_line[: SHORT - 1]}…"
    own = {
        "publisher": package.publisher,
        "package_name": package.name,
        "license": UNKNOWN_LICENSE,
        "short_description": short or package.name,
        "description": description if description != short else "",
        "release_notes": version.release_notes,
        "release_notes_url": version.release_notes_url,
    }
    further = [_locale(language, local) for language, local in others.items() if local and language != default]
    return without_empty({"DefaultLocale": _locale(default, {**own, **texts}), "Locales": further})


def _locale(language: str, texts: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"PackageLocale": language, **with_winget_names(without_empty(texts))}


@dataclass(frozen=True)
class SourceEntries:
    """Reads current packages with their logos and versions; letter case of an id does not matter."""

    read_entries: EntryReader[PackageVersion]
    search: WingetSearch
    read_logos: Callable[[str, Collection[str]], Awaitable[Mapping[str, bytes]]]
    read_rings: RingReader

    async def find(self, tenant_id: str, package_id: str, ring: str, hidden: frozenset[str]) -> WholeEntry | None:
        """Return the package of this id that a ring sees, else one whose id differs in letter case only."""
        entry = await self._read(tenant_id, package_id, ring, hidden)
        if entry is None:
            same_id = Match(frozenset([Field.IDENTIFIER]), package_id, MatchType.CASE_INSENSITIVE)
            for record in (await self.search.find(tenant_id, Search((same_id,), page=1), ring, hidden)).records:
                entry = entry or await self._read(tenant_id, record.package_id, ring, hidden)
        return entry

    async def _read(self, tenant_id: str, package_id: str, ring: str, hidden: frozenset[str]) -> WholeEntry | None:
        if package_id in hidden:
            return None
        async for (entry,) in self.read_entries(tenant_id, [package_id]):
            is_staged = any(version.stage for version in entry.names)  # The rings do not matter to others.
            rings = await self.read_rings(tenant_id) if is_staged else ()
            if seen := entry.offered_to(ring, rings):
                logos = await self.read_logos(tenant_id, [package_id])
                return replace(seen, package=replace(seen.package, logo=logos.get(package_id, b"")))
        return None


# Widths in pixels of square icons that the client has a word for; it calls every other size `custom`.
WIDTHS = frozenset([16, 20, 24, 30, 32, 36, 40, 48, 60, 64, 72, 80, 96, 256])


def with_logo_icon(entry: WholeEntry, url: str) -> WholeEntry:
    """Return the entry with its logo, which must be there, as the last icon of the package's default language."""
    package = entry.package
    width, height = _size(package.logo)
    icon = Icon(
        icon_url=url,
        icon_file_type="png",
        icon_resolution=f"{width}x{height}" if width == height and width in WIDTHS else "custom",
        icon_theme="default",
        icon_sha256=sha256(package.logo).hexdigest().upper(),
    )
    manifest = package.manifest.model_copy(update={"icons": (*package.manifest.icons, icon)})
    return replace(entry, package=replace(package, manifest=manifest))


def icon_url(caller: Caller, keys: Keys, package_id: str, logo: bytes, *, expires: int) -> str:
    """Return the absolute address of a logo, valid until `expires` (seconds since 1970) or until the logo changes."""
    name = file_name(logo)
    query = signed_query(keys, caller.tenant_id, stored_name(package_id), name, expires)
    return f"{caller.base_url}/icon/{quote(package_id, safe='')}/{name}?{query}"


def file_name(logo: bytes) -> str:
    """Return the last part of a logo's address: it changes with the logo."""
    return f"{sha256(logo).hexdigest()}.png"


def stored_name(package_id: str) -> str:
    """Return the text that is signed in place of a stored file's name, which cannot hold a slash."""
    return f"icon/{package_id}"


def _size(png: bytes) -> tuple[int, int]:
    """Width and height in pixels, from the header of a PNG image."""
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
