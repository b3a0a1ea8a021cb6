"""Finds manifests below folders, reads their files and assembles them.

Files of one folder, package and version form a manifest. Its installers inherit fields by the rules of winget's client.
The files are plain YAML without aliases, every scalar a text: YAML would read the version 1.10 as the number 1.1.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from catalog_service.model.manifest_fields import Fields, Source, validation_errors
from common.errors import Problem
from deploy.publish.files import open_regular
from deploy.winget_manifests import schema
from deploy.winget_manifests.schema import NEWEST, File, SingletonFile, newer_fields

MAX_BYTES = 1 << 20
MAX_VALUES = 50_000
MAX_DEPTH = 12
NULLS = frozenset(["", "~", "null", "Null", "NULL"])

Value = Any  # a text, a list of values, or a dict of values by texts; None within a list
KINDS: Mapping[str, type[schema.File]] = {
    "singleton": schema.SingletonFile,
    "version": schema.VersionFile,
    "defaultLocale": schema.DefaultLocaleFile,
    "locale": schema.LocaleFile,
    "installer": schema.InstallerFile,
}
MAX_REASONS = 5
PACKAGED = frozenset(["msix", "appx"])
# Installers of these types write an entry of Apps and Features.
WITH_ENTRY = frozenset(["exe", "msi", "inno", "nullsoft", "wix", "burn", "portable"])
# An installer's members of these objects replace the manifest's; all other fields are replaced as a whole.
BY_MEMBER = frozenset(["installer_switches", "installation_metadata"])
# An empty list, or an object with empty members only, is the same as none.
INHERITED_IF_EMPTY = frozenset(["apps_and_features_entries", "nested_installer_files", "dependencies"])
SUFFIXES = (".yaml", ".yml")
Identity = tuple[str, str]  # the package id and the version
Files = Sequence[tuple[Path, File]]


class ManifestRefused(Problem):
    """A file is no manifest that can be published; the text has the place and the reason."""

    status = 400
    code = "manifest_refused"


def parse_yaml(content: bytes) -> Value:
    """Return a file's content. Raises ManifestRefused."""
    if len(content) > MAX_BYTES:
        raise ManifestRefused(f"is larger than {MAX_BYTES >> 20} MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestRefused(f"is not UTF-8, in byte {error.start}") from None
    try:
        return _Reader(yaml.parse(text, Loader=yaml.CSafeLoader)).document()
    except yaml.YAMLError as error:
        reason = getattr(error, "problem", None) or "is not YAML"
        raise _refused(getattr(error, "problem_mark", None), reason) from None


class _Reader:
    """Builds values from the parser's events, one at a time, and stops at the first that is refused."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._values = 0

    def document(self) -> Value:
        self._next()  # the start of the stream
        if isinstance(self._next(), yaml.StreamEndEvent):
            raise ManifestRefused("is empty")
        value = self._value(self._next(), 0)
        self._next()
        if not isinstance(self._next(), yaml.StreamEndEvent):
            raise ManifestRefused("holds more than one document")
        return value

    def _next(self) -> yaml.Event:
        event = next(self._events)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _refused(event.start_mark, "anchors and aliases are not read")
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None):
            raise _refused(event.start_mark, "tags are not read")
        return event

    def _value(self, event: yaml.Event, depth: int) -> Value:
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            raise _refused(event.start_mark, f"more than {MAX_DEPTH} levels or {MAX_VALUES} values")
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := self._next(), yaml.SequenceEndEvent):
                items.append(self._value(event, depth + 1))
            return items
        if isinstance(event, yaml.MappingStartEvent):
            return self._members(depth)
        if not isinstance(event, yaml.ScalarEvent):
            raise ManifestRefused("is empty")
        return None if event.implicit[0] and event.value in NULLS else event.value

    def _members(self, depth: int) -> Value:
        members: dict[str, Value] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _refused(event.start_mark, "a field's name must be a text")
            if event.value in members:
                raise _refused(event.start_mark, f"{event.value} stands there twice")
            members[event.value] = self._value(self._next(), depth + 1)
        return {name: value for name, value in members.items() if value is not None}  # null is the same as no member


def _refused(mark: Any, reason: str) -> ManifestRefused:
    return ManifestRefused(f"line {mark.line + 1}: {reason}" if mark else reason)


@dataclass(frozen=True)
class Manifest:
    """One version of a package. The installers have the fields that they inherit."""

    path: Path
    package_id: str
    version: str
    texts: schema.DefaultTexts
    locales: Sequence[schema.LocaleTexts]
    installers: Sequence[schema.Installer]
    channel: str = ""


def read_file(path: Path) -> schema.File:
    """Read a file of a manifest. Raises ManifestRefused and OSError."""
    with open(path, "rb", opener=open_regular) as file:
        return parse_file(file.read(MAX_BYTES + 1))


def stated_identity(path: Path) -> tuple[str, str] | None:
    """The package id and version that a refused file states, if it can be read at all."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            value = parse_yaml(file.read(MAX_BYTES + 1))
    except (ManifestRefused, OSError):
        return None
    match value:
        case {"PackageIdentifier": str(package_id), "PackageVersion": str(version)}:
            return package_id, version
    return None


def parse_file(content: bytes) -> schema.File:
    """Parse the bytes of a file. Raises ManifestRefused."""
    value = parse_yaml(content)
    kind = KINDS.get(str(value.get("ManifestType"))) if isinstance(value, dict) else None
    if kind is None:
        raise ManifestRefused(f"ManifestType: must be one of {', '.join(KINDS)}")
    try:
        file = kind.model_validate(value, context=Source.FILE, by_alias=True, by_name=False)
    except ValidationError as error:
        reasons = [f"{path}: {reason}" for path, reason in islice(validation_errors(error, kind), MAX_REASONS)]
        raise ManifestRefused("; ".join(reasons)) from None
    major, minor, _ = map(int, file.manifest_version.split("."))
    if major != 1 or minor > NEWEST:
        raise ManifestRefused(f"ManifestVersion: {file.manifest_version} is not known, only 1.0 to 1.{NEWEST}")
    if reasons := list(islice(newer_fields(value, minor), MAX_REASONS)):
        raise ManifestRefused("; ".join(reasons))
    return file


def assemble_manifest(path: Path, files: Sequence[schema.File]) -> Manifest:
    """Assemble the files of one package and version. Raises ManifestRefused if one is missing or two contradict."""
    counts = Counter(map(type, files))
    locales = [file for file in files if isinstance(file, schema.LocaleFile)]
    if not counts[schema.SingletonFile]:
        for kind in ("version", "defaultLocale", "installer"):
            if (count := counts[KINDS[kind]]) != 1:
                raise ManifestRefused(f"has {count} files of the type {kind} instead of one")
    elif len(files) > 1:
        raise ManifestRefused("has a singleton and other files beside it")
    texts = next(file for file in files if isinstance(file, schema.DefaultTexts))
    root = next(file for file in files if isinstance(file, schema.InstallersFile))
    _check_consistent(files, texts, locales)
    return Manifest(
        path=path,
        package_id=texts.package_identifier if isinstance(texts, schema.File) else "",
        version=root.package_version,
        texts=texts,
        locales=locales,
        installers=[_with_inherited_fields(root, installer) for installer in root.installers],
        channel=root.channel,
    )


def _check_consistent(
    files: Sequence[schema.File], texts: schema.DefaultTexts, locales: Sequence[schema.LocaleFile]
) -> None:
    for name in ("package_identifier", "package_version", "manifest_version"):
        if len(values := {getattr(file, name) for file in files}) > 1:
            raise ManifestRefused(f"its files differ: {' and '.join(sorted(values))}")
    languages = [texts.package_locale.casefold(), *(file.package_locale.casefold() for file in locales)]
    if len(set(languages)) < len(languages):
        raise ManifestRefused("has two files for one language")
    for file in files:
        if isinstance(file, schema.VersionFile) and file.default_locale.casefold() != languages[0]:
            raise ManifestRefused(f"DefaultLocale: {file.default_locale} is not the defaultLocale file's language")


def effective_type(installer: schema.InstallerFields) -> str:
    """Return the type of the program that is installed, for an archive that of its content; "" if it is missing."""
    return (installer.nested_installer_type if installer.installer_type == "zip" else installer.installer_type) or ""


def _with_inherited_fields(manifest: schema.InstallersFile, installer: schema.Installer) -> schema.Installer:
    inherited = {}
    for name in manifest.model_fields_set & schema.InstallerFields.model_fields.keys():
        own, common = getattr(installer, name), getattr(manifest, name)
        if name not in installer.model_fields_set or (name in INHERITED_IF_EMPTY and _is_empty(own)):
            inherited[name] = common
        elif name in BY_MEMBER:
            inherited[name] = common.model_copy(update={part: getattr(own, part) for part in own.model_fields_set})
    left_out = _not_inherited(installer.model_copy(update=inherited))
    return installer.model_copy(update={name: value for name, value in inherited.items() if name not in left_out})


def _not_inherited(whole: schema.Installer) -> Set[str]:
    names = set()
    if whole.installer_type != "zip":
        names |= {"nested_installer_type", "nested_installer_files"}
    kind = effective_type(whole)
    if kind not in PACKAGED:
        names.add("package_family_name")
    if kind not in WITH_ENTRY:
        names |= {"product_code", "apps_and_features_entries"}
    return names


def _is_empty(value: object) -> bool:
    return not any(vars(value).values()) if isinstance(value, Fields) else not value


class RefusedManifest(ManifestRefused):
    """The file or the manifest at `path` is refused."""

    def __init__(self, path: Path, detail: str, package_id: str = "", version: str = "") -> None:
        super().__init__(detail)
        self.path = path
        self.package_id = package_id
        self.version = version


def find_manifests(paths: Sequence[Path]) -> Iterator[Manifest | RefusedManifest]:
    """Yield the manifests at these paths, folder by folder in the order of their names.

    A folder is not trusted: a link in it to a file outside is refused, and links to folders are ignored.
    """
    for path in paths:
        if not path.is_dir():
            yield from _manifest_of_file(path)
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            files = [Path(folder, name) for name in sorted(names) if name.lower().endswith(SUFFIXES)]
            yield from _assemble_all(files, allowed=[path])


def _manifest_of_file(path: Path) -> Iterator[Manifest | RefusedManifest]:
    """Yield the manifest that a file belongs to, with the files beside it."""
    try:
        file = read_file(path)
    except (ManifestRefused, OSError) as problem:
        yield RefusedManifest(path, _reason(problem))
        return
    if isinstance(file, SingletonFile):
        yield from _assemble_all([path], allowed=[path])
        return
    siblings = sorted(sibling for sibling in path.parent.iterdir() if sibling.name.lower().endswith(SUFFIXES))
    for manifest in _assemble_all(siblings, allowed=[path, path.parent]):
        if (manifest.package_id, manifest.version) == (file.package_identifier, file.package_version):
            yield manifest


def _assemble_all(paths: Sequence[Path], allowed: Sequence[Path]) -> Iterator[Manifest | RefusedManifest]:
    """Yield the manifests of the files of one folder. Links may only lead to the files and folders of `allowed`.

    A refused file stands for its manifest, which is not yielded. If its manifest is not known, each manifest of several
    files is refused, because the file may be a part of it.
    """
    manifests: dict[Identity, list[tuple[Path, File]]] = defaultdict(list)
    refused: list[tuple[Path, str]] = []
    for path in paths:
        try:
            if path.is_symlink() and not _is_within(path, allowed):
                raise ManifestRefused("is a link to a file outside")
            file = read_file(path)
        except (ManifestRefused, OSError) as problem:
            refused.append((path, _reason(problem)))
            continue
        manifests[file.package_identifier, file.package_version].append((path, file))
    owners = [_owner(path, manifests) for path, _ in refused]
    for (path, reason), owner in zip(refused, owners, strict=True):
        yield RefusedManifest(path, reason, *(owner or ()))
    for identity, files in manifests.items():
        if identity in owners:
            continue
        path = files[0][0] if len(files) == 1 else files[0][0].parent
        try:
            if None in owners and not _is_singleton(files):
                raise ManifestRefused(f"is incomplete: {refused[owners.index(None)][0].name} could not be read")
            yield assemble_manifest(path, [file for _, file in files])
        except ManifestRefused as problem:
            yield RefusedManifest(path, problem.detail, *identity)


def _owner(path: Path, manifests: Mapping[Identity, Files]) -> Identity | None:
    """The manifest of a refused file: the one that it states, or the only one of several files; None if unknown."""
    stated = None if path.is_symlink() else stated_identity(path)
    of_several = [identity for identity, files in manifests.items() if not _is_singleton(files)]
    return stated if stated in manifests else of_several[0] if len(of_several) == 1 else None


def _is_singleton(files: Files) -> bool:
    return any(isinstance(file, SingletonFile) for _, file in files)


def _is_within(link: Path, folders: Sequence[Path]) -> bool:
    target = Path(os.path.realpath(link))  # Unlike Path.resolve, this raises nothing for a circle of links.
    return any(target.is_relative_to(os.path.realpath(folder)) for folder in folders)


def _reason(problem: ManifestRefused | OSError) -> str:
    return problem.detail if isinstance(problem, ManifestRefused) else f"cannot be read: {problem.strerror}"
