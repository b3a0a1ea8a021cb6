"""A package's manifest as winget reads it: what is empty is left out, and what the asker's contract does not know."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.versions import PackageVersion
from catalog_service.winget.contracts import Contract, since_contract
from catalog_service.winget.installable import InstallableVersion, installable_versions
from catalog_service.winget.manifest.installers import installer
from catalog_service.winget.manifest.locales import locales
from catalog_service.winget.search.requests import Query

Address = Callable[[PackageVersion], str]


def manifest(entry: WholeEntry, contract: Contract, query: Query, address: Address) -> Mapping[str, Any] | None:
    """What is offered of a package, or None where that is nothing; `address` gives the address of an installer."""
    wanted = query.version.casefold()
    versions = [
        {
            "PackageVersion": offer.version,
            **contract.supported(locales(entry.package, installers[0].manifest)),
            "Installers": [installer(version, contract, address(version)) for version in installers],
        }
        for offer in installable_versions(entry)
        if wanted in {"", offer.version.casefold()} and (installers := list(_known(offer, contract, query.market)))
    ]
    return {"PackageIdentifier": entry.package.package_id, "Versions": versions} if versions else None


def _known(offer: InstallableVersion, contract: Contract, market: str) -> Iterator[PackageVersion]:
    """The installers that a client of the contract knows what to do with, in this market."""
    for version in offer.installers:
        allowed, excluded = version.manifest.allowed_markets, version.manifest.excluded_markets
        here = not market or (market.upper() in allowed if allowed else market.upper() not in excluded)
        if here and contract.minor >= since_contract(version.installer_type, version.nested_type):
            yield version
