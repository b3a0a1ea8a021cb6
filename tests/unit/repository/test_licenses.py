"""Dependencies are locked by hash and have allowed licences."""

import re
import tomllib
from pathlib import Path

from tests.support import licenses
from tests.support.tables import each

ROOT = Path(__file__).parents[3]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
ALLOWED = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0"}
ROW = re.compile(r"^\| ([a-z0-9-]+) \| (\S+) \| ([^|]+) \|$", re.MULTILINE)


def words(licence: str) -> set[str]:
    """The licences in an expression."""
    return set(re.sub(r"[()]", "", re.sub(r" (?:AND|OR) ", "|", licence)).split("|"))


def listed() -> dict[str, tuple[str, str]]:
    """The version and the licence of each package in the listing."""
    rows = ROW.findall(licenses.LISTING.read_text(encoding="utf-8"))
    return {package: (version, licence) for package, version, licence in rows}


def test_the_listing_has_every_locked_package_in_its_version() -> None:
    assert {package: version for package, (version, _) in listed().items()} == licenses.locked()


@each("package", licenses.locked())
def test_a_package_is_listed_under_its_own_licence_which_is_allowed(package: str) -> None:
    _, licence = listed()[package]
    assert licence == licenses.licence_of(package)
    assert words(licence) <= ALLOWED


def test_an_unknown_licence_is_not_allowed() -> None:
    assert words("MIT AND (GPL-3.0-only OR Apache-2.0)") - ALLOWED == {"GPL-3.0-only"}
    assert words("Our own licence") - ALLOWED


@each("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_locked_package_has_hashes_and_no_other_origin(lock: Path) -> None:
    text = lock.read_text()
    packages = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    assert packages
    assert all("--hash=sha256:" in package for package in packages)
    assert not re.findall(r"^(?:-e|--|\S+ @|git\+)", text, re.MULTILINE)
    assert "://" not in text


def test_every_installation_verifies_the_hashes() -> None:
    files = (ROOT / "Makefile", ROOT / "deploy" / "Dockerfile")
    lines = [line for file in files for line in file.read_text().splitlines()]
    installs = [line for line in lines if "/pip install" in line]
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation " in line for line in installs)
    assert {lock.name for lock in LOCKS} == {line.split()[-1] for line in installs if "--require-hashes" in line}


@each("group", ["tools", "fuzz"])
def test_every_tool_is_locked(group: str) -> None:
    lock = (ROOT / f"requirements-{group}.lock").read_text()
    for tool in tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"][group]:
        name = re.match(r"[a-z0-9-]+", tool)
        assert name is not None
        assert f"\n{name[0]}==" in f"\n{lock}"
