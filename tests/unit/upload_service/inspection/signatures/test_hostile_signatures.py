"""A hostile signature ends its verification soon, and is never valid."""

import base64
import hashlib
import struct
import zlib
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from common.concurrency.confined_process import ConfinedProcessFailed
from tests.support.samples.msi_samples import USER_MSI
from tests.support.samples.pe_builder import program
from tests.support.samples.signed_files import (
    FORMATS,
    expired_signer,
    package,
    root,
    sign,
    time_authority,
    unsigned,
)
from tests.support.tables import each
from upload_service.inspection import process
from upload_service.inspection.model import Signature, SignatureState
from upload_service.inspection.process import Verifier
from upload_service.inspection.signatures.packages import BLOCK_SIZE, MAP_SIZE


async def verdict(content: bytes, trust: Path | None = None) -> Signature:
    with TemporaryFile() as file:
        file.write(content)
        file.flush()
        return await Verifier.load(trust).verify(file)


def der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 128:
        return bytes((tag, length)) + content
    size = length.to_bytes(-(-length.bit_length() // 8), "big")
    return bytes((tag, 0x80 | len(size))) + size + content


def signed_data(certificates: bytes = b"", signers: bytes = b"") -> bytes:
    digest = der(0x30, bytes.fromhex("0609608648016503040201") + b"\x05\0")
    content = der(0x30, bytes.fromhex("060a2b060104018237020104") + der(0xA0, der(0x30, b"")))
    body = b"\x02\x01\x01" + der(0x31, digest) + content + der(0xA0, certificates) + der(0x31, signers)
    return der(0x30, bytes.fromhex("06092a864886f70d010702") + der(0xA0, der(0x30, body)))


def nested(levels: int) -> bytes:
    content = b""
    for _ in range(levels):
        content = der(0x30, content)
    return content


def as_program(signature: bytes) -> bytes:
    return program(sections=[(b".text", bytes(range(256)) * 3)], signature=signature)


BOMBS: dict[str, bytes] = {
    "a million certificates": signed_data(b"\x30\0" * 1_000_000, nested(1)),
    "a million signers": signed_data(b"", b"\x30\0" * 1_000_000),
    "a long message": signed_data(b"\x30" * 3_900_000),
    "deep nesting": signed_data(nested(20_000), nested(20_000)),
    "endless nesting": signed_data(b"\x30\x80" * 1_000_000),
    "a length beyond the end": b"\x30\x84\x7f\xff\xff\xff" + bytes(100),
    "a very long number": signed_data(b"", der(0x30, der(0x02, b"\x7f" * 3_000_000))),
    "no signer": signed_data(),
    "zeros": bytes(1000),
}


@pytest.mark.full
@each("signature", BOMBS.values(), ids=BOMBS)
async def test_a_hostile_signature_is_never_valid(signature: bytes) -> None:
    for content in (as_program(signature), package(unmapped={"AppxSignature.p7x": b"PKCX" + signature})):
        result = await verdict(content)
        assert result.state in {SignatureState.INVALID, SignatureState.UNSUPPORTED}, result
        assert result.reason


@each("kind", FORMATS)
async def test_the_confined_process_verifies_each_format(kind: str, tmp_path: Path) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_bytes(root().pem)
    signed = sign(unsigned(kind), expired_signer(), authority=time_authority())
    assert (await verdict(signed, trust)).state in {SignatureState.EXPIRED, SignatureState.UNTRUSTED}
    assert (await verdict(sign(unsigned(kind), authority=time_authority()), trust)).state is SignatureState.VALID


async def test_a_file_longer_than_the_directory_says_is_never_valid() -> None:
    signed = sign(package())
    changed = signed.replace(struct.pack("<I", 256 * 600), struct.pack("<I", 256 * 599))
    assert changed != signed
    assert (await verdict(changed)).state is SignatureState.INVALID


@pytest.mark.full
async def test_a_package_that_expands_without_end_is_unsupported() -> None:
    deflater = zlib.compressobj(9, wbits=-15)
    block = deflater.compress(bytes(BLOCK_SIZE)) + deflater.flush(zlib.Z_FULL_FLUSH)
    count = 250_000
    digest = base64.b64encode(hashlib.sha256(bytes(BLOCK_SIZE)).digest()).decode()
    size = count * BLOCK_SIZE & 0xFFFFFFFF
    files = f'<File Name="a" Size="{size}">' + f'<Block Hash="{digest}"/>' * count + "</File>"
    text = f'<BlockMap HashMethod="http://www.w3.org/2001/04/xmlenc#sha256">{files}</BlockMap>'.encode()
    assert len(text) < MAP_SIZE
    extra = struct.pack("<HHQ", 1, 8, count * BLOCK_SIZE)
    members = [
        (b"AppxBlockMap.xml", b"", 0, text, zlib.crc32(text), len(text)),
        (b"a", extra, 8, block * count, 0, 0xFFFFFFFF),
        (b"AppxSignature.p7x", b"", 0, b"PKCX", zlib.crc32(b"PKCX"), 4),
    ]
    result = await verdict(raw_zip(members))
    assert (result.state, result.reason) == (SignatureState.UNSUPPORTED, "The verification takes too long.")


def raw_zip(members: list[tuple[bytes, bytes, int, bytes, int, int]]) -> bytes:
    """A ZIP file of members, each a name, an extra field, a method, its data, its checksum and its size."""
    content = directory = b""
    for name, extra, method, data, crc, size in members:
        fields = struct.pack("<5H3I2H", 45, 0, method, 0, 0, crc, len(data), size, len(name), len(extra))
        directory += b"PK\x01\x02" + struct.pack("<H", 45) + fields + bytes(10) + struct.pack("<I", len(content))
        directory += name + extra
        content += b"PK\x03\x04" + fields + name + extra + data
    counts = struct.pack("<4H2IH", 0, 0, len(members), len(members), len(directory), len(content), 0)
    return content + directory + b"PK\x05\x06" + counts


async def test_an_msi_with_a_loop_of_sectors_is_never_valid() -> None:
    signed = bytearray(sign(USER_MSI))
    (first,) = struct.unpack_from("<I", signed, 0x4C)
    table = (first + 1) * 512
    for number in range(64):
        struct.pack_into("<I", signed, table + 4 * number, number)
    assert (await verdict(bytes(signed))).state is not SignatureState.VALID


async def test_a_file_above_the_limit_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "VERIFIED_SIZE", 1000)
    result = await verdict(sign(unsigned("exe")))
    assert (result.state, "not verified" in result.reason) == (SignatureState.UNSUPPORTED, True)


@each(
    ("failure", "reason"),
    [
        (TimeoutError(), "too long"),
        (ConfinedProcessFailed(-24), "too long"),
        (ConfinedProcessFailed(4), "memory"),
        (ConfinedProcessFailed(1), "failed"),
    ],
    ids=["time", "cpu", "memory", "crash"],
)
async def test_a_verification_that_fails_is_unsupported(
    failure: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> bytes:
        raise failure

    monkeypatch.setattr(process, "run_confined", fail)
    result = await verdict(sign(unsigned("exe")))
    assert (result.state, reason in result.reason) == (SignatureState.UNSUPPORTED, True)


@each("output", [b"", b"{}", b'{"state": "valid"}', b"[]"])
async def test_a_garbled_verdict_is_unsupported(output: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(*_: object, **__: object) -> bytes:
        return output

    monkeypatch.setattr(process, "run_confined", answer)
    assert (await verdict(b"MZ")).state is SignatureState.UNSUPPORTED
