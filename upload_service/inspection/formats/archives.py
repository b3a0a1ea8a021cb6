"""ZIP archives, among them MSIX and APPX packages and bundles."""

import hashlib
import posixpath
from collections.abc import Iterator
from typing import BinaryIO
from xml.parsers import expat
from zipfile import ZipFile

from upload_service.inspection.formats.executables import SIGNATURE_LIMIT, signer_of
from upload_service.inspection.model import NESTED_LIMIT, PATH_LIMIT, Findings, Format, Machine, Nested, clean_text

MANIFEST_LIMIT = 4 << 20  # bytes
PROPERTY_LIMIT = 1024  # characters; `clean_text` rejects so long a text

_MANIFEST, _BUNDLE_MANIFEST = "AppxManifest.xml", "AppxMetadata/AppxBundleManifest.xml"
_SIGNATURE, _SIGNATURE_MAGIC = "AppxSignature.p7x", b"PKCX"
_NESTED = {
    ".exe": Format.EXE,
    ".msi": Format.MSI,
    ".msix": Format.MSIX,
    ".msixbundle": Format.MSIX,
    ".appx": Format.APPX,
    ".appxbundle": Format.APPX,
}
_MACHINES = {"x64": Machine.X64, "x86": Machine.X86, "arm": Machine.ARM, "arm64": Machine.ARM64}
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def read(file: BinaryIO, suffix: str) -> Findings:
    """Inspect an archive. Any other file raises one of many errors of zipfile."""
    with ZipFile(file) as archive:
        names = set(archive.namelist())
        if _BUNDLE_MANIFEST in names:
            return _package(archive, _BUNDLE_MANIFEST, suffix)
        if _MANIFEST in names:
            return _package(archive, _MANIFEST, suffix)
        return Findings(format=Format.ZIP, nested=tuple(_nested(archive)))


def _nested(archive: ZipFile) -> Iterator[Nested]:
    """The files that may be the installer, those with the shortest paths first."""
    candidates = [
        (name.count("/"), name)
        for name in archive.namelist()
        if posixpath.splitext(name)[1].lower() in _NESTED and clean_text(name, PATH_LIMIT) == name
    ]
    for _, name in sorted(candidates)[:NESTED_LIMIT]:
        yield Nested(name, _NESTED[posixpath.splitext(name)[1].lower()])


def _package(archive: ZipFile, manifest_name: str, suffix: str) -> Findings:
    """Inspect an MSIX or APPX package. The format is the same: only the ending of the file's name tells APPX."""
    manifest = _Manifest(_content(archive, manifest_name, MANIFEST_LIMIT))
    signature = _content(archive, _SIGNATURE, SIGNATURE_LIMIT) if _SIGNATURE in archive.namelist() else b""
    name, publisher = manifest.identity.get("Name", ""), manifest.identity.get("Publisher", "")
    return Findings(
        format=Format.APPX if suffix.startswith(".appx") else Format.MSIX,
        machine=manifest.machine,
        version=clean_text(manifest.identity.get("Version", "")),
        product_name=_shown(manifest.properties.get("DisplayName", "")),
        publisher=_shown(manifest.properties.get("PublisherDisplayName", "")),
        package_family_name=clean_text(f"{name}_{publisher_id(publisher)}") if name and publisher else "",
        signature_sha256=hashlib.sha256(signature).hexdigest() if signature else "",
        signer=signer_of(signature.removeprefix(_SIGNATURE_MAGIC)) if signature else None,
    )


def publisher_id(publisher: str) -> str:
    """The id of a publisher in the names of its packages: 64 bits of a digest, five to a character."""
    digest = hashlib.sha256(publisher.encode("utf-16-le")).digest()[:8]
    bits = int.from_bytes(digest, "big") << 1  # 13 characters encode 65
    return "".join(_ALPHABET[bits >> shift & 31] for shift in range(60, -1, -5))


def _shown(text: str) -> str:
    return "" if text.startswith("ms-resource:") else clean_text(text)  # The text is in another file.


def _content(archive: ZipFile, name: str, limit: int) -> bytes:
    """A file of the archive. Raises ValueError if it is longer than `limit`, whatever its header says."""
    with archive.open(name) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError("file too long")
    return content


class _Manifest:
    """The manifest of a package or a bundle. Entities are refused, so none can expand."""

    def __init__(self, text: bytes) -> None:
        self.identity: dict[str, str] = {}
        self.properties: dict[str, str] = {}
        self._machines: set[str] = set()
        self._path: list[str] = []
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True  # Else each character reference is a separate call.
        parser.StartDoctypeDeclHandler = _reject_doctype
        parser.StartElementHandler = self._begin
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text
        try:
            parser.Parse(text, True)
        except expat.ExpatError:
            raise ValueError("no XML") from None

    @property
    def machine(self) -> Machine:
        """The architecture of the package, or of all packages of a bundle."""
        (first, *others) = self._machines or {""}
        return Machine.UNKNOWN if others else _MACHINES.get(first, Machine.UNKNOWN)

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        self._path.append(name.rpartition(" ")[2])
        match self._path:
            case ["Package" | "Bundle", "Identity"] if not self.identity:
                self.identity = attributes
                if self._path[0] == "Package":
                    self._machines.add(attributes.get("ProcessorArchitecture", "neutral"))
            case ["Bundle", "Packages", "Package"] if attributes.get("Type") == "application":
                self._machines.add(attributes.get("Architecture", "neutral"))

    def _end(self, _: str) -> None:
        self._path.pop()

    def _add_text(self, text: str) -> None:
        match self._path:
            case ["Package", "Properties", "DisplayName" | "PublisherDisplayName" as name]:
                collected = self.properties.get(name, "")
                self.properties[name] = collected + text[: PROPERTY_LIMIT - len(collected)]


def _reject_doctype(*_: object) -> None:
    raise ValueError("a manifest has no document type")
