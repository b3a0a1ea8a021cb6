"""Signed messages (PKCS #7, CMS) of one signer. The signature is verified, the signer's certificate is not."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from asn1crypto import cms, core, parser
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from upload_service.inspection.signatures.model import Altered, Unsupported

CERTIFICATES_LIMIT = 64
DIGESTS: dict[str, hashes.HashAlgorithm] = {
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
}
_VERSIONS = {"v1", "v3"}
_FIRST, _OCTETS, _SEQUENCE = b"\xa0", b"\x04", b"\x30"  # tags; the first is of signed attributes and of a content
_RSA = "1.2.840.113549.1.1.1"
_RSA_OF = {"sha256": "1.2.840.113549.1.1.11", "sha384": "1.2.840.113549.1.1.12", "sha512": "1.2.840.113549.1.1.13"}
_EC = "1.2.840.10045.2.1"
_EC_OF = {"sha256": "1.2.840.10045.4.3.2", "sha384": "1.2.840.10045.4.3.3", "sha512": "1.2.840.10045.4.3.4"}


@dataclass(frozen=True)
class SignedMessage:
    """A message whose signature is that of the certificate's key. `others` are the certificates besides it.

    `content` is DER, or the bytes of an OCTET STRING. `unsigned` has the DER of the unsigned attributes by their OID.
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
    (attributes,) = (value for value in _values(signer.contents) if value.startswith(_FIRST))
    covered = b"\x31" + attributes[1:]
    digest = digest_name(signer["digest_algorithm"])
    if [digest_name(one) for one in message["digest_algorithms"]] != [digest]:
        raise Altered("The signature names several digests.")
    signed_bytes, body = _content(message["encap_content_info"], content_type)
    _check_attributes(signer["signed_attrs"], content_type, hashlib.new(digest, signed_bytes).digest())
    certificate, others = _certificates(message["certificates"], signer["sid"])
    signature = signer["signature"].native
    algorithm = signer["signature_algorithm"]["algorithm"].dotted
    _check_signature(certificate, digest, algorithm, signature, covered)
    return SignedMessage(body, digest, certificate, others, signature, _unsigned(signer))


def digest_name(algorithm: Any) -> str:
    """The name of a digest. Raises Altered for a weak or unknown one."""
    name: str = algorithm["algorithm"].native
    if name not in DIGESTS or not isinstance(algorithm["parameters"], (core.Null, core.Void)):
        raise Altered(f"The signature uses the digest {name.upper()[:40]}, which is not accepted.")
    return name


def _values(content: bytes) -> list[bytes]:
    """The DER values that follow one another in a content. `dump` of the library may encode a value anew."""
    values = []
    while content:
        length = parser.peek(content)
        values.append(content[:length])
        content = content[length:]
    return values


def _check_complete(sequence: Any) -> None:
    """Raise Altered if a sequence has more than its fields."""
    if sum(not isinstance(sequence[name], core.Void) for name in sequence) != len(_values(sequence.contents)):
        raise Altered("The signature has data that is not part of it.")


def _content(info: Any, content_type: str) -> tuple[bytes, bytes]:
    """The bytes that the digest covers, and the content: an OCTET STRING's bytes, or another value without its tag."""
    if info["content_type"].dotted != content_type:
        raise Altered("The signature is of another kind of content.")
    _, content = _values(info.contents)
    encoded = parser.parse(content, strict=True)[4]
    body = parser.parse(encoded, strict=True)[4]
    if not content.startswith(_FIRST) or not encoded.startswith((_OCTETS, _SEQUENCE)):
        raise Altered("The signature is of another kind of content.")
    return body, (body if encoded.startswith(_OCTETS) else encoded)


def _check_attributes(attributes: cms.CMSAttributes, content_type: str, digest: bytes) -> None:
    found = {one["type"].dotted: one["values"] for one in attributes}
    if len(found) != len(attributes) or any(len(values) != 1 for values in found.values()):
        raise Altered("An attribute of the signature occurs twice.")
    if found["1.2.840.113549.1.9.3"][0].dotted != content_type:
        raise Altered("The signature is of another kind of content.")
    if found["1.2.840.113549.1.9.4"][0].native != digest:
        raise Altered("The signature belongs to another content.")


def _certificates(choices: Any, signer: Any) -> tuple[x509.Certificate, Sequence[x509.Certificate]]:
    if len(choices) > CERTIFICATES_LIMIT:
        raise Unsupported("The signature has too many certificates.")
    if signer.name != "issuer_and_serial_number" or any(choice.name != "certificate" for choice in choices):
        raise Unsupported("The signature has certificates of an unknown kind.")
    for choice in choices:
        if choice.chosen.serial_number <= 0 or choice.chosen["signature_value"].contents[:1] != b"\0":
            raise Altered("A certificate of the signature is malformed.")
    issuer, serial = signer.chosen["issuer"].dump(), signer.chosen["serial_number"].native
    issuers = [choice.chosen["tbs_certificate"]["issuer"].dump() for choice in choices]
    certificates = dict(zip(_values(choices.contents), issuers, strict=True))  # Some signers add a certificate twice.
    others = [x509.load_der_x509_certificate(one) for one in certificates]
    matches = [
        certificate
        for certificate, name in zip(others, certificates.values(), strict=True)
        if certificate.serial_number == serial and name == issuer
    ]
    if len(matches) != 1:
        raise Altered("The signature does not have the certificate of its signer.")
    others.remove(matches[0])
    return matches[0], others


def _check_signature(
    certificate: x509.Certificate, digest: str, algorithm: str, signature: bytes, covered: bytes
) -> None:
    try:
        key = certificate.public_key()
        if isinstance(key, rsa.RSAPublicKey) and algorithm in {_RSA, _RSA_OF[digest]}:
            key.verify(signature, covered, padding.PKCS1v15(), DIGESTS[digest])
        elif isinstance(key, ec.EllipticCurvePublicKey) and algorithm in {_EC, _EC_OF[digest]}:
            key.verify(signature, covered, ec.ECDSA(DIGESTS[digest]))
        else:
            raise Unsupported("The signature has an algorithm that is not supported.")
    except InvalidSignature:
        raise Altered("The signature was not made with the key of its certificate.") from None
    except UnsupportedAlgorithm:
        raise Unsupported("The signature has a key that is not supported.") from None


def _unsigned(signer: Any) -> dict[str, list[bytes]]:
    attributes = signer["unsigned_attrs"]
    if isinstance(attributes, core.Void):
        return {}
    found = {one["type"].dotted: _values(one["values"].contents) for one in attributes}
    if len(found) != len(attributes):
        raise Altered("An attribute of the signature occurs twice.")
    return found
