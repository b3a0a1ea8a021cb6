"""Windows programs: the kind of installer, the machine, the version resource and the signature."""

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO
from uuid import UUID

import pefile
from asn1crypto import cms, x509

from upload_service.inspection.model import Findings, Format, Machine, Reach, Signer, clean_text, normalize_guid

SIGNATURE_LIMIT = 1 << 20  # bytes

_NAMES = ("common_name", "organization_name")


def signer_of(signature: bytes) -> Signer | None:
    """The signer in a PKCS #7 signature; None if it has none, or cannot be read."""
    if not signature or len(signature) > SIGNATURE_LIMIT:
        return None
    try:
        return _signer(cms.ContentInfo.load(signature)["content"])
    except (ValueError, TypeError, KeyError, AttributeError, LookupError):
        return None


def _signer(signed: cms.SignedData) -> Signer | None:
    identifier = signed["signer_infos"][0]["sid"].chosen
    for choice in signed["certificates"]:
        certificate = choice.chosen
        if (
            isinstance(certificate, x509.Certificate)
            and certificate.serial_number == identifier["serial_number"].native
            and certificate.issuer == identifier["issuer"]
        ):
            return Signer(subject=_shown(certificate.subject), issuer=_shown(certificate.issuer))
    return None


def _shown(name: x509.Name) -> str:
    """The common name of a certificate's subject, else the organization."""
    parts = name.native
    return next((clean_text(str(parts[part])) for part in _NAMES if part in parts), "")


IMAGE_LIMIT = 64 << 20  # bytes; the payload of an installer is after its program
NULLSOFT_SEARCH = 1 << 20  # bytes after the program
RESOURCE_LIMIT = 1 << 20  # bytes

_RESOURCES = [pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_RESOURCE"]]
_SECURITY = pefile.DIRECTORY_ENTRY["IMAGE_DIRECTORY_ENTRY_SECURITY"]
_RT_RCDATA, _RT_MANIFEST = 10, 24
_MACHINES = {0x14C: Machine.X86, 0x8664: Machine.X64, 0x1C0: Machine.ARM, 0x1C4: Machine.ARM, 0xAA64: Machine.ARM64}
_DLL = 0x2000
_INNO_RESOURCE, _INNO_TABLE, _OLD_INNO = 11111, b"rDlPtS", b"Inno"
_NULLSOFT = b"\xef\xbe\xad\xdeNullsoftInst"
# A magic, a version and the id of the bundle.
_BURN_SECTION, _BURN_MAGIC, _BURN_HEADER = b".wixburn", b"\x00\x43\xf1\x00", 24
_ELEVATED = b"requireAdministrator"


def read(file: BinaryIO) -> Findings:
    """Inspect a program. Any other file raises an error of pefile or struct."""
    file.seek(0)
    image = file.read(IMAGE_LIMIT)
    try:
        program = pefile.PE(data=image, fast_load=True)
    except pefile.PEFormatError:
        if _is_dos_program(image):
            return Findings()
        raise ValueError("not a program") from None
    if program.FILE_HEADER.Characteristics & _DLL:
        return Findings()
    program.parse_data_directories(directories=_RESOURCES)
    return _findings(program, image, _signature(program, file))


def _is_dos_program(image: bytes) -> bool:
    """Whether the header is complete and does not point at one that begins with `PE`."""
    if len(image) < 64:
        return False
    (at,) = struct.unpack_from("<I", image, 60)
    return bool(at + 2 <= len(image) and image[at : at + 2] != b"PE")


def _findings(program: pefile.PE, image: bytes, signature: bytes) -> Findings:
    bundle = _bundle(program)
    kind = _format(program, image, bundle)
    version = _version_resource(program)
    machine = _MACHINES.get(program.FILE_HEADER.Machine, Machine.UNKNOWN)
    if kind is not Format.EXE and machine is Machine.X86:
        machine = Machine.UNKNOWN  # The stub of every installer is for x86, whatever it installs.
    elevated = any(_ELEVATED in manifest for manifest in _resources(program, _RT_MANIFEST))
    return Findings(
        format=kind,
        machine=machine,
        reach=Reach.MACHINE if elevated else Reach.UNKNOWN,
        version=clean_text(version.get("ProductVersion", "")) or clean_text(version.get("FileVersion", "")),
        product_name=clean_text(version.get("ProductName", "")),
        publisher=clean_text(version.get("CompanyName", "")),
        product_code=bundle,  # A bundle is uninstalled under its own id.
        signer=signer_of(signature),
    )


def _format(program: pefile.PE, image: bytes, bundle: str) -> Format:
    if bundle:
        return Format.BURN
    table = next(_resources(program, _RT_RCDATA, _INNO_RESOURCE), b"")
    if table.startswith(_INNO_TABLE) or image[0x30:0x34] == _OLD_INNO:
        return Format.INNO
    end = max((section.PointerToRawData + section.SizeOfRawData for section in program.sections), default=0)
    if image.find(_NULLSOFT, end, end + NULLSOFT_SEARCH) >= 0:
        return Format.NULLSOFT
    return Format.EXE


def _bundle(program: pefile.PE) -> str:
    """The id of a WiX bundle, "" for any other program."""
    for section in program.sections:
        if section.Name.startswith(_BURN_SECTION):
            header = section.get_data(length=_BURN_HEADER)
            if len(header) == _BURN_HEADER and header.startswith(_BURN_MAGIC):
                return normalize_guid(f"{{{UUID(bytes_le=header[8:])}}}")
    return ""


def _resources(program: pefile.PE, kind: int, number: int | None = None) -> Iterator[bytes]:
    """The contents of the resources of one kind, or of the one with this number, in all languages."""
    for entry in _entries(program, "DIRECTORY_ENTRY_RESOURCE", kind):
        for named in _entries(entry, "directory", number):
            for leaf in _entries(named, "directory", None):
                with suppress(pefile.PEFormatError):
                    resource = leaf.data.struct
                    yield program.get_data(resource.OffsetToData, min(resource.Size, RESOURCE_LIMIT))


def _entries(node: Any, branch: str, number: int | None) -> Iterator[Any]:
    for entry in getattr(getattr(node, branch, None), "entries", ()):
        if number is None or entry.id == number:
            yield entry


def _version_resource(program: pefile.PE) -> dict[str, str]:
    """The strings of the version resource in the first language that has any."""
    for block in getattr(program, "FileInfo", ()):
        for info in block:
            for table in getattr(info, "StringTable", ()):
                if strings := {_text(name): _text(value) for name, value in table.entries.items()}:
                    return strings
    return {}


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _signature(program: pefile.PE, file: BinaryIO) -> bytes:
    """The first PKCS #7 signature after the program; its directory has an offset in the file, not in memory."""
    directories = program.OPTIONAL_HEADER.DATA_DIRECTORY
    if len(directories) <= _SECURITY or not directories[_SECURITY].VirtualAddress:
        return b""
    file.seek(directories[_SECURITY].VirtualAddress)
    entry = file.read(8)
    if len(entry) < 8:
        return b""
    length, _, kind = struct.unpack("<IHH", entry)
    return file.read(length - 8) if kind == 2 and 8 < length <= SIGNATURE_LIMIT else b""
