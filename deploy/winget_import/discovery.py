"""Manifests below folders, and files that were named: those of one folder, package and version belong together."""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.winget_import.problems import ManifestRefused
from deploy.winget_import.reading import Manifest, assemble, read_file
from deploy.winget_import.schema.schema import File, SingletonFile

SUFFIXES = (".yaml", ".yml")


class Refused(ManifestRefused):
    """The same, of the file or the manifest at `path`."""

    def __init__(self, path: Path, detail: str, package_id: str = "", version: str = "") -> None:
        super().__init__(detail)
        self.path = path
        self.package_id = package_id
        self.version = version


def find(paths: Sequence[Path]) -> Iterator[Manifest | Refused]:
    """The manifests at these paths, folder by folder in the order of their names.

    What a folder holds may be a stranger's: no link in it leads to a file outside, and none to another folder.
    """
    for path in paths:
        if not path.is_dir():
            yield from _of_file(path)
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            files = [Path(folder, name) for name in sorted(names) if name.lower().endswith(SUFFIXES)]
            yield from _together(files, within=[path])


def _of_file(path: Path) -> Iterator[Manifest | Refused]:
    """The manifest that a file is of: itself, or with its like beside it."""
    try:
        named = read_file(path)
    except (ManifestRefused, OSError) as problem:
        yield Refused(path, _told(problem))
        return
    if isinstance(named, SingletonFile):
        yield from _together([path], within=[path])
        return
    beside = sorted(one for one in path.parent.iterdir() if one.name.lower().endswith(SUFFIXES))
    for found in _together(beside, within=[path, path.parent]):
        if (found.package_id, found.version) == (named.package_identifier, named.package_version):
            yield found


def _together(paths: Sequence[Path], within: Sequence[Path]) -> Iterator[Manifest | Refused]:
    """The manifests of files of one folder; `within` are those that a link may lead to, or the folders of such."""
    manifests: dict[tuple[str, str], list[tuple[Path, File]]] = defaultdict(list)
    unread: list[str] = []
    for path in paths:
        try:
            if path.is_symlink() and not any(_real(path).is_relative_to(_real(one)) for one in within):
                raise ManifestRefused("is a link to a file outside")
            file = read_file(path)
        except (ManifestRefused, OSError) as problem:
            unread.append(path.name)
            yield Refused(path, _told(problem))
            continue
        manifests[file.package_identifier, file.package_version].append((path, file))
    for (package_id, version), files in manifests.items():
        path = files[0][0] if len(files) == 1 else files[0][0].parent
        try:
            if unread and not any(isinstance(file, SingletonFile) for _, file in files):
                raise ManifestRefused(f"may lack {unread[0]}, which is refused")
            yield assemble(path, [file for _, file in files])
        except ManifestRefused as problem:
            yield Refused(path, problem.detail, package_id, version)


def _real(path: Path) -> Path:
    """Where links lead; of such as lead round in a circle somewhere, without a word."""
    return Path(os.path.realpath(path))


def _told(problem: ManifestRefused | OSError) -> str:
    return problem.detail if isinstance(problem, ManifestRefused) else f"cannot be read: {problem.strerror}"
