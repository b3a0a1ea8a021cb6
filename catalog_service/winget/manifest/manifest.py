"""Builds the manifest of a package for winget clients."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.versions import PackageVersion
from catalog_service.winget.contracts import Contract, since_contract
from catalog_service.winget.installable import installable_versions
from catalog_service.winget.manifest.installers import installer
from catalog_service.winget.manifest.locales import locales
from catalog_service.winget.search.requests import Query

Address = Callable[[PackageVersion], str]


def manifest(entry: WholeEntry, contract: Contract, query: Query, address: Address) -> Mapping[str, Any] | None:
    """Return the manifest, None if the client can install nothing; `address` returns an installer's address."""
    requested = query.version.casefold()
    versions = [
        {
            "PackageVersion": version,
            **contract.supported(locales(entry.package, supported[0].manifest)),
            "Installers": [installer(one, contract, address(one)) for one in supported],
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
