"""An untrusted archive is refused unless it matches its manifest and the rules."""

import asyncio
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import bson
import pytest

from catalog_service.model.versions import document_of
from common.tenants import RingRule, Tenant
from deploy.backup.installers import UPLOADS
from deploy.backup.manifest import ArchiveManifest, BackupProblem, Entry
from deploy.tenant_archive.archive import FILES, ArchiveReader
from deploy.tenant_archive.record_rules import CHECKS
from deploy.tenant_archive.validator import TENANT, ArchiveValidator, installer_document
from tests.support.samples.winget_factories import make_version
from tests.support.servers.entra import APP
from tests.support.tables import each
from upload_service.store import to_upload

CONTENT = b"the bytes of an installer"
NAME = f"{uuid4().hex}.exe"


def entry(name: str, content: bytes, **others: Any) -> Entry:
    return Entry(**{"name": name, "size": len(content), "sha256": hashlib.sha256(content).hexdigest(), **others})


def manifest(**others: Any) -> ArchiveManifest:
    values: dict[str, Any] = {
        "made_at": datetime.now(UTC),
        "keys": {},
        "records": [],
        "tenant_id": "acme",
        "audit_head": "",
        "files": [entry(NAME, CONTENT)],
    }
    return ArchiveManifest(**{**values, **others})


def plain(name: str, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    header = tarfile.TarInfo(name)
    header.size = len(content)
    return header, content


def of_kind(kind: bytes, name: str = FILES + NAME) -> tuple[tarfile.TarInfo, bytes]:
    header = tarfile.TarInfo(name)
    header.type, header.linkname, header.size = kind, "/etc/passwd", len(CONTENT)
    return header, CONTENT


def archive(
    path: Path, *entries: tuple[tarfile.TarInfo, bytes], stated_manifest: ArchiveManifest | None = None
) -> Path:
    """An archive with these entries after its manifest."""
    text = (stated_manifest or manifest()).model_dump_json().encode()
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as file:
        for header, content in (plain("manifest.json", text), *entries):
            file.addfile(header, io.BytesIO(content))
    return path


def read(path: Path) -> bytes:
    async def read_all() -> bytes:
        with ArchiveReader(path) as reader:
            archive_manifest, _ = reader.manifest()
            blocks = [block for file in archive_manifest.files async for block in reader.read(FILES, file)]
            reader.end()
        return b"".join(blocks)

    return asyncio.run(read_all())


def test_a_reader_returns_the_files_of_the_manifest(tmp_path: Path) -> None:
    assert read(archive(tmp_path / "a.tar", plain(FILES + NAME, CONTENT))) == CONTENT


@pytest.mark.parametrize(
    "entries",
    [
        [plain("files/../../../etc/cron.d/x", CONTENT)],
        [plain("/etc/passwd", CONTENT)],
        [plain(FILES + uuid4().hex, CONTENT)],
        [of_kind(tarfile.SYMTYPE)],
        [of_kind(tarfile.LNKTYPE)],
        [of_kind(tarfile.DIRTYPE)],
        [of_kind(tarfile.FIFOTYPE)],
        [of_kind(tarfile.GNUTYPE_SPARSE)],
        [plain(FILES + NAME, CONTENT[:-1])],
        [plain(FILES + NAME, CONTENT + b"more")],
        [plain(FILES + NAME, CONTENT[:-1] + b"?")],
        [plain(FILES + NAME, CONTENT), plain("files/more", b"")],
        [],
    ],
    ids=[
        *("traversal", "absolute", "other-name", "symlink", "hard-link", "folder", "fifo", "sparse"),
        *("shorter", "longer", "other-bytes", "one-more", "none"),
    ],
)
def test_an_archive_that_differs_from_its_manifest_is_refused(
    tmp_path: Path, entries: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    with pytest.raises(BackupProblem):
        read(archive(tmp_path / "a.tar", *entries))


@pytest.mark.parametrize("length", [0, 100, 600, 1600, 2100])
def test_an_incomplete_archive_is_refused(tmp_path: Path, length: int) -> None:
    path = archive(tmp_path / "a.tar", plain(FILES + NAME, CONTENT))
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(BackupProblem):
        read(path)


@pytest.mark.parametrize(
    "others",
    [
        {"records": [{"name": "../x", "size": 1, "sha256": "0" * 64}]},
        {"records": [{"name": "admin.system_users.bson", "size": -1, "sha256": "0" * 64}]},
        {"files": [{"name": NAME, "size": 2**41, "sha256": "0" * 64}]},
        {"files": [{"name": NAME, "size": 1, "sha256": "none"}]},
        {"format": 2},
        {"more": 1},
    ],
)
def test_an_invalid_manifest_is_refused(tmp_path: Path, others: dict[str, Any]) -> None:
    text = json.dumps({**json.loads(manifest().model_dump_json()), **others}).encode()
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as file:
        file.addfile(plain("manifest.json", text)[0], io.BytesIO(text))
    with pytest.raises(BackupProblem, match="is not a manifest of this version"):
        read(path)


def upload(**others: Any) -> dict[str, Any]:
    return {
        "_id": bson.ObjectId(),
        "tenant_id": "acme",
        "file_id": "setup-1",
        "upload_id": uuid4().hex,
        "total": len(CONTENT),
        "offset": len(CONTENT),
        "fence": 3,
        "status": "linked",
        "tainted": False,
        "part": 0,
        "home": "folder",
        "damage": "",
        "server_filename": NAME,
        "size": len(CONTENT),
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
        "version_uid": str(uuid4()),
        **others,
    }


TENANT_RECORD = {
    "_id": bson.ObjectId(),
    "tenant_id": "acme",
    "client_authentication": True,
    "allowed_networks": ["10.0.0.0/8"],
    "storage_quota": None,
    "max_clients": 5,
    "version_key": "version",
}


@pytest.fixture
def make_validator(tmp_path: Path) -> Callable[..., ArchiveValidator]:
    """Unpacked records: a tenant with an installer, and other records by file name."""

    def make(**others: list[dict[str, Any]]) -> ArchiveValidator:
        other_records = {f"{name.replace('_', '.', 1)}.bson": rows for name, rows in others.items()}
        records = {UPLOADS: [upload()], TENANT: [TENANT_RECORD], **other_records}
        for name in (*CHECKS, TENANT, UPLOADS):
            (tmp_path / name).write_bytes(b"".join(bson.encode(row) for row in records.get(name, [])))
        return ArchiveValidator(tmp_path, manifest(records=[entry(name, b"") for name in (*CHECKS, TENANT, UPLOADS)]))

    return make


def test_a_tenant_with_its_installers_is_accepted(make_validator: Callable[..., ArchiveValidator]) -> None:
    tenant = make_validator().check()
    assert (tenant.tenant_id, tenant.allowed_networks, tenant.max_clients) == ("acme", ("10.0.0.0/8",), 5)


@pytest.mark.parametrize("state", ["infected", "clean"])
def test_of_the_verdicts_only_an_infected_one_is_imported(
    make_validator: Callable[..., ArchiveValidator], state: str
) -> None:
    validator = make_validator(upload_uploads=[upload(scan={"state": state})])
    ((installer, _),) = validator.installers()
    assert to_upload(installer_document(installer)).is_infected is (state == "infected")


def test_rings_gates_and_retention_are_kept(make_validator: Callable[..., ArchiveValidator]) -> None:
    """Also a rule for a ring that was removed later."""
    rules = (RingRule("pilot", network="10.1.0.0/16"), RingRule("removed", app_role="Pilot"))
    policy: dict[str, Any] = {
        "rings": ("pilot", "everyone"),
        "gates": '{"pilot":{"scan":true}}',
        "retention": '[{"keep_versions":3}]',
    }
    stored = Tenant("acme", ring_rules=rules, **policy)
    record = {**TENANT_RECORD, **{name: stored.to_document()[name] for name in (*policy, "ring_rules")}}
    tenant = make_validator(auth_tenants=[record]).check()
    assert {name: getattr(tenant, name) for name in policy} == policy
    assert tenant.ring_rules == rules


def test_the_app_of_entra_id_is_kept(make_validator: Callable[..., ArchiveValidator]) -> None:
    tenant = make_validator(auth_tenants=[{**TENANT_RECORD, "entra": bson.decode(bson.encode(asdict(APP)))}]).check()
    assert tenant.entra == APP


def version(**others: Any) -> dict[str, Any]:
    """The record of a version with the archive's installer, or an external one."""
    stored = {"halfway": False, "state": "active", "package_uid": str(uuid4())}
    sample = make_version()
    keys = {"version_key": sample.version, "installer_key": sample.installer_key}
    return {"_id": bson.ObjectId(), "tenant_id": "acme", **stored, **keys, **document_of(sample), **others}


EXTERNAL = {"server_filename": "", "installer_url": "https://downloads.example.com/a.exe"}


@each("others", [{"server_filename": NAME}, EXTERNAL], ids=["in the archive", "elsewhere"])
def test_a_version_needs_its_installer_or_an_address(
    make_validator: Callable[..., ArchiveValidator], others: dict[str, Any]
) -> None:
    make_validator(catalog_versions=[version(**others)]).check()


@each(
    "others",
    [
        {"server_filename": "0" * 32},
        {"server_filename": ""},
        {**EXTERNAL, "server_filename": NAME},
        {**EXTERNAL, "server_filename": "0" * 32},
        {**EXTERNAL, "installer_url": "https://127.0.0.1/a.exe"},
        {**EXTERNAL, "installer_url": "javascript:alert(1)"},
        {**EXTERNAL, "installer_url": 1},
        {**EXTERNAL, "sha256": ""},
        {**EXTERNAL, "sha256": "x" * 64},
    ],
)
def test_a_version_without_a_usable_installer_is_refused(
    make_validator: Callable[..., ArchiveValidator], others: dict[str, Any]
) -> None:
    with pytest.raises(BackupProblem, match=r"catalog\.versions\.bson"):
        make_validator(catalog_versions=[version(**others)]).check()


@each(
    "others",
    [
        {"server_filename": "../../other/x.exe"},
        {"upload_id": "../x"},
        {"file_id": "../x"},
        {"status": "complete"},
        {"status": "none"},
        {"size": 1},
        {"sha256": "0" * 64},
        {"tenant_id": "other"},
        {"fence": "1"},
        {"fence": -1},
        {"part": "0/../x"},
        {"announced_as": "../x"},
        {"version_uid": ".."},
        {"withheld": 1},
        {"scan": "infected"},
        {"version_uid": ""},
        {"request_id": "a" * (1 << 20)},
        {"request_id": "a\0b"},
        {"request_id": None},
    ],
)
def test_an_installer_record_with_unsafe_values_is_refused(
    make_validator: Callable[..., ArchiveValidator], others: dict[str, Any]
) -> None:
    with pytest.raises(BackupProblem):
        make_validator(upload_uploads=[upload(**others)]).check()


@each(
    "records",
    [
        {"upload_uploads": []},
        {"upload_uploads": [upload(), upload()]},
        {"catalog_packages": [{"_id": 1, "tenant_id": "other", "halfway": False}]},
        {"catalog_packages": [{"_id": 1, "tenant_id": "acme", "halfway": True}]},
        {"catalog_versions": [{"_id": 1, "tenant_id": "acme", "halfway": False, "state": "active"}]},
        {"clients_releases": [{"_id": 1, "tenant_id": "acme", "status": "pending"}]},
        {"auth_users": [{"tenant_id": "acme"}]},
        {"auth_users": [{"_id": bson.ObjectId(), "tenant_id": "acme"}]},
        {"auth_tenants": [{**TENANT_RECORD, "allowed_networks": ["1" * (1 << 20)]}]},
        {"auth_tenants": [{**TENANT_RECORD, "source_agreements": "a" * (1 << 20)}]},
        {"auth_tenants": [{**TENANT_RECORD, "source_agreements": '[{"label": "\0"}]'}]},
        {"auth_tenants": [{**TENANT_RECORD, "max_clients": True}]},
        {"auth_tenants": [{**TENANT_RECORD, "entra": {}}]},
        {"auth_tenants": [{**TENANT_RECORD, "rings": ["*"]}]},
        {"auth_tenants": [{**TENANT_RECORD, "rings": "pilot"}]},
        {"auth_tenants": [{**TENANT_RECORD, "rings": ["r" * 33]}]},
        {"auth_tenants": [{**TENANT_RECORD, "ring_rules": [{"ring": "pilot"}]}]},
        {"auth_tenants": [{**TENANT_RECORD, "ring_rules": [{"ring": "a\0", "app_role": "Pilot"}]}]},
        {"auth_tenants": [{**TENANT_RECORD, "ring_rules": [{"ring": "pilot", "network": "nowhere"}]}]},
        {"auth_tenants": [{**TENANT_RECORD, "gates": "{"}]},
        {"auth_tenants": [{**TENANT_RECORD, "gates": '{"pilot": {"unknown": 1}}'}]},
        {"auth_tenants": [{**TENANT_RECORD, "gates": {"pilot": {}}}]},
        {"auth_tenants": [{**TENANT_RECORD, "retention": '{"keep_versions": 0}'}]},
        {"auth_tenants": [{**TENANT_RECORD, "entra": {**asdict(APP), "resource": "http://evil"}}]},
        {"auth_tenants": [{**TENANT_RECORD, "entra": {**asdict(APP), "directories": [1]}}]},
        {"auth_tenants": [{**TENANT_RECORD, "entra": {**asdict(APP), "rings": [["Pilot", 1]]}}]},
        {"auth_tenants": []},
        {"auth_tenants": [TENANT_RECORD, TENANT_RECORD]},
        {"auth_tenants": [{**TENANT_RECORD, "storage_quota": "much"}]},
        {"auth_tenants": [{**TENANT_RECORD, "allowed_networks": [1]}]},
        {"auth_tenants": [{**TENANT_RECORD, "version_key": "?"}]},
    ],
)
def test_records_that_services_cannot_handle_are_refused(
    make_validator: Callable[..., ArchiveValidator], records: dict[str, list[dict[str, Any]]]
) -> None:
    with pytest.raises(BackupProblem):
        make_validator(**records).check()


@each("content", [b"\xff\xff\xff\x7f", b"\x05\x00", b"\x10\x00\x00\x00" + bytes(12), b"\x06\x00\x00\x00"])
def test_invalid_documents_are_refused(make_validator: Callable[..., ArchiveValidator], content: bytes) -> None:
    validator = make_validator()
    (validator.folder / "auth.users.bson").write_bytes(content)
    with pytest.raises(BackupProblem, match=r"auth\.users"):
        validator.check()
