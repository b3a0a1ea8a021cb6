"""An upload is inspected: its findings, and what is fetched of its file."""

from pathlib import Path
from typing import Any

import pytest

from common.auth.internal_tokens import Caller
from tests.support.api import Answer
from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.samples.pe_builder import make_zip, program
from tests.support.servers.object_storage import ObjectServer
from tests.support.services.upload import UploadApi, make_uploader, sha256
from tests.support.wait import until
from upload_service.inspection import process
from upload_service.inspection.model import Format
from upload_service.inspection.process import InstallerFiles, ends_of, read_installer
from upload_service.model import StorageKind, Upload
from upload_service.settings import StorageSettings
from upload_service.storage.filesystem import FolderStorage
from upload_service.storage.part_files import PartFiles
from upload_service.storage.s3 import S3Storage, storage_backends

FIELDS = (
    "reason file_type file_architect file_scope package_version package_name package_publisher productcode upgradecode "
    "package_family_name signature_sha256"
)
NOTHING_FOUND: dict[str, Any] = {**dict.fromkeys(FIELDS.split(), ""), "nested": [], "signer": None}


async def inspected(api: UploadApi, caller: Caller, name: str) -> Answer:
    """The response without the verdicts about signatures and malware."""
    answer = await api.service.call(caller, "GET", "inspect_upload", name)
    for verdict in ("signature", "scan"):
        answer.body.pop(verdict, None)
    return answer


async def settled(api: UploadApi, caller: Caller, name: str) -> Answer:
    """The response when the inspection is finished."""

    async def done() -> bool:
        return bool((await inspected(api, caller, name)).body["state"] != "waiting")

    await until(done)
    return await inspected(api, caller, name)


async def test_an_upload_is_inspected_and_returns_its_findings(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, MACHINE_MSI, name="setup.msi")
    first = await inspected(api, caller, name)
    answer = await settled(api, caller, name)
    assert first.status == 200
    assert first.body in ({"server_filename": name, "state": "waiting", **NOTHING_FOUND}, answer.body)
    assert answer.body == {
        **NOTHING_FOUND,
        "server_filename": name,
        "state": "done",
        "file_type": "MSI",
        "file_architect": "x64",
        "file_scope": "machine",
        "package_version": "1.2.3.4",
        "package_name": "Tiny Product",
        "package_publisher": "Tiny Works GmbH",
        "productcode": "{0A2D3C5E-7B16-4E1F-9B1C-2F0D3C4B5A69}",
        "upgradecode": "{6F1B2C3D-4E5F-4A6B-8C7D-9E0F1A2B3C4D}",
        "signer": {"subject": "Tiny Works GmbH", "issuer": "Tiny Trust Code Signing CA", "verified": False},
    }


async def test_a_claim_of_a_signed_package_returns_its_signature_digest(api: UploadApi) -> None:
    caller = make_uploader()
    signature = b"PKCX and a signature"
    identity = '<Package><Identity Name="Tiny.App" Publisher="CN=Tiny" Version="1.0.0.0"/></Package>'
    content = make_zip({"AppxManifest.xml": identity, "AppxSignature.p7x": signature})
    name = await api.upload(caller, content, name="tiny.msix")
    answer = await settled(api, caller, name)
    assert answer.body["signature_sha256"] == sha256(signature)
    assert (await api.claim(caller, name)).body["signature_sha256"] == sha256(signature)


async def test_a_file_that_cannot_be_inspected_can_be_claimed(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, MACHINE_MSI[:1000])
    answer = await settled(api, caller, name)
    assert answer.body == {**NOTHING_FOUND, "server_filename": name, "state": "failed", "reason": "damaged"}
    assert (await api.claim(caller, name)).status == 200
    assert (await inspected(api, caller, name)).body == answer.body


async def test_a_name_that_no_file_of_the_tenant_has_is_unknown(api: UploadApi) -> None:
    other = await api.upload(make_uploader(), b"MZ")
    for unknown in ("../../etc/passwd", "0" * 32 + ".exe", "0" * 32 + ".sh", "x", other):
        answer = await inspected(api, make_uploader(), unknown)
        assert (answer.status, answer.body["code"]) == (404, "installer_not_found"), unknown


async def test_a_claim_returns_the_windows_identifiers(api: UploadApi) -> None:
    caller = make_uploader()
    name = await api.upload(caller, MACHINE_MSI)
    at_once = await api.post(caller, "inspect_installer", server_filename=name)
    claimed = await api.claim(caller, name)
    at_once.body.pop("signature")
    assert at_once.body == (await inspected(api, caller, name)).body
    assert (await api.post(make_uploader(), "inspect_installer", server_filename=name)).status == 404
    assert (at_once.status, at_once.body["state"], at_once.body["file_type"]) == (200, "done", "MSI")
    assert claimed.body == {
        "size": len(MACHINE_MSI),
        "sha256": sha256(MACHINE_MSI),
        "product_code": "{0A2D3C5E-7B16-4E1F-9B1C-2F0D3C4B5A69}",
        "upgrade_code": "{6F1B2C3D-4E5F-4A6B-8C7D-9E0F1A2B3C4D}",
        "is_withheld": False,
    }


@pytest.mark.parametrize(("end", "hole"), [(1 << 20, 0), (1024, 1)])
async def test_only_the_ends_of_an_installer_in_object_storage_are_fetched(
    object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int, hole: int
) -> None:
    content = program(sections=[(b".text", b"x" * 500)], overlay=b"carried" * 10_000)
    monkeypatch.setattr(process, "END", end)
    storage = StorageSettings(**object_server.settings("inspected")).object_storage
    assert storage is not None
    objects = S3Storage(storage)
    folder = FolderStorage(tmp_path, PartFiles(tmp_path))
    upload = Upload(
        "acme", "f", "0" * 32, len(content), storage=StorageKind.S3, server_filename="0" * 32, size=len(content)
    )
    (tmp_path / "source").write_bytes(content)
    await objects.put(upload, tmp_path / "source")
    async with InstallerFiles(storage_backends(folder, objects), folder, tmp_path).open(upload) as file:
        findings = await read_installer(file, "")
        file.seek(0)
        fetched = file.read()
    assert findings.format is Format.EXE
    assert fetched[:end] == content[:end]
    assert fetched[-end:] == content[-end:]
    assert (fetched != content) == bool(hole)
    assert len(fetched) == len(content)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_at_most_two_ends_of_a_file_are_fetched() -> None:
    assert ends_of(2 * process.END) == [(0, 2 * process.END)]
    assert sum(length for _, length in ends_of(1 << 40)) == 2 * process.END
