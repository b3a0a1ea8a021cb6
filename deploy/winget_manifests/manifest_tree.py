"""Finds manifests below folders and by their files. Files of one folder, package and version form a manifest."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from deploy.winget_manifests.manifest import Manifest, assemble_manifest, read_file, stated_identity
from deploy.winget_manifests.schema.files import File, SingletonFile
from deploy.winget_manifests.yaml_reader import ManifestRefused

SUFFIXES = (".yaml", ".yml")
Identity = tuple[str, str]  # the package id and the version
Files = Sequence[tuple[Path, File]]


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
