"""Uploaded installers, read without the limits that their process has."""

from io import BytesIO

from upload_service.inspection.formats.detection import Damaged, inspect_file
from upload_service.inspection.model import Findings


def inspected(data: bytes) -> None:
    try:
        found = inspect_file(BytesIO(data), ".exe")
    except Damaged:
        return
    assert Findings.parse(found.to_document()) == found
