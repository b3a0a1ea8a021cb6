"""A signed file with one changed byte is never valid.

Some bytes belong to no signature, in Windows as well: the checksum of a program, what no reader of an MSI sees, and how
the ZIP file of a package stores its signature. The samples have a certificate twice, as osslsigncode adds it.
"""

import random
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import olefile
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from tests.support.samples.signed_files import PUBLISHER, Identity, make_identity, root, sign, time_authority, unsigned
from upload_service.inspection.model import SignatureState
from upload_service.inspection.signatures.trust import TrustStore
from upload_service.inspection.signatures.verification import verify_file

CHECKSUM = range(64 + 24 + 64, 64 + 24 + 68)


def in_streams(content: bytes) -> Any:
    """The content of an MSI for a reader."""
    with olefile.OleFileIO(BytesIO(content)) as ole:
        return sorted(ole.openstream(name).read() for name in ole.listdir())


def in_package(content: bytes) -> Any:
    with ZipFile(BytesIO(content)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def in_program(content: bytes) -> Any:
    return content[: CHECKSUM.start], content[CHECKSUM.stop :]


CASES: dict[str, tuple[str, list[str], Callable[[bytes], Any]]] = {
    "exe": ("exe", [], in_program),
    "nested": ("exe", ["-ph"], in_program),
    "msi": ("msi", [], in_streams),
    "msi with details": ("msi", ["-add-msi-dse"], in_streams),
    "msix": ("msix", [], in_package),
}


@cache
def signed(case: str) -> bytes:
    kind, options, _ = CASES[case]
    return sign(unsigned(kind), None, *options, authority=time_authority())


def is_valid(content: bytes) -> bool:
    store = TrustStore([root().certificate])
    return verify_file(BytesIO(content), len(content), store).state is SignatureState.VALID


def copies(content: bytes) -> Iterator[range]:
    """The places of the certificate of the timestamp."""
    certificate = time_authority().certificate.public_bytes(Encoding.DER)
    at = content.find(certificate)
    while at >= 0:
        yield range(at, at + len(certificate))
        at = content.find(certificate, at + 1)


def changes(case: str, positions: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    """Changes of the sample that a reader sees."""
    content, read = signed(case), CASES[case][2]
    twice = [*copies(content)]
    for number, at in enumerate(positions):
        changed = bytearray(content)
        changed[at] ^= (0x01, 0x80)[number % 2]
        if not any(at in where for where in twice) and sees_change(read, content, bytes(changed)):
            yield at, bytes(changed)


def sees_change(read: Callable[[bytes], Any], content: bytes, changed: bytes) -> bool:
    try:
        return bool(read(content) != read(changed))
    except Exception:  # noqa: BLE001  A reader that fails sees the change.
        return True


def check(case: str, positions: Iterator[int]) -> None:
    assert is_valid(signed(case))
    accepted = [hex(at) for at, changed in changes(case, positions) if is_valid(changed)]
    assert not accepted, f"{case}: {len(accepted)} changes are valid, at {accepted[:20]}"


@pytest.mark.parametrize("count", [150, pytest.param(4000, marks=pytest.mark.full)])
@pytest.mark.parametrize("case", CASES)
def test_a_file_with_a_changed_byte_is_never_valid(case: str, count: int) -> None:
    length = len(signed(case))
    drawn = random.Random(1).sample(range(length), min(count, length))  # noqa: S311  positions are no secrets
    sample = {*drawn, *range(64), *range(length - 64, length)}
    check(case, iter(sorted(sample)))


@pytest.mark.full
def test_any_changed_byte_of_the_signature_in_an_msi_is_never_valid() -> None:
    content = signed("msi")
    with olefile.OleFileIO(BytesIO(content)) as ole:
        signature = ole.openstream("\x05DigitalSignature").read()
    start = content.index(signature[:60])
    check("msi", iter(range(start, start + len(signature))))


def test_a_certificate_that_asn1crypto_encodes_anew_is_read_as_it_is() -> None:
    # The length of its content ends with the byte of an indefinite length.
    identities = (make_identity(PUBLISHER, root()) for _ in range(1000))
    encodings = ((one, one.certificate.public_bytes(Encoding.DER)) for one in identities)
    identity, certificate = next((one, encoded) for one, encoded in encodings if encoded[3] == 0x80)
    content = sign(unsigned("exe"), identity)
    assert is_valid(content)
    changed = certificate.replace(b"\x01\x01\xff", b"\x01\x01\xfe")  # another encoding of true
    assert changed != certificate
    assert not is_valid(content.replace(certificate, changed))


def test_a_change_of_both_copies_of_a_certificate_is_never_valid() -> None:
    content = signed("exe")
    first, second = copies(content)
    for offset in range(0, len(first), 3):
        changed = bytearray(content)
        for where in (first, second):
            changed[where[offset]] ^= 1
        assert not is_valid(bytes(changed)), hex(offset)


def test_changed_names_of_an_msi_are_invalid_where_its_details_are_signed() -> None:
    content = signed("msi with details")
    name = "\u4840\u3f3f\u4577\u446c\u3e6a\u44b2\u482f".encode("utf-16-le")  # of the table _StringPool
    changed = content.replace(name, name[:-2] + "\u4830".encode("utf-16-le"))
    assert changed != content
    assert not is_valid(changed)


@pytest.mark.parametrize("offset", [4, 96, 104, 108], ids=["name", "flags", "created", "modified"])
def test_the_details_of_an_msi_are_signed_if_its_signature_has_them(offset: int) -> None:
    content = bytearray(signed("msi with details"))
    entry = bytes(content).index("Root Entry".encode("utf-16-le")) + 128  # The entry after the root's.
    content[entry + offset] ^= 1
    assert not is_valid(bytes(content))


@pytest.mark.parametrize("kind", [0, 1], ids=["unused", "folder"])
@pytest.mark.parametrize("case", ["msi", "msi with details"])
def test_a_stream_of_an_msi_that_becomes_another_entry_is_never_valid(case: str, kind: int) -> None:
    content = signed(case)
    with olefile.OleFileIO(BytesIO(content)) as ole:
        entries = [content.index(bytes(entry.name_raw)) for entry in ole.root.kids]
    for entry in entries:
        changed = bytearray(content)
        changed[entry + 66] = kind
        assert not is_valid(bytes(changed)), hex(entry)


def identity_of_length(length: int) -> Identity:
    """A signer whose certificate has so many bytes. The length of a signature by a curve varies."""
    name = "CN=Tiny"
    while True:
        identity = make_identity(name, root())
        missing = length - len(identity.certificate.public_bytes(Encoding.DER))
        if not missing:
            return identity
        name = f"CN=Tiny,O={'x' * (missing - 11)}" if name == "CN=Tiny" else name


def test_a_changed_certificate_of_any_length_is_never_valid() -> None:
    identity = identity_of_length(4 + 0x180)  # The last byte of the length is BER's mark of an indefinite one.
    certificate = identity.certificate.public_bytes(Encoding.DER)
    content = sign(unsigned("exe"), identity)
    assert is_valid(content)
    at = content.index(certificate) + certificate.index(b"\x01\x01\xff") + 2
    assert not is_valid(content[:at] + b"\xfe" + content[at + 1 :])
