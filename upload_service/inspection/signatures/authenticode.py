"""Authenticode signatures: a signed digest of the file, with a timestamp and further signatures in it.

A signature is a message (PKCS #7, CMS) of one signer. `open_message` verifies it without the signer's certificate, and
`verify_all` everything. The parts of a file that digests cover are read in blocks.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, BinaryIO, ClassVar

from asn1crypto import algos, cms, core, parser, tsp
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from upload_service.inspection.model import (
    NAME_LIMIT,
    Altered,
    Expired,
    Signature,
    SignatureProblem,
    SignatureState,
    Unsupported,
)
from upload_service.inspection.signatures.trust import TrustStore

BLOCK = 1 << 20  # bytes
PADDING_LIMIT = 8  # bytes
CERTIFICATES_LIMIT = 64
DIGESTS: dict[str, hashes.HashAlgorithm] = {
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
}
_VERSIONS = {"v1", "v3"}
_CONTEXT = 2  # the class of a tag that belongs to its context
_CONTENT_TYPE, _MESSAGE_DIGEST = "1.2.840.113549.1.9.3", "1.2.840.113549.1.9.4"  # signed attributes
_EC = "1.2.840.10045.2.1"  # asn1crypto has no name for it here
SIGNATURES_LIMIT = 8  # of one file
CLOCK_DIFFERENCE = timedelta(minutes=10)  # between the authority of a timestamp and this server
PROGRAM_DATA = "1.3.6.1.4.1.311.2.1.15"  # the content of a program's signature
PACKAGE_DATA = "1.3.6.1.4.1.311.2.1.30"  # the content of the signature of an MSI or MSIX
_INDIRECT_DATA = "1.3.6.1.4.1.311.2.1.4"
_TIMESTAMP_DATA = "1.2.840.113549.1.9.16.1.4"
_TIMESTAMPS = {"1.3.6.1.4.1.311.3.3.1", "1.2.840.113549.1.9.16.2.14"}
_NESTED = "1.3.6.1.4.1.311.2.4.1"
_LIFETIME_SIGNING = x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.13")
_CODE_SIGNING, _TIME_STAMPING = ExtendedKeyUsageOID.CODE_SIGNING, ExtendedKeyUsageOID.TIME_STAMPING


def read_at(file: BinaryIO, start: int, length: int) -> bytes:
    """The `length` bytes from `start` on. Raises EOFError if the file has fewer."""
    file.seek(start)
    content = file.read(length)
    if len(content) != length:
        raise EOFError
    return content


def block_digest(name: str, file: BinaryIO, *ranges: tuple[int, int]) -> bytes:
    """The digest of ranges of a file, each a start and an end."""
    digest = hashlib.new(name)
    for start, end in ranges:
        for at in range(start, end, BLOCK):
            digest.update(read_at(file, at, min(BLOCK, end - at)))
    return digest.digest()


def without_padding(content: bytes) -> bytes:
    """A DER value without the zeros after it. Raises Altered if anything else is after it."""
    end = parser.peek(content)
    if len(content) - end >= PADDING_LIMIT or content[end:].strip(b"\0"):
        raise Altered("The signature has data that is not part of it.")
    return content[:end]


@dataclass(frozen=True)
class SignedMessage:
    """A message whose signature is that of the certificate's key. `others` are the certificates besides it.

    `content` is DER, or the bytes of an OCTET STRING. `unsigned` has the unsigned attributes by their OID.
    """

    content: bytes
    digest: str
    certificate: x509.Certificate
    others: Sequence[x509.Certificate]
    signature: bytes
    unsigned: dict[str, list[bytes]]


def open_message(content: bytes, content_type: str) -> SignedMessage:
    """Verify a message.

    Raises:
        Altered: the signature is not that of this message, or uses a weak digest.
        Unsupported: the signature is of another kind.
        ValueError, TypeError, KeyError or LookupError: it is malformed.
    """
    outer = cms.ContentInfo.load(content, strict=True)
    if outer["content_type"].native != "signed_data":
        raise Altered("The signature is not a signed message.")
    message = outer["content"]
    (signer,) = message["signer_infos"]
    if message["version"].native not in _VERSIONS or signer["version"].native != "v1":
        raise Unsupported("The signature has an unknown version.")
    _check_complete(message)
    _check_complete(signer)
    # The signature covers the attributes as a SET, which has another tag than in the message.
    covered = b"\x31" + _encoding(signer["signed_attrs"], content)[1:]
    digest = digest_name(signer["digest_algorithm"])
    if [digest_name(one) for one in message["digest_algorithms"]] != [digest]:
        raise Altered("The signature names several digests.")
    signed_bytes, body = _content(message["encap_content_info"], content_type, content)
    _check_attributes(signer["signed_attrs"], content_type, hashlib.new(digest, signed_bytes).digest())
    certificate, others = _certificates(message["certificates"], signer["sid"], content)
    signature = signer["signature"].native
    algorithm = signer["signature_algorithm"]["algorithm"].native
    _check_signature(certificate, digest, algorithm, signature, covered)
    attributes = signer["unsigned_attrs"]
    found = {} if isinstance(attributes, core.Void) else _by_type(attributes)
    unsigned = {name: [_encoding(value, content) for value in values] for name, values in found.items()}
    return SignedMessage(body, digest, certificate, others, signature, unsigned)


def _encoding(value: Any, message: bytes) -> bytes:
    """A value as it is in a message. asn1crypto encodes some values anew, as if their length were indefinite."""
    encoded: bytes = value.dump()
    if encoded not in message:
        raise Altered("The signature is not encoded as its signer left it.")
    return encoded


def digest_name(algorithm: Any) -> str:
    """The name of a digest. Raises Altered for a weak or unknown one."""
    name: str = algorithm["algorithm"].native
    if name not in DIGESTS or not isinstance(algorithm["parameters"], (core.Null, core.Void)):
        raise Altered(f"The signature uses the digest {name.upper()[:40]}, which is not accepted.")
    return name


def _check_complete(sequence: Any) -> None:
    """Raise Altered if a sequence has more than its fields."""
    if sum(len(sequence[name].dump()) for name in sequence) != len(sequence.contents):
        raise Altered("The signature has data that is not part of it.")


def _content(info: Any, content_type: str, message: bytes) -> tuple[bytes, bytes]:
    """The bytes that the digest covers, and the content: an OCTET STRING's bytes, or another value without its tag."""
    if info["content_type"].dotted != content_type:
        raise Altered("The signature is of another kind of content.")
    class_, _, _, _, encoded, _ = parser.parse(_encoding(info["content"], message), strict=True)
    _, _, tag, _, body, _ = parser.parse(encoded, strict=True)
    if class_ != _CONTEXT:
        raise Altered("The signature is of another kind of content.")
    return body, (body if tag == core.OctetString.tag else encoded)


def _check_attributes(attributes: cms.CMSAttributes, content_type: str, digest: bytes) -> None:
    found = _by_type(attributes)
    if any(len(values) != 1 for values in found.values()):
        raise Altered("An attribute of the signature occurs twice.")
    if found[_CONTENT_TYPE][0].dotted != content_type:
        raise Altered("The signature is of another kind of content.")
    if found[_MESSAGE_DIGEST][0].native != digest:
        raise Altered("The signature belongs to another content.")


def _certificates(choices: Any, signer: Any, message: bytes) -> tuple[x509.Certificate, Sequence[x509.Certificate]]:
    if len(choices) > CERTIFICATES_LIMIT:
        raise Unsupported("The signature has too many certificates.")
    # Before anything is read from them: the library encodes anew what it has read.
    certificates = {_encoding(choice, message): choice for choice in choices}  # Some signers add a certificate twice.
    if signer.name != "issuer_and_serial_number" or any(choice.name != "certificate" for choice in choices):
        raise Unsupported("The signature has certificates of an unknown kind.")
    for choice in certificates.values():
        if choice.chosen.serial_number <= 0 or choice.chosen["signature_value"].contents[:1] != b"\0":
            raise Altered("A certificate of the signature is malformed.")
    issuer, serial = signer.chosen["issuer"].dump(), signer.chosen["serial_number"].native
    matches = [
        encoded
        for encoded, choice in certificates.items()
        if choice.chosen.serial_number == serial and choice.chosen["tbs_certificate"]["issuer"].dump() == issuer
    ]
    if len(matches) != 1:
        raise Altered("The signature does not have the certificate of its signer.")
    others = [x509.load_der_x509_certificate(one) for one in certificates if one != matches[0]]
    return x509.load_der_x509_certificate(matches[0]), others


def _check_signature(
    certificate: x509.Certificate, digest: str, algorithm: str, signature: bytes, covered: bytes
) -> None:
    try:
        key = certificate.public_key()
        if isinstance(key, rsa.RSAPublicKey) and algorithm in {"rsassa_pkcs1v15", f"{digest}_rsa"}:
            key.verify(signature, covered, padding.PKCS1v15(), DIGESTS[digest])
        elif isinstance(key, ec.EllipticCurvePublicKey) and algorithm in {_EC, f"{digest}_ecdsa"}:
            key.verify(signature, covered, ec.ECDSA(DIGESTS[digest]))
        else:
            raise Unsupported("The signature has an algorithm that is not supported.")
    except InvalidSignature:
        raise Altered("The signature was not made with the key of its certificate.") from None
    except UnsupportedAlgorithm:
        raise Unsupported("The signature has a key that is not supported.") from None


def _by_type(attributes: cms.CMSAttributes) -> dict[str, list[core.Asn1Value]]:
    found = {one["type"].dotted: list(one["values"]) for one in attributes}
    if len(found) != len(attributes):
        raise Altered("An attribute of the signature occurs twice.")
    return found


class _Attribute(core.Sequence):  # type: ignore[misc]
    _fields: ClassVar = [("type", core.ObjectIdentifier), ("value", core.Any, {"optional": True})]


class _IndirectData(core.Sequence):  # type: ignore[misc]
    _fields: ClassVar = [("data", _Attribute), ("digest", algos.DigestInfo)]


def verify_all(
    content: bytes, kind: str, digest: Callable[[str], bytes], trust: TrustStore, now: datetime
) -> list[Signature]:
    """The verdicts about a signature and those nested in it, the outer one first.

    `kind` is PROGRAM_DATA or PACKAGE_DATA. `digest` computes the file's digest of a name.
    """
    verdicts: list[Signature] = []
    pending = [content]
    while pending:
        if len(verdicts) == SIGNATURES_LIMIT:
            raise Unsupported("The file has too many signatures.")
        message = open_message(pending.pop(0), _INDIRECT_DATA)
        pending += message.unsigned.pop(_NESTED, ())
        verdicts.append(_verify(message, kind, digest, trust, now))
    return verdicts


def _verify(
    message: SignedMessage, kind: str, digest: Callable[[str], bytes], trust: TrustStore, now: datetime
) -> Signature:
    signer, issuer = (_name(name) for name in (message.certificate.subject, message.certificate.issuer))
    signed_at: datetime | None = None
    state, reason = SignatureState.VALID, ""
    try:
        data = _IndirectData.load(message.content, strict=True)
        if data["data"]["type"].dotted != kind or digest_name(data["digest"]["digest_algorithm"]) != message.digest:
            raise Altered("The signature is of another kind of file.")
        if digest(message.digest) != data["digest"]["digest"].native:
            raise Altered("The file was changed after it was signed, or the signature is of another file.")
        signed_at = _timestamp(message, trust, now)
        _check_signer(message, trust, signed_at, now)
    except SignatureProblem as problem:
        state, reason = problem.state, str(problem)
    return Signature(state, reason, signer, issuer, signed_at.isoformat() if signed_at else "")


def _timestamp(message: SignedMessage, trust: TrustStore, now: datetime) -> datetime | None:
    """The verified time of the signature; None without a timestamp."""
    if not message.unsigned:
        return None
    ((name, values),) = message.unsigned.items() if len(message.unsigned) == 1 else (("", []),)
    if name not in _TIMESTAMPS or len(values) != 1:
        raise Unsupported("The signature has an attribute that is not supported, such as a timestamp of the old kind.")
    token = open_message(values[0], _TIMESTAMP_DATA)
    stamp = tsp.TSTInfo.load(token.content, strict=True)
    imprint = stamp["message_imprint"]
    time: datetime = stamp["gen_time"].native
    digest = hashlib.new(digest_name(imprint["hash_algorithm"]), message.signature).digest()
    if token.unsigned or imprint["hashed_message"].native != digest:
        raise Altered("The timestamp belongs to another signature.")
    if time > now + CLOCK_DIFFERENCE:
        raise Altered("The timestamp is in the future.")
    trust.check(token.certificate, token.others, _TIME_STAMPING, time)
    return time


def _check_signer(message: SignedMessage, trust: TrustStore, signed_at: datetime | None, now: datetime) -> None:
    """Raise SignatureProblem unless the signer was trusted when it signed, or is now without a timestamp."""
    certificate = message.certificate
    extensions = [one.value for one in certificate.extensions if isinstance(one.value, x509.ExtendedKeyUsage)]
    is_limited = any(_LIFETIME_SIGNING in usages for usages in extensions)
    at = now if signed_at is None or is_limited else signed_at
    end = certificate.not_valid_after_utc
    trust.check(certificate, message.others, _CODE_SIGNING, min(at, end))
    if at > end:
        raise Expired(f"The certificate expired on {end:%Y-%m-%d}, and no timestamp shows an earlier signature.")


def _name(name: x509.Name) -> str:
    """A name as RFC 4514 text; "" if it is too long or has control characters."""
    text = name.rfc4514_string()
    return text if len(text) <= NAME_LIMIT and text.isprintable() else ""
