"""The search index of a tenant, in segments of records: the fields of packages that searches match.

Whole values are looked up, parts of values are searched in one text.
"""

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any

import orjson

from catalog_service.catalog.reader import Rings, WholeEntry, replaced_segments
from catalog_service.model.identities import folded, normalized
from catalog_service.model.manifest import VersionManifest
from catalog_service.model.packages import Package
from catalog_service.model.versions import PackageVersion
from catalog_service.winget.contracts import Contract, installable_versions, since_contract


class Field(StrEnum):
    """The `PackageMatchField` of the protocol, and the publisher, which only free text searches."""

    IDENTIFIER = "PackageIdentifier"
    NAME = "PackageName"
    MONIKER = "Moniker"
    COMMAND = "Command"
    TAG = "Tag"
    FAMILY_NAME = "PackageFamilyName"
    PRODUCT_CODE = "ProductCode"
    UPGRADE_CODE = "UpgradeCode"
    NORMALIZED_NAME = "NormalizedPackageNameAndPublisher"
    MARKET = "Market"
    INSTALLER_TYPE = "HasInstallerType"
    PUBLISHER = "Publisher"

    @property
    def mark(self) -> str:
        """The first character of a line of this field; no value has it."""
        return _MARKS[self]


# Free text is searched in TEXTS. CODES identify installed programs and match as a whole only.
TEXTS = frozenset([Field.IDENTIFIER, Field.NAME, Field.PUBLISHER, Field.MONIKER, Field.COMMAND, Field.TAG])
CODES = frozenset([Field.FAMILY_NAME, Field.PRODUCT_CODE, Field.UPGRADE_CODE])
ANY_MARKET, NOT_IN = "*", "!"  # values of `MARKET`: all markets; the prefix of an excluded market
SEPARATOR = "\n"
_MARK_OF = "\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x0f\x10\x11"
_MARKS = dict(zip(Field, _MARK_OF, strict=True))
_IGNORED = re.compile(r"[\W_]+")


def squeezed(text: str) -> str:
    """Return the letters and digits of a folded text, without accents."""
    return _IGNORED.sub("", text if text.isascii() else unicodedata.normalize("NFKD", text))


GRAM = 3  # characters
FILTER_SIZE = 16 << 10  # bytes
FILTER_THRESHOLD = 4 << 10  # characters; shorter texts need no filter
_CODE_MARKS = frozenset(field.mark for field in CODES)


# Returns the first package from a number on that matches, the number of all packages if there is none.
Finder = Callable[[int], int]


class TrigramFilter:
    """Excludes most pieces that a text lacks, without searching the text."""

    def __init__(self, text: str) -> None:
        self._has = bytearray(FILTER_SIZE)
        for position in _positions(text):
            self._has[position] = True

    def may_have(self, piece: str) -> bool:
        """False only if the text lacks the piece."""
        return all(map(self._has.__getitem__, _positions_of_piece(piece)))


def _positions(text: str) -> Collection[int]:
    """Return the filter positions of all parts of `GRAM` characters; none for shorter texts."""
    return [hash(part) % FILTER_SIZE for part in {text[start : start + GRAM] for start in range(len(text) - GRAM + 1)}]


_positions_of_piece = lru_cache(_positions)  # All segments are searched for the same piece.


class TextIndex:
    """The lines of packages in one text."""

    def __init__(self, of_packages: Sequence[Sequence[str]], *, filtered: bool = False) -> None:
        """`filtered` speeds up frequent searches, and takes `FILTER_SIZE` bytes for a long text."""
        self.text = "".join(f"{line}{SEPARATOR}" for lines in of_packages for line in lines)
        self.filter = TrigramFilter(self.text) if filtered and len(self.text) >= FILTER_THRESHOLD else None
        sizes = (sum(len(line) + 1 for line in lines) for lines in of_packages)
        self._starts = array("L", accumulate(sizes, initial=0))  # of the packages, and the length of the text

    def may_have(self, piece: str) -> bool:
        """False only if the text lacks the piece."""
        return self.filter is None or self.filter.may_have(piece)

    @cached_property
    def squeezed(self) -> "TextIndex":
        """The index of squeezed values, for fuzzy searches."""
        of_packages = (self.text[start:end].split(SEPARATOR)[:-1] for start, end in pairwise(self._starts))
        return TextIndex(
            [[line[0] + squeezed(line[1:]) for line in lines if line[0] not in _CODE_MARKS] for lines in of_packages]
        )

    def finder(self, piece: str, marks: str = "") -> Finder:
        """Find packages with a piece; with `marks`, in a line with one of these marks."""
        text, starts, count = self.text, self._starts, len(self._starts) - 1
        if not self.may_have(piece):
            return lambda _: count

        def first(number: int) -> int:
            position = text.find(piece, starts[number])
            while position >= 0:
                if not marks or text[text.rfind(SEPARATOR, 0, position) + 1] in marks:
                    return bisect_right(starts, position) - 1
                position = text.find(piece, self._next_line(marks, position))
            return count

        return first

    def _next_line(self, marks: str, after: int) -> int:
        """Return the start of the next line with one of these marks: many lines may be between."""
        positions = [self.text.find(SEPARATOR + mark, after) for mark in marks]
        return min([position for position in positions if position >= 0], default=len(self.text))

    def pattern_finder(self, pattern: re.Pattern[str]) -> Finder:
        """Find packages with a line that matches."""
        starts, count = self._starts, len(self._starts) - 1

        def first(number: int) -> int:
            match = pattern.search(self.text, starts[number])
            return bisect_right(starts, match.start()) - 1 if match else count

        return first


SIZE = 512  # packages; a segment of twice as many is split
OVERHEAD = 400  # bytes of a package beside its texts
LATEST_OF_RESULTS = 4  # Since this contract, all members of search results are supported.
LINE_OVERHEAD = 100  # bytes of a value beside itself


@dataclass(frozen=True)
class Record:
    """A package in the index, as some rings see it.

    `texts` and folded `codes` are its values, each after its field's mark. `result_json` is its search result. `since`
    has the first contract 1.x for each of its versions.
    """

    package_id: str
    texts: tuple[str, ...]
    codes: tuple[str, ...]
    result_json: bytes
    since: tuple[int, ...]
    rings: Rings = None

    @property
    def size(self) -> int:
        """The bytes of the record and of its share of the index."""
        texts, codes = sum(map(len, self.texts)), sum(map(len, self.codes))
        lines = len(self.texts) + len(self.codes)
        rings = 8 * len(self.rings or ())
        return OVERHEAD + rings + len(self.result_json) + 4 * texts + 3 * codes + LINE_OVERHEAD * lines

    def is_supported_by(self, contract: Contract) -> bool:
        """Whether a contract supports the whole search result."""
        return contract.minor >= max(LATEST_OF_RESULTS, *self.since)

    def json_for(self, contract: Contract) -> bytes:
        """Return the search result in JSON, with the members that a contract supports."""
        if self.is_supported_by(contract):
            return self.result_json
        result = orjson.loads(self.result_json)
        versions = zip(result["Versions"], self.since, strict=True)
        result["Versions"] = [contract.supported(version) for version, minor in versions if contract.minor >= minor]
        return orjson.dumps(result)


class IndexSegment:
    """Consecutive packages in the order of their ids; immutable."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.ids = [record.package_id for record in records]
        self.first_id = self.ids[0] if records else ""
        texts = [[folded(line) for line in record.texts] for record in records]
        self.texts = TextIndex(texts, filtered=True)
        self.size = sum(record.size for record in records) + (FILTER_SIZE if self.texts.filter else 0)
        self._numbers: dict[str, int | list[int]] = {}
        for number, record in enumerate(records):
            for line in {*texts[number], *record.codes}:
                others = self._numbers.setdefault(line, number)
                if isinstance(others, list):
                    others.append(number)
                elif others != number:
                    self._numbers[line] = [others, number]
        self.lines = self._numbers.keys()  # all marks with folded values

    def items(self) -> Sequence[Record]:
        return self.records

    @cached_property
    def codes(self) -> TextIndex:
        """The codes, which are built on first use because few searches need them."""
        return TextIndex([record.codes for record in self.records])

    def finder(self, line: str) -> Finder:
        """Find packages with this line: a mark and a folded value."""
        found, end = self._numbers.get(line, ()), len(self.records)
        numbers = (found,) if isinstance(found, int) else found

        def first(number: int) -> int:
            index = bisect_left(numbers, number)
            return numbers[index] if index < len(numbers) else end

        return first


@dataclass(frozen=True)
class Index:
    """The installable packages at a revision, or later, read with these rings of their tenant."""

    revision: str
    segments: Sequence[IndexSegment] = ()
    rings: Sequence[str] = ()

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(segment.size for segment in self.segments)

    def replaced(self, revision: str, changes: Mapping[str, Sequence[Record]]) -> "Index":
        """Return the index at a later revision, with the records of these packages replaced."""
        return Index(revision, replaced_segments(self.segments, changes, IndexSegment, SIZE), self.rings)


# The members of search results that can be searched, too.
CODE_FIELDS = {
    "PackageFamilyNames": Field.FAMILY_NAME,
    "ProductCodes": Field.PRODUCT_CODE,
    "UpgradeCodes": Field.UPGRADE_CODE,
}


def records_of(entry: WholeEntry, rings: Sequence[str]) -> Sequence[Record]:
    """Return the records of a package, one for all of a tenant's rings that see the same."""
    rendered = entry.rendered(rings, record_of)
    return [replace(record, rings=seen_by) if seen_by else record for record, seen_by in rendered]


def record_of(entry: WholeEntry) -> Record | None:
    """Return the record of a package, None if no version is installable."""
    installable = installable_versions(entry)
    if not installable:
        return None
    package = entry.package
    versions = [{"PackageVersion": version, **_codes(installers)} for version, installers in installable.items()]
    result = {
        "PackageIdentifier": package.package_id,
        "PackageName": package.name,
        "Publisher": package.publisher,
        "Versions": versions,
    }
    installers = [installer for of_version in installable.values() for installer in of_version]
    values = {(field, value) for field, value in _values(entry.package, installers) if value}
    for version in versions:
        values |= {(field, value) for name, field in CODE_FIELDS.items() for value in version.get(name, ())}
    texts = {field.mark + value for field, value in values if field in TEXTS}
    codes = {field.mark + folded(value) for field, value in values if field not in TEXTS}
    since = tuple(
        min(since_contract(version.installer_type, version.nested_type) for version in of_version)
        for of_version in installable.values()
    )
    return Record(package.package_id, tuple(sorted(texts)), tuple(sorted(codes)), orjson.dumps(result), since)


def _values(package: Package, installers: Sequence[PackageVersion]) -> Iterator[tuple[Field, str]]:
    names = {package.name, *(local.package_name for local in package.manifest.locales)}
    entry_names: set[str] = set()
    yield Field.IDENTIFIER, package.package_id
    yield Field.MONIKER, package.manifest.moniker
    for texts in (package.manifest, *package.manifest.locales):
        yield from ((Field.TAG, tag) for tag in texts.tags)
    for version in installers:
        manifest = version.manifest
        entry_names.update(entry.display_name for entry in manifest.apps_and_features_entries)
        yield from ((Field.COMMAND, command) for command in (*manifest.commands, *manifest.portable_command_alias))
        yield from ((Field.INSTALLER_TYPE, kind) for kind in (version.installer_type, version.effective_type) if kind)
    yield from ((Field.NAME, name) for name in names)
    yield Field.PUBLISHER, package.publisher
    yield from ((Field.PUBLISHER, local.publisher) for local in package.manifest.locales)
    yield from ((Field.NORMALIZED_NAME, normalized(name)) for name in names | entry_names)
    yield from ((Field.MARKET, market) for market in _markets([version.manifest for version in installers]))


def _markets(manifests: Sequence[VersionManifest]) -> set[str]:
    """Return the markets with an installer: a list, or all markets, possibly with exceptions."""
    anywhere = [manifest for manifest in manifests if not manifest.allowed_markets]
    allowed = {market for manifest in manifests for market in manifest.allowed_markets}
    if not anywhere:
        return allowed
    excluded = set.intersection(*(set(manifest.excluded_markets) for manifest in anywhere)) - allowed
    return {ANY_MARKET, *(NOT_IN + market for market in excluded)}


def _codes(installers: Sequence[PackageVersion]) -> dict[str, Any]:
    """Return the codes that identify an installation of a version, each once."""
    codes: dict[str, dict[str, None]] = defaultdict(dict)
    for version in installers:
        entries = version.manifest.apps_and_features_entries
        values = {
            "PackageFamilyNames": [version.package_family_name],
            "ProductCodes": [version.product_code, *(entry.product_code for entry in entries)],
            "UpgradeCodes": [version.upgrade_code, *(entry.upgrade_code for entry in entries)],
            "AppsAndFeaturesEntryVersions": [entry.display_version for entry in entries],
        }
        for name, listed in values.items():
            codes[name] |= dict.fromkeys(filter(None, listed))
    return {name: list(listed) for name, listed in codes.items() if listed}
