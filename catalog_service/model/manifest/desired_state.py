"""References from a version to the resources of Desired State Configuration that come with it."""

from dataclasses import dataclass
from typing import Annotated

from catalog_service.model.manifest.values import Record, Records, Text, Url

MODULE_NAME = Text(100, pattern=r"[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*", like="the name of a PowerShell module")
RESOURCE_NAME = Text(100, pattern="[A-Za-z][A-Za-z0-9_-]*", like="the name of a resource")
RESOURCE_TYPE = Text(
    256, pattern=r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){0,2}/[A-Za-z0-9_]+", like="a type such as Acme.Editor/Settings"
)


@dataclass(frozen=True, kw_only=True)
class PowerShellResource:
    name: Annotated[str, RESOURCE_NAME]


@dataclass(frozen=True, kw_only=True)
class PowerShellModule:
    """A module in a PowerShell repository, and its resources."""

    repository_url: Url
    module_name: Annotated[str, MODULE_NAME]
    resources: Annotated[tuple[PowerShellResource, ...], Records(PowerShellResource, 64)]


@dataclass(frozen=True, kw_only=True)
class DscV3Resource:
    type: Annotated[str, RESOURCE_TYPE]


@dataclass(frozen=True, kw_only=True)
class DscV3:
    """Resources of the package itself, for version 3 of DSC."""

    resources: Annotated[tuple[DscV3Resource, ...], Records(DscV3Resource, 128)]


@dataclass(frozen=True, kw_only=True)
class DesiredStateConfiguration:
    """At least one of the two."""

    power_shell: Annotated[tuple[PowerShellModule, ...], Records(PowerShellModule, 16)] = ()
    dscv3: Annotated[DscV3 | None, Record(DscV3)] = None
