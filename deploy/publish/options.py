"""Installers from the options of the command."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, Switch
from common.settings import BadSetting
from deploy.publish.files import architecture_of, file_type_of
from deploy.publish.model import Installer

Value = TypeVar("Value")


@dataclass(frozen=True)
class InstallerOptions:
    """The first four have one value for all files, or one for each file in order; empty where the file's name decides.

    `more` has fields of the creation form under the interface's names.
    """

    versions: Sequence[str]
    architectures: Sequence[Architecture] = ()
    types: Sequence[FileType] = ()
    product_codes: Sequence[str] = ()
    scope: Scope = Scope.MACHINE
    locale: Locale = Locale.EN_US
    channel: str = "stable"
    nested_type: FileType | None = None
    more: Sequence[tuple[str, str]] = ()


def installers(files: Sequence[Path], package_id: str, options: InstallerOptions) -> list[Installer]:
    """Make an installer of each file.

    Raises BadSetting: a type is unknown, two files have the same version, or the number of values is wrong.
    """
    versions = _one_per_file("--version", options.versions, files)
    architectures = _one_per_file("--architecture", options.architectures, files)
    types = _one_per_file("--type", options.types, files)
    codes = _one_per_file("--product-code", options.product_codes, files)
    result: list[Installer] = []
    for path, version, architecture, option, code in zip(files, versions, architectures, types, codes, strict=True):
        file_type = option or file_type_of(path)
        if not version:
            raise BadSetting("--version: must not be empty")
        if file_type is None:
            raise BadSetting(f"--type: the suffix of {path.name} is not one of an installer; give the type")
        installer = Installer(
            path=path,
            package_id=package_id,
            version=version,
            architecture=architecture or architecture_of(path),
            file_type=file_type,
            scope=options.scope,
            locale=options.locale,
            channel=options.channel,
            nested_type=options.nested_type or "",
            more=(*options.more, *((("productcode", code),) if code else ())),
        )
        if twin := next((other for other in result if other.key == installer.key), None):
            raise BadSetting(
                f"{twin.path.name} and {path.name} would be the same version, {version} for {installer.architecture}; "
                "give --version or --architecture once for each file"
            )
        result.append(installer)
    return result


def switches(options: Sequence[str]) -> list[tuple[str, str]]:
    """The form fields of switches like `silent=/S`. Raises BadSetting."""
    names = {name.casefold(): name for name in Switch}
    fields = []
    for text in options:
        option, equals, value = text.partition("=")
        name = names.get(option.casefold().replace("-", ""))
        if not equals or name is None:
            raise BadSetting(f"--switch: {text}: must be NAME=VALUE, with one of {', '.join(Switch)}")
        fields.append((f"switch_{name}", value))
    return fields


def package_dependencies(options: Sequence[str]) -> list[tuple[str, str]]:
    """The form fields of packages like `Microsoft.VCRedist` or `Microsoft.VCRedist=14.40`."""
    pairs = [text.partition("=") for text in options]
    return [
        field for name, _, least in pairs for field in (("dep_pkg_identifier", name), ("dep_pkg_min_version", least))
    ]


def _one_per_file(option: str, values: Sequence[Value], files: Sequence[Path]) -> list[Value | None]:
    """A value for each file. Raises BadSetting."""
    if not values:
        return [None] * len(files)
    if len(values) not in {1, len(files)}:
        raise BadSetting(f"{option}: give it once, or once for each of the {len(files)} files")
    return [*values] * len(files) if len(values) == 1 else [*values]
