"""Finds the tests near a file of the product: in the folders that mirror its folder, and by the modules they name."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import PurePath

from tests.support.house import ROOT, sources

TESTS = ROOT / "tests"
KINDS = (("unit",), ("contract", "service"), ("system",), ("browser",))  # the cheap ones first


def near(file: str) -> Sequence[Sequence[str]]:
    """The test files near a file: for each of KINDS, first those that have its name, then those of its folder."""
    return _by_kind({path for path in _texts() if _mirrors(path, file)} | _naming(file), file)


def wider(file: str) -> Sequence[Sequence[str]]:
    """The other test files that name a module that imports the file, or are of its package: for each of KINDS."""
    importers = [module for module, text in sources().items() if _name(file).search(text)]
    package = PurePath(file).parts[0]
    paths = {path for path in _texts() if PurePath(path).parts[2] == package}.union(*map(_naming, importers))
    if file.startswith("gateway/dashboard/"):
        paths.update(path for path in _texts() if PurePath(path).parts[1] == "browser")
    return [
        [path for path in further if path not in first]
        for first, further in zip(near(file), _by_kind(paths, file), strict=True)
    ]


def _by_kind(paths: Iterable[str], file: str) -> Sequence[Sequence[str]]:
    stem = PurePath(file).stem
    ordered = sorted(paths, key=lambda path: (stem not in path, not _mirrors(path, file), path))
    return [[path for path in ordered if PurePath(path).parts[1] in kinds] for kinds in KINDS]


def _mirrors(test: str, file: str) -> bool:
    """Whether a test is in the mirror of the file's folder, or directly in the nearest folder that mirrors one above.

    The folder of a whole package has too many tests below it.
    """
    kind, folder = PurePath(test).parts[1], PurePath(file).parent
    mirror = PurePath("tests", kind, folder)
    if len(folder.parts) > 1 and (ROOT / mirror).is_dir():
        return PurePath(test).is_relative_to(mirror)
    while folder.parts and not (TESTS / kind / folder).is_dir():
        folder = folder.parent
    return bool(folder.parts) and PurePath(test).parent == PurePath("tests", kind, folder)


def _naming(file: str) -> set[str]:
    """The test files that name the module, or the file if it is no module."""
    return {path for path, text in _texts().items() if _name(file).search(text)}


@cache
def _name(file: str) -> re.Pattern[str]:
    path = PurePath(file)
    if path.suffix != ".py":
        return re.compile(rf"\b{re.escape(path.name)}\b")
    parts = path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts
    dotted = re.escape(".".join(parts))
    package, module = re.escape(".".join(parts[:-1])), re.escape(parts[-1])
    return re.compile(rf"\b{dotted}\b|\bfrom {package} import (?:\([^)]*|[^\n]*)\b{module}\b")


@cache
def _texts() -> dict[str, str]:
    """The text of each test file, by its path."""
    paths = (path for kinds in KINDS for kind in kinds for path in (TESTS / kind).rglob("test_*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
