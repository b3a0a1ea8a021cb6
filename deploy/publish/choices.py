"""From the command's options to installers: what holds for all files, what for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from catalog_service.model.enumerations import Architecture, FileType, Locale, Scope, Switch
from common.settings import BadSetting
from deploy.publish import guesses
from deploy.publish.model import Installer

Value = TypeVar("Value")


@dataclass(frozen=True)
class PerFile:
    """Options that take one value for all files, or one for each in the files' order; none where it can be guessed."""

    versions: Sequence[str]
    architectures: Sequence[Architecture] = ()
    types: Sequence[FileType] = ()
    product_codes: Sequence[str] = ()


@dataclass(frozen=True)
class ForAll:
    """What all files have in common. `more` are fields of the creation form under the interface's names."""

    scope: Scope = Scope.MACHINE
    locale: Locale = Locale.EN_US
    channel: str = "stable"
    nested_type: FileType | None = None
    more: tuple[tuple[str, str], ...] = ()


def installers(files: Sequence[Path], package_id: str, per_file: PerFile, for_all: ForAll) -> list[Installer]:
    """The installers that the files are to become.

    Raises:
        BadSetting: a type cannot be told, two would be the same version, or the numbers of values do not fit.
    """
    versions = _each("--version", per_file.versions, files)
    architectures = _each("--architecture", per_file.architectures, files)
    types = _each("--type", per_file.types, files)
    product_codes = _each("--product-code", per_file.product_codes, files)
    made: list[Installer] = []
    for number, path in enumerate(files):
        version, file_type = versions[number], types[number] or guesses.file_type(path)
        if not version:
            raise BadSetting("--version: must not be empty")
        if file_type is None:
            raise BadSetting(f"--type: {path.name} does not say its type by its suffix; give one")
        code = product_codes[number]
        installer = Installer(
            path=path,
            package_id=package_id,
            version=version,
            architecture=architectures[number] or guesses.architecture(path),
            file_type=file_type,
            scope=for_all.scope,
            locale=for_all.locale,
            channel=for_all.channel,
            nested_type=for_all.nested_type or "",
            more=(*for_all.more, *((("productcode", code),) if code else ())),
        )
        if twin := next((other for other in made if other.key == installer.key), None):
            raise BadSetting(
                f"{twin.path.name} and {path.name} would be the same version, {version} for {installer.architecture}; "
                "give --version or --architecture once for each file"
            )
        made.append(installer)
    return made


def switches(given: Sequence[str]) -> list[tuple[str, str]]:
    """The form's fields of switches like `silent=/S`. Raises BadSetting."""
    known = {name.casefold(): name for name in Switch}
    fields = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name.casefold().replace("-", "") not in known:
            raise BadSetting(f"--switch: {text}: must be NAME=VALUE, with one of {', '.join(Switch)}")
        fields.append((f"switch_{known[name.casefold().replace('-', '')]}", value))
    return fields


def packages_needed(given: Sequence[str]) -> list[tuple[str, str]]:
    """The form's fields of packages like `Microsoft.VCRedist` or `Microsoft.VCRedist=14.40`."""
    fields = []
    for text in given:
        package_id, _, least = text.partition("=")
        fields += [("dep_pkg_identifier", package_id), ("dep_pkg_min_version", least)]
    return fields


def _each(option: str, given: Sequence[Value], files: Sequence[Path]) -> list[Value | None]:
    """A value for each file. Raises BadSetting."""
    if not given:
        return [None] * len(files)
    if len(given) not in {1, len(files)}:
        raise BadSetting(f"{option}: give it once, or once for each of the {len(files)} files")
    return [*given] * len(files) if len(given) == 1 else [*given]
