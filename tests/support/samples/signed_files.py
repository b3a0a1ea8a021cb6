"""Signs samples with osslsigncode, by a certificate authority and a timestamp authority of the tests' own."""

import base64
import hashlib
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.support.samples.msi_samples import USER_MSI
from tests.support.samples.pe_builder import make_zip, program

NOW = datetime.now(UTC).replace(microsecond=0)
YEAR = timedelta(days=365)
PUBLISHER = "CN=Tiny Works GmbH,O=Tiny Works GmbH,C=DE"
FORMATS = ("exe", "msi", "msix")
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Identity:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: Key

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def make_identity(
    name: str,
    issuer: Identity | None = None,
    *,
    usages: Sequence[x509.ObjectIdentifier] | None = None,
    start: datetime = NOW - YEAR,
    end: datetime = NOW + YEAR,
    is_authority: bool = False,
    key: Key | None = None,
    key_usage: x509.KeyUsage | None = None,
) -> Identity:
    """A certificate of an issuer, or a self-signed one."""
    if usages is None:
        usages = () if is_authority else (ExtendedKeyUsageOID.CODE_SIGNING,)
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name.from_rfc4514_string(name)
    authority = issuer.certificate.subject if issuer else subject
    builder = (
        x509.CertificateBuilder(authority, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    )
    if key_usage:
        builder = builder.add_extension(key_usage, critical=True)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=True)
    return Identity(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


@cache
def root() -> Identity:
    return make_identity("CN=Tiny Root", is_authority=True, start=NOW - 10 * YEAR, end=NOW + 10 * YEAR)


@cache
def signer() -> Identity:
    return make_identity(PUBLISHER, root())


@cache
def expired_signer() -> Identity:
    return make_identity(PUBLISHER, root(), start=NOW - 3 * YEAR, end=NOW - YEAR)


@cache
def time_authority() -> Identity:
    return make_identity(
        "CN=Tiny Time", root(), usages=[ExtendedKeyUsageOID.TIME_STAMPING], start=NOW - 5 * YEAR, end=NOW + 5 * YEAR
    )


def unsigned(kind: str) -> bytes:
    """A small installer of the format `kind`."""
    if kind == "exe":
        return program(sections=[(b".text", bytes(range(256)) * 3)])
    return USER_MSI if kind == "msi" else package()


def package(
    files: dict[str, bytes] | None = None,
    *,
    unmapped: dict[str, bytes] | None = None,
    changed: dict[str, bytes | None] | None = None,
) -> bytes:
    """A small MSIX with a block map, and with files that differ from it."""
    manifest = b'<Package><Identity Name="Tiny" Publisher="CN=Tiny" Version="1.0.0.0"/></Package>'
    files = {"AppxManifest.xml": manifest, "app/tiny one.exe": bytes(range(256)) * 600, **(files or {})}
    blocks = ""
    for name, content in files.items():
        digests = [hashlib.sha256(content[at : at + 65536]).digest() for at in range(0, len(content), 65536)]
        hashed = "".join(f'<Block Hash="{base64.b64encode(digest).decode()}"/>' for digest in digests)
        mapped = name.replace("/", "\\")
        blocks += f'<File Name="{mapped}" Size="{len(content)}" LfhSize="30">{hashed}</File>'
    method = "http://www.w3.org/2001/04/xmlenc#sha256"
    space = "http://schemas.microsoft.com/appx/2010/blockmap"
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    stored = {name.replace(" ", "%20"): content for name, content in files.items()} | (changed or {})
    return make_zip(
        {
            **{name: content for name, content in stored.items() if content is not None},
            **(unmapped or {}),
            "AppxBlockMap.xml": f'<BlockMap xmlns="{space}" HashMethod="{method}">{blocks}</BlockMap>',
            "[Content_Types].xml": f'<Types xmlns="{types}"><Default Extension="exe" ContentType="a/b"/></Types>',
        }
    )


def as_zip64(archive: bytes) -> bytes:
    """The ZIP file with the end of a long one, which Microsoft's tools always write."""
    count, length, start = struct.unpack("<10xHII2x", archive[-22:])
    content = archive[:-22]
    end = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, length, start)
    end += struct.pack("<4sIQI", b"PK\x06\x07", 0, len(content), 1)
    return content + end + struct.pack("<4s4HIIH", b"PK\x05\x06", 0, 0, *[0xFFFF] * 2, *[0xFFFFFFFF] * 2, 0)


def sign(
    content: bytes,
    identity: Identity | None = None,
    *options: str,
    authority: Identity | None = None,
    at: datetime = NOW - timedelta(days=1),
    chain: Sequence[Identity] = (),
) -> bytes:
    """The installer with a signature, which has a timestamp of `authority` if one is given."""
    identity = identity or signer()
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").write_bytes(content)
        (folder / "cert.pem").write_bytes(identity.pem + b"".join(one.pem for one in chain))
        (folder / "key.pem").write_bytes(identity.key_pem)
        stamp: list[str] = []
        if authority:
            (folder / "time.pem").write_bytes(authority.pem)
            (folder / "time.key").write_bytes(authority.key_pem)
            stamp = ["-TSA-certs", "time.pem", "-TSA-key", "time.key", "-TSA-time", str(int(at.timestamp()))]
        base = ["osslsigncode", "sign", "-certs", "cert.pem", "-key", "key.pem", "-in", "in", "-out", "out"]
        result = subprocess.run([*base, *stamp, *options], cwd=folder, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return (folder / "out").read_bytes()
