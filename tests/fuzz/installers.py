"""Uploaded installers, inspected without the limits of the inspection process."""

from io import BytesIO

from upload_service.inspection.formats.detection import Damaged, inspect_file
from upload_service.inspection.model import Findings


def inspected(data: bytes) -> None:
    try:
        findings = inspect_file(BytesIO(data), ".exe")
    except Damaged:
        return
    assert Findings.parse(findings.to_document()) == findings
