"""An archive is refused unless its seal is valid and it matches its manifest; its records belong to one tenant."""

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
from pydantic import SecretStr

from common.tenants import Site, Tenant
from deploy.backup.archive import FILES, RECORDS, SEAL, ArchiveReader, ArchiveWriter
from deploy.backup.installers import UPLOADS, installer_document
from deploy.backup.records import ArchiveManifest, BackupProblem, Entry, Passphrase
from deploy.backup.tenant import HEADS, LOG, RESTORED, TENANT, ArchiveRecords
from tests.support.samples.stored_installer import CONTENT, NAME, UPLOAD
from tests.support.servers.entra import APP
from tests.support.tables import each
from upload_service.store import to_upload

PASSPHRASE = Passphrase(SecretStr("a passphrase of the operator"))
OTHER = Passphrase(SecretStr("a passphrase of a stranger"))
NAMES = (*RESTORED, LOG, HEADS, TENANT, UPLOADS)


@pytest.fixture(autouse=True)
def cheap_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.backup.records.SCRYPT_COST", 2)


def entry(name: str, content: bytes) -> Entry:
    return Entry(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())


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


def write(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as file:
        for header, content in entries:
            file.addfile(header, io.BytesIO(content))
    return path


def sealed(text: bytes, passphrase: Passphrase = PASSPHRASE) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The first two entries of an archive."""
    return [plain("manifest.json", text), plain(SEAL, passphrase.seal(text).encode())]


def archive(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive with these entries after its manifest and the seal."""
    return write(path, *sealed(manifest().model_dump_json().encode()), *entries)


def read(path: Path, passphrase: Passphrase = PASSPHRASE) -> bytes:
    async def read_all() -> bytes:
        with ArchiveReader(path) as reader:
            archive_manifest, _ = reader.manifest(passphrase)
            blocks = [block for file in archive_manifest.records async for block in reader.read(RECORDS, file)]
            blocks += [block for file in archive_manifest.files async for block in reader.read(FILES, file)]
            reader.end()
        return b"".join(blocks)

    return asyncio.run(read_all())


def test_a_reader_returns_the_files_of_the_manifest(tmp_path: Path) -> None:
    assert read(archive(tmp_path / "a.tar", plain(FILES + NAME, CONTENT))) == CONTENT


def test_a_written_archive_is_read_with_its_passphrase_only(tmp_path: Path) -> None:
    path, text = tmp_path / "a.tar", manifest().model_dump_json().encode()
    with ArchiveWriter(path, 0) as writer:
        writer.start(text, PASSPHRASE)
        writer.add(FILES + NAME, io.BytesIO(CONTENT), len(CONTENT))
        writer.finish()
    with tarfile.open(path) as file:
        assert file.getnames() == ["manifest.json", SEAL, FILES + NAME]
    assert read(path) == CONTENT
    with pytest.raises(BackupProblem, match="its seal does not match"):
        read(path, OTHER)


def test_each_seal_has_its_own_salt() -> None:
    assert PASSPHRASE.seal(b"{}") != PASSPHRASE.seal(b"{}")


@each(
    ("seal", "reason"),
    [
        (None, "has no seal"),
        (bytes(2000), "has no seal"),
        *((seal.encode(), "its seal does not match") for seal in ("", "x", "é" * 96, "0" * 96, "0" * 95)),
    ],
)
def test_an_archive_without_its_seal_is_refused(tmp_path: Path, seal: bytes | None, reason: str) -> None:
    manifest_entry, _ = sealed(manifest().model_dump_json().encode())
    seals = [] if seal is None else [plain(SEAL, seal)]
    with pytest.raises(BackupProblem, match=reason):
        read(write(tmp_path / "a.tar", manifest_entry, *seals, plain(FILES + NAME, CONTENT)))


@each("part", ["manifest", "seal", *NAMES, NAME])
def test_a_changed_byte_anywhere_in_the_content_is_refused(tmp_path: Path, part: str) -> None:
    records = [entry(name, name.encode()) for name in NAMES]
    entries = sealed(manifest(records=records).model_dump_json().encode())
    entries += [plain(RECORDS + name, name.encode()) for name in NAMES]
    entries.append(plain(FILES + NAME, CONTENT))
    position = ["manifest", "seal", *NAMES, NAME].index(part)
    header, content = entries[position]
    assert read(write(tmp_path / "whole.tar", *entries))
    entries[position] = (header, content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BackupProblem, match="its seal does not match" if position < 2 else f"{part} is damaged"):
        read(write(tmp_path / "a.tar", *entries))


def test_nothing_of_a_manifest_is_parsed_before_its_seal(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar", *sealed(b"no manifest", OTHER))
    with pytest.raises(BackupProblem, match="its seal does not match"):
        read(path)


@pytest.mark.parametrize("text", [b"", b"short\n", b"\n" + b"a" * 40, b"\xff" * 40])
def test_a_file_without_a_long_passphrase_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "passphrase").write_bytes(text)
    with (
        (tmp_path / "passphrase").open(encoding="utf-8") as file,
        pytest.raises(BackupProblem, match="at least 20 characters in one line"),
    ):
        Passphrase.read(file)


def test_the_end_of_the_line_is_not_part_of_the_passphrase() -> None:
    text = PASSPHRASE.text.get_secret_value()
    assert Passphrase.read(io.StringIO(text)) == Passphrase.read(io.StringIO(f"{text}\r\n")) == PASSPHRASE


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
        [plain(FILES + NAME, CONTENT), plain("files/more", b"")],
        [],
    ],
    ids=[
        *("traversal", "absolute", "other-name", "symlink", "hard-link", "folder", "fifo", "sparse"),
        *("shorter", "longer", "one-more", "none"),
    ],
)
def test_an_archive_that_differs_from_its_manifest_is_refused(
    tmp_path: Path, entries: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    with pytest.raises(BackupProblem):
        read(archive(tmp_path / "a.tar", *entries))


@pytest.mark.parametrize("length", [0, 100, 600, 1600, 2100, 3100])
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
    with pytest.raises(BackupProblem, match="is not a manifest of this version"):
        read(write(tmp_path / "a.tar", *sealed(text)))


def upload(**others: Any) -> dict[str, Any]:
    return {"_id": bson.ObjectId(), **installer_document(UPLOAD), **others}


TENANT_RECORD = {
    "_id": bson.ObjectId(),
    **Tenant("acme", client_authentication=True, allowed_networks=("10.0.0.0/8",), max_clients=5).to_document(),
}


@pytest.fixture
def make_records(tmp_path: Path) -> Callable[..., ArchiveRecords]:
    """Unpacked records: a tenant with an installer, and other records by file name."""

    def make(**others: list[dict[str, Any]]) -> ArchiveRecords:
        other_records = {f"{name.replace('_', '.', 1)}.bson": rows for name, rows in others.items()}
        records = {UPLOADS: [upload()], TENANT: [TENANT_RECORD], **other_records}
        for name in NAMES:
            (tmp_path / name).write_bytes(b"".join(bson.encode(row) for row in records.get(name, [])))
        return ArchiveRecords(tmp_path, manifest(records=[entry(name, b"") for name in NAMES]))

    return make


def test_a_tenant_with_its_installers_is_accepted(make_records: Callable[..., ArchiveRecords]) -> None:
    tenant = make_records().check()
    assert (tenant.tenant_id, tenant.allowed_networks, tenant.max_clients) == ("acme", ("10.0.0.0/8",), 5)


@pytest.mark.parametrize("state", ["infected", "clean"])
def test_of_the_verdicts_only_an_infected_one_is_imported(
    make_records: Callable[..., ArchiveRecords], state: str
) -> None:
    records = make_records(upload_uploads=[upload(scan={"state": state})])
    ((installer, _),) = records.installers()
    assert to_upload(installer_document(installer)).is_infected is (state == "infected")


def test_settings_are_kept_but_not_the_company_login(make_records: Callable[..., ArchiveRecords]) -> None:
    sites = (Site("Graz", ("10.20.0.0/16",), "https://graz.example.com"),)
    kept: dict[str, Any] = {"strict_installers": True, "source_agreements": "[]", "entra": APP, "sites": sites}
    stored = Tenant("acme", login_name="Company", password_login=False, **kept).to_document()
    record = bson.decode(bson.encode({**stored, "entra": asdict(APP)}))
    assert make_records(auth_tenants=[record]).check() == Tenant("acme", **kept)


@each(
    "others",
    [
        {"server_filename": "../../other/x.exe"},
        {"upload_id": "../x"},
        {"file_id": "../x"},
        {"size": 1},
        {"sha256": "0" * 64},
        {"tenant_id": "other"},
        {"part": "0/../x"},
        {"announced_as": "../x"},
    ],
)
def test_an_installer_record_that_does_not_match_its_file_is_refused(
    make_records: Callable[..., ArchiveRecords], others: dict[str, Any]
) -> None:
    with pytest.raises(BackupProblem):
        make_records(upload_uploads=[upload(**others)]).check()


@each("name", [name for name in NAMES if name != UPLOADS])
def test_a_record_of_another_tenant_is_refused(make_records: Callable[..., ArchiveRecords], name: str) -> None:
    records = make_records(**{name.removesuffix(".bson").replace(".", "_", 1): [{**TENANT_RECORD, "tenant_id": "b"}]})
    with pytest.raises(BackupProblem, match=f"{name}: has a record of another tenant"):
        records.check()


@each(
    "records",
    [
        {"upload_uploads": []},
        {"upload_uploads": [upload(), upload()]},
        {"auth_tenants": []},
        {"auth_tenants": [TENANT_RECORD, TENANT_RECORD]},
    ],
)
def test_a_record_too_many_or_too_few_is_refused(
    make_records: Callable[..., ArchiveRecords], records: dict[str, list[dict[str, Any]]]
) -> None:
    with pytest.raises(BackupProblem, match=r"tenants\.bson: is not|uploads\.bson: (has|lacks)"):
        make_records(**records).check()


@each("names", [NAMES[1:], (*NAMES, "auth.tokens.bson")])
def test_other_collections_than_those_of_an_export_are_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    records = ArchiveRecords(tmp_path, manifest(records=[entry(name, b"") for name in names]))
    with pytest.raises(BackupProblem, match="has other records than this version exports"):
        records.check()


def test_a_tenant_id_that_is_a_path_is_refused(tmp_path: Path) -> None:
    records = ArchiveRecords(tmp_path, manifest(records=[entry(name, b"") for name in NAMES], tenant_id="../b"))
    with pytest.raises(BackupProblem, match="an invalid tenant id"):
        records.check()


@each("content", [b"\xff\xff\xff\x7f", b"\x05\x00", b"\x10\x00\x00\x00" + bytes(12), b"\x06\x00\x00\x00"])
def test_a_file_that_has_no_documents_is_refused(make_records: Callable[..., ArchiveRecords], content: bytes) -> None:
    records = make_records()
    (records.folder / "auth.users.bson").write_bytes(content)
    with pytest.raises(BackupProblem, match=r"auth\.users"):
        records.check()
