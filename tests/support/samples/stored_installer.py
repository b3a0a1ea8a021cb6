"""The record of a stored installer, and its bytes."""

import hashlib

from upload_service.model import Status, Upload

CONTENT = b"the bytes of an installer"
NAME = f"{'1' * 32}.exe"
UPLOAD = Upload(
    tenant_id="acme",
    file_id="setup",
    upload_id="1" * 32,
    total=len(CONTENT),
    status=Status.LINKED,
    server_filename=NAME,
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    version_uid="3d6f0a5e-2b1f-4f68-9c1d-5e8a4b3c2d1f",
)
