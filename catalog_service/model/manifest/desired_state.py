"""The resources of Desired State Configuration that come with a version."""

from typing import Annotated

from catalog_service.model.manifest.fields import Fields
from catalog_service.model.manifest.lists import Records
from catalog_service.model.manifest.values import Text, Url

MODULE_NAME = Text(100, pattern=r"[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*", like="the name of a PowerShell module")
RESOURCE_NAME = Text(100, pattern="[A-Za-z][A-Za-z0-9_-]*", like="the name of a resource")
RESOURCE_TYPE = Text(
    256, pattern=r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+){0,2}/[A-Za-z0-9_]+", like="a type such as Acme.Editor/Settings"
)


class PowerShellResource(Fields):
    name: Annotated[str, RESOURCE_NAME]


class PowerShellModule(Fields):
    """A module in a PowerShell repository, and its resources."""

    repository_url: Url
    module_name: Annotated[str, MODULE_NAME]
    resources: Annotated[tuple[PowerShellResource, ...], Records(64)]


class DscV3Resource(Fields):
    type: Annotated[str, RESOURCE_TYPE]


class DscV3(Fields):
    """Resources of the package itself, for version 3 of DSC."""

    resources: Annotated[tuple[DscV3Resource, ...], Records(128)]


class DesiredStateConfiguration(Fields):
    """The resources of PowerShell modules, of DSC version 3, or both."""

    power_shell: Annotated[tuple[PowerShellModule, ...], Records(16)] = ()
    dscv3: DscV3 | None = None
