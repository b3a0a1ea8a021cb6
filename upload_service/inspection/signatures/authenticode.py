"""Authenticode signatures: a signed digest of the file, with a timestamp and further signatures in it."""

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import ClassVar

from asn1crypto import algos, core, tsp
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from upload_service.inspection.signatures.cms import SignedMessage, digest_name, open_message
from upload_service.inspection.signatures.model import (
    NAME_LIMIT,
    Altered,
    Expired,
    Signature,
    SignatureProblem,
    SignatureState,
    Unsupported,
    Untrusted,
)
from upload_service.inspection.signatures.trust import NotTrusted, TrustStore

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


class _Attribute(core.Sequence):  # type: ignore[misc]
    _fields: ClassVar = [("type", core.ObjectIdentifier), ("value", core.Any, {"optional": True})]


class _IndirectData(core.Sequence):  # type: ignore[misc]
    _fields: ClassVar = [("data", _Attribute), ("digest", algos.DigestInfo)]


def verify_all(
    content: bytes, kind: str, is_digest: Callable[[str, bytes], bool], trust: TrustStore, now: datetime
) -> list[Signature]:
    """The verdicts about a signature and those nested in it, the outer one first.

    `kind` is PROGRAM_DATA or PACKAGE_DATA. `is_digest` tells whether the file has a digest, by its name and value.
    """
    verdicts: list[Signature] = []
    pending = [content]
    while pending:
        if len(verdicts) == SIGNATURES_LIMIT:
            raise Unsupported("The file has too many signatures.")
        message = open_message(pending.pop(0), _INDIRECT_DATA)
        pending += message.unsigned.pop(_NESTED, ())
        verdicts.append(_verify(message, kind, is_digest, trust, now))
    return verdicts


def _verify(
    message: SignedMessage, kind: str, is_digest: Callable[[str, bytes], bool], trust: TrustStore, now: datetime
) -> Signature:
    signer, issuer = (_name(name) for name in (message.certificate.subject, message.certificate.issuer))
    signed_at: datetime | None = None
    state, reason = SignatureState.VALID, ""
    try:
        data = _IndirectData.load(message.content, strict=True)
        if data["data"]["type"].dotted != kind or digest_name(data["digest"]["digest_algorithm"]) != message.digest:
            raise Altered("The signature is of another kind of file.")
        if not is_digest(message.digest, data["digest"]["digest"].native):
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
    try:
        trust.check(token.certificate, token.others, _TIME_STAMPING, time)
    except NotTrusted as error:
        raise Untrusted(f"The certificate of the timestamp is not trusted: {error}.") from None
    return time


def _check_signer(message: SignedMessage, trust: TrustStore, signed_at: datetime | None, now: datetime) -> None:
    """Raise SignatureProblem unless the signer was trusted when it signed, or is now without a timestamp."""
    certificate = message.certificate
    extensions = [one.value for one in certificate.extensions if isinstance(one.value, x509.ExtendedKeyUsage)]
    is_limited = any(_LIFETIME_SIGNING in usages for usages in extensions)
    at = now if signed_at is None or is_limited else signed_at
    end = certificate.not_valid_after_utc
    try:
        trust.check(certificate, message.others, _CODE_SIGNING, min(at, end))
    except NotTrusted as error:
        raise Untrusted(f"The certificate of the signer is not trusted: {error}.") from None
    if at > end:
        raise Expired(f"The certificate expired on {end:%Y-%m-%d}, and no timestamp shows an earlier signature.")


def _name(name: x509.Name) -> str:
    """A name as RFC 4514 text; "" if it is too long or has control characters."""
    text = name.rfc4514_string()
    return text if len(text) <= NAME_LIMIT and text.isprintable() else ""
