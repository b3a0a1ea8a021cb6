"""The signer of a file, as its Authenticode signature states; the signature is not verified."""

from asn1crypto import cms, x509

from upload_service.inspection.model import Signer, clean_text

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
