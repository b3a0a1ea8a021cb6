"""The certificates that the operator trusts, and the check that a certificate leads to one of them."""

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import (
    Criticality,
    ExtensionPolicy,
    Policy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from upload_service.inspection.model import Untrusted

SUFFIXES = (".pem", ".crt", ".cer")  # of the files in a folder
RSA_SIZE, CURVE_SIZE = 2048, 224  # bits, at least
CHAIN_LIMIT = 6  # certificates between the signer and the trusted one

_USAGE, _AUTHORITY = "it is for another usage", "a certificate of its chain may not sign certificates"
# Reasons by a part of the library's text, which is no plain English.
_REASONS = {
    _USAGE: _USAGE,
    _AUTHORITY: _AUTHORITY,
    "not valid at validation time": "it was not valid at the time of the signature",
    "all candidates exhausted with no interior errors": "it leads to no trusted certificate",
}


def read_trusted(path: Path | None) -> tuple[x509.Certificate, ...]:
    """The certificates of a PEM file, or of the PEM files in a folder; none without a path.

    Raises OSError or ValueError.
    """
    if path is None:
        return ()
    paths = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES) if path.is_dir() else [path]
    if not paths:
        raise ValueError("the folder has no certificate")
    return tuple(one for file in paths for one in x509.load_pem_x509_certificates(file.read_bytes()))


def fingerprint(certificates: Sequence[x509.Certificate]) -> str:
    """A text that differs for different trusted certificates."""
    digests = sorted(one.fingerprint(hashes.SHA256()) for one in certificates)
    return hashlib.sha256(b"".join(digests)).hexdigest()


class TrustStore:
    """Trusted certificates. Without any, nothing is trusted."""

    def __init__(self, certificates: Sequence[x509.Certificate]) -> None:
        self._store = Store(list(certificates)) if certificates else None

    def check(
        self,
        certificate: x509.Certificate,
        others: Sequence[x509.Certificate],
        usage: x509.ObjectIdentifier,
        at: datetime,
    ) -> None:
        """Raise Untrusted unless the certificate was good for `usage` at a time. Revocation is not checked."""
        if self._store is None:
            raise _untrusted(usage, "no certificate is trusted here, see SIGNATURE_TRUST")
        builder = PolicyBuilder().store(self._store).time(at).max_chain_depth(CHAIN_LIMIT)
        builder = builder.extension_policies(ca_policy=_issuer_policy(usage), ee_policy=_signer_policy(usage))
        try:
            chain = builder.build_client_verifier().verify(certificate, list(others)).chain
        except VerificationError as error:
            texts = (plain for text, plain in _REASONS.items() if text in str(error))
            raise _untrusted(usage, next(texts, "a certificate of its chain is not acceptable")) from None
        if any(_is_weak(one.public_key()) for one in chain):
            raise _untrusted(usage, "a key of its chain is too short")


def _untrusted(usage: x509.ObjectIdentifier, reason: str) -> Untrusted:
    owner = "timestamp" if usage == ExtendedKeyUsageOID.TIME_STAMPING else "signer"
    return Untrusted(f"The certificate of the {owner} is not trusted: {reason}.")


def _is_weak(key: object) -> bool:
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.key_size < CURVE_SIZE
    return not isinstance(key, rsa.RSAPublicKey) or key.key_size < RSA_SIZE


def _issuer_policy(usage: x509.ObjectIdentifier) -> ExtensionPolicy:
    """A certificate authority: it says so, may sign certificates, and is not limited to other usages."""
    usages = {usage, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    is_authority = _require(_AUTHORITY, lambda constraints: constraints.ca)
    may_sign = _require(_AUTHORITY, lambda key_usage: key_usage.key_cert_sign)
    has_usage = _require(_AUTHORITY, lambda extended: usages & set(extended))
    return (
        ExtensionPolicy.permit_all()
        .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, is_authority)
        .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, may_sign)
        .may_be_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, has_usage)
    )


def _signer_policy(usage: x509.ObjectIdentifier) -> ExtensionPolicy:
    """A signer: its certificate names the usage, and a timestamp authority's no other usage."""
    is_sole = usage == ExtendedKeyUsageOID.TIME_STAMPING
    may_sign = _require(_USAGE, lambda key_usage: key_usage.digital_signature or key_usage.content_commitment)
    has_usage = _require(_USAGE, lambda extended: usage in extended and not (is_sole and len(list(extended)) > 1))
    return (
        ExtensionPolicy.permit_all()
        .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, may_sign)
        .require_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, has_usage)
    )


def _require(reason: str, is_met: Callable[[Any], object]) -> Callable[[Policy, x509.Certificate, Any], None]:
    """A check of an extension, if the certificate has it."""

    def check(policy: Policy, certificate: x509.Certificate, extension: Any) -> None:
        if extension is not None and not is_met(extension):
            raise ValueError(reason)

    return check
