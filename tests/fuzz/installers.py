"""Uploaded installers, inspected and verified without the limits of the inspection process."""

from io import BytesIO

from tests.support.samples.pe_builder import program
from tests.support.samples.signed_files import make_identity
from upload_service.inspection.formats import Damaged, inspect_file
from upload_service.inspection.model import Findings, Signature, SignatureState
from upload_service.inspection.signatures.trust import TrustStore
from upload_service.inspection.signatures.verification import verify_file

TRUST = TrustStore([make_identity("CN=Fuzz Root", is_authority=True).certificate])  # No input leads to it.


def inspected(data: bytes) -> None:
    try:
        findings = inspect_file(BytesIO(data), ".exe")
    except Damaged:
        return
    assert Findings.parse(findings.to_document()) == findings


def verified(data: bytes) -> None:
    """A signed file, or the signature of a program."""
    for content in (data, program(signature=data)):
        signature = verify_file(BytesIO(content), len(content), TRUST)
        assert signature.state is not SignatureState.VALID
        assert Signature.parse(signature.to_document()) == signature
