"""The schema version that brought each field and value. Clients ignore newer ones, so a manifest must not have them."""

from collections.abc import Iterator, Mapping
from typing import Any

from catalog_service.winget.contracts import MEMBERS_SINCE

NEWEST = 28  # of the versions 1.x

# Contracts have the same history, but there is no contract 1.2, and responses have no Authentication. Fields that only
# responses have do no harm here, because no schema has them.
_SINCE = {
    **MEMBERS_SINCE,
    "DisplayInstallWarnings": 2,
    "Documentations": 2,
    "InstallationNotes": 2,
    "PurchaseUrl": 2,
    "ReturnResponseUrl": 2,
    "UnsupportedArguments": 2,
    "Authentication": 10,
}
_VALUES_SINCE = {
    ("InstallerType", "portable"): 2,
    ("InstallerType", "font"): 12,
    ("NestedInstallerType", "font"): 12,
    ("UpgradeBehavior", "deny"): 6,
    ("ReturnResponse", "custom"): 2,
    ("ReturnResponse", "invalidParameter"): 2,
    ("ReturnResponse", "packageInUseByApplication"): 2,
    ("ReturnResponse", "systemNotSupported"): 2,
}


def newer_fields(value: Any, minor: int, parent: str = "") -> Iterator[str]:
    """Yield a reason for each field and value that a manifest of the version 1.`minor` must not have."""
    for name, member in _members(value):
        path = f"{parent}[{name}]" if isinstance(name, int) else f"{parent}.{name}".strip(".")
        if (since := _SINCE.get(str(name), 0)) > minor:
            yield f"{path} is there from ManifestVersion 1.{since} on"
        if isinstance(member, str) and (since := _VALUES_SINCE.get((str(name), member), 0)) > minor:
            yield f"{path}: {member} is there from ManifestVersion 1.{since} on"
        yield from newer_fields(member, minor, path)


def _members(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
