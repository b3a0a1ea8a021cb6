"""Validation of an archive's records: each value that no form accepts is refused."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from itertools import product
from typing import Any
from uuid import uuid4

import bson
import pytest
from argon2 import PasswordHasher
from PIL import Image

from auth_service.audit.chain import AuditSigner
from auth_service.audit.model import AuditEntry, Head
from auth_service.audit.store import _document as audit_document
from auth_service.users.model import User
from auth_service.users.passwords import password_hasher
from catalog_service.model.enumerations import FileType
from catalog_service.model.manifest.package import LocalTexts, PackageManifest
from catalog_service.model.manifest.version import AppsAndFeaturesEntry, ExpectedReturnCode, ReturnResponse
from catalog_service.model.packages import Package, package_document
from catalog_service.model.releases import Reason, audit_entry, release_document
from catalog_service.model.versions import Dependencies, PackageDependency, PackageVersion, Switches, document_of
from catalog_service.releases.policy import Gates, Policy
from common.auth.roles import Role
from deploy.tenant_archive.record_rules import CHECKS, check_record
from deploy.tenant_archive.record_types import BadRecord
from tests.support.factories import KEY
from tests.support.samples.release_samples import make_release
from tests.support.samples.winget_factories import make_version
from tests.support.tables import each

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
DIGEST = "ab" * 32
HASH = password_hasher().hash("a password for tests")
FILE = f"{'1' * 32}.zip"
AUDITED = dict(audit_entry(NOW.isoformat(), "promote_version", {"uid": "1", "ring": "pilot"}))
AUDIT_TEXTS = ("operation", "user", "ip", "request_id")
# texts without forbidden values, and the largest number of an entry
ALLOWED = {
    *(("catalog.packages.bson", field, "up") for field in ("publisher", "description")),
    *(("auth.audit_log.bson", field, kind) for field in AUDIT_TEXTS for kind in ("up", "long")),
    *(("catalog.package_signers.bson", field, "up") for field in ("id_key", "signer")),
    ("auth.audit_log.bson", "sequence", "large"),
    ("auth.audit_heads.bson", "sequence", "large"),
}
HOSTILE: Mapping[str, Any] = {
    "long": "a" * (1 << 17),
    "NUL": "a\0b",
    "up": "..",
    "number": 1.5,
    "bytes": b"a",
    "list": [["a"]],
    "operator": {"$ne": 1},
    "nested": {"a": {"b": {"c": []}}},
    "negative": -1,
    "large": 2**62,
}


@pytest.fixture(scope="module", autouse=True)
def at_full_cost() -> Iterator[None]:
    """Use the product's cost parameters for passwords; other tests use cheaper ones."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("auth_service.users.passwords.PasswordHasher", PasswordHasher)
        yield


def png(edge: int) -> bytes:
    file = BytesIO()
    Image.new("RGBA", (edge, edge)).save(file, "PNG")
    return file.getvalue()


def make_record(**fields: Any) -> dict[str, Any]:
    return {"_id": bson.ObjectId(), "tenant_id": "acme", **fields}


def package_record(**fields: Any) -> dict[str, Any]:
    manifest = PackageManifest(
        tags=("editor",),
        license="free",
        publisher_url="https://example.com",
        locales=(LocalTexts(package_locale="de-DE", license="frei"),),
    )
    package = Package(
        **{
            "package_id": "Acme.Editor",
            "package_uid": str(uuid4()),
            "name": "Editor",
            "publisher": "Acme",
            "description": "Edits\ntext.",
            "logo": png(16),
            "manifest": manifest,
            **{name: value for name, value in fields.items() if name != "manifest"},
        }
    )
    return make_record(halfway=False, **{**package_document(package), **fields})


def version_record(version: PackageVersion | None = None, **fields: Any) -> dict[str, Any]:
    version = version or make_version(
        server_filename=FILE,
        installer_type=FileType.ZIP,
        nested_type=FileType.PORTABLE,
        nested_paths=("bin/a.exe", "bin/b, c.exe"),
        switches=Switches(silent="/S"),
        dependencies=Dependencies(
            windows_features=("NetFx3",), packages=(PackageDependency("Acme.Runtime"), PackageDependency("Acme.X", "1"))
        ),
        portable_command_alias=("a", ""),
        commands=("a", "b"),
        installer_success_codes=(1, 4294967295),
        expected_return_codes=(ExpectedReturnCode(installer_return_code=5, return_response=ReturnResponse.DISK_FULL),),
        apps_and_features_entries=(AppsAndFeaturesEntry(display_name="Editor"),),
        install_location_required=True,
        release_date="2026-01-31",
        release_notes="New.\nFast.",
    )
    return make_record(
        **{
            "halfway": False,
            "state": "active",
            "package_uid": str(uuid4()),
            "version_key": version.version,
            "installer_key": version.installer_key,
            "changed_at": NOW,
            **document_of(version),
            "stage": {"rings": ["pilot"], "status": "held"},
            "release": release_document(
                make_release(1, ["pilot"], entered={"pilot": 0}, approvals=[("bob", 1)])
                .with_event("held", reason=Reason(("scan_infected",)))
                .release
            ),
            **fields,
        }
    )


def user_record(**fields: Any) -> dict[str, Any]:
    user = User("acme", "ada", HASH, NOW, (Role.VIEWER,))
    return make_record(**{**vars(user), "roles": [*user.roles], **fields})


def audit_record() -> dict[str, Any]:
    entry = AuditEntry("edit_settings", "ada", "192.0.2.1", 200, "", {"a.b": "c"}, {"x": ("before", "after")}, NOW)
    return audit_document(AuditSigner(KEY).sign("acme", Head(), entry))


RECORDS: Mapping[str, dict[str, Any]] = {
    "catalog.packages.bson": package_record(),
    "catalog.versions.bson": version_record(),
    "catalog.release_policies.bson": make_record(
        rings=["pilot", "everyone"],
        gates=Policy(gates={"everyone": Gates(approvals=2, signature="signed")}).model_dump(mode="json")["gates"],
        retention=[],
    ),
    "catalog.package_signers.bson": make_record(id_key="acme.editor", signer="CN=Acme", rank=0),
    "catalog.finished_uploads.bson": make_record(
        server_filename=FILE, file_id="setup", size=1, sha256=DIGEST, finished_at=NOW, expires_at=NOW, linked=True
    ),
    "clients.releases.bson": make_record(
        uid=str(uuid4()),
        version="1.0.0.0",
        status="active",
        published_at=NOW,
        installer={"server_filename": FILE, "size": 1, "sha256": DIGEST},
    ),
    "clients.clients.bson": make_record(
        client_id=str(uuid4()),
        name="PC-1",
        name_key="pc-1",
        token_digest=DIGEST,
        token_key="0f" * 8,
        token_hint="0f0f",
        seat=0,
        ip="192.0.2.1",
        last_seen=NOW,
        program=1,
        enabled=True,
        ring="pilot",
        created_at=NOW,
    ),
    "clients.entries.bson": make_record(
        entry_id=str(uuid4()),
        client_id=str(uuid4()),
        network="10.0.0.0/8",
        package_ids=["Acme.Editor"],
        group_id=str(uuid4()),
        created_at=NOW,
    ),
    "clients.groups.bson": make_record(
        group_id=str(uuid4()), name="Games", name_key="games", package_ids=["Acme.Game"], created_at=NOW
    ),
    "auth.audit_log.bson": audit_record(),
    "auth.audit_heads.bson": make_record(sequence=1, hash=DIGEST, seal=DIGEST),
    "auth.users.bson": user_record(),
}


def stored(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document after a round trip through BSON."""
    options = bson.CodecOptions(tz_aware=True, tzinfo=UTC)  # type: ignore[var-annotated]
    return dict(bson.decode(bson.encode(document), options))


def test_each_collection_of_an_archive_has_rules_and_a_sample() -> None:
    assert RECORDS.keys() == CHECKS.keys()


@each("name", RECORDS)
def test_a_record_as_the_product_writes_it_is_accepted(name: str) -> None:
    check_record(name, stored(RECORDS[name]))


def assert_refused(name: str, changes: Iterable[tuple[str, Any]]) -> None:
    """Try each change of a record, a field and its value; list the accepted ones."""
    accepted = []
    for field, value in changes:
        with suppress(BadRecord):
            check_record(name, stored({**RECORDS[name], field: value}))
            accepted.append(f"{field}: {str(value)[:40]!r}")
    assert not accepted, "\n".join(accepted)


@pytest.mark.parametrize("name", RECORDS)
def test_a_hostile_value_is_refused_in_each_field(name: str) -> None:
    # The validator of the archive compares the tenant's id with the manifest's.
    cells = product(RECORDS[name].keys() - {"tenant_id"}, HOSTILE)
    assert_refused(name, [(field, HOSTILE[kind]) for field, kind in cells if (name, field, kind) not in ALLOWED])


def test_an_audit_entry_larger_than_the_largest_form_is_refused() -> None:
    assert_refused("auth.audit_log.bson", [(field, "a" * (1 << 20)) for field in AUDIT_TEXTS])


@each("name", RECORDS)
def test_an_unknown_field_is_refused(name: str) -> None:
    assert_refused(name, [("more", value) for value in HOSTILE.values()])


@each(
    "change",
    [
        ("stage", {"rings": ["a,b"], "status": "active"}),
        ("stage", {"rings": ["*"], "status": "done"}),
        ("stage", {"rings": "*", "status": "active"}),
        ("stage", {"rings": ["*"]}),
        ("release", {"fence": "1"}),
        ("release", {"fence": -1}),
        ("release", {"publisher": "a\0b"}),
        ("release", {"publisher": "a" * 129}),
        ("release", {"publisher": "token:"}),
        ("release", {"publisher": "token:" + "a" * 65}),
        ("release", {"history": [{"at": NOW, "event": "held", "by": "a" * 900_000}]}),
        (
            "release",
            {"history": [{"at": NOW, "event": "held", "reason": {"params": {"text": "a" * 900_000}}}]},
        ),
        ("release", {"approvals": [{"by": "bob", "sha256": DIGEST}]}),
        ("release", {"gates": [{"ring": "pilot", "gate": "luck", "state": "passed"}]}),
        ("release", {"unaudited": [{**AUDITED, "user": "ada"}]}),
        ("release", {"unaudited": [{**AUDITED, "operation": "login"}]}),
        ("release", {"unaudited": [{**AUDITED, "more": ""}]}),
        ("release", {"unaudited": [{**AUDITED, "at": "today"}]}),
    ],
)
def test_a_release_that_the_product_does_not_write_is_refused(change: tuple[str, Any]) -> None:
    assert_refused("catalog.versions.bson", [change])


def test_a_signer_that_is_not_known_is_accepted() -> None:
    name = "catalog.package_signers.bson"
    check_record(name, stored({**RECORDS[name], "signer": None}))


@each("author", ["ada", "token:ci", "token:Über 1", "company-0123456789abcdef", ""])
def test_a_version_published_by_a_user_or_a_token_is_accepted(author: str) -> None:
    record = version_record(published_by=author, release={"publisher": author})
    check_record("catalog.versions.bson", stored(record))


@each("creator", ["operator/root", "operator/0"])
def test_the_person_behind_a_token_may_be_an_operator(creator: str) -> None:
    record = version_record(published_by="token:ci", release={"publisher": creator})
    check_record("catalog.versions.bson", stored(record))


def test_other_identities_than_those_of_the_fields_are_refused() -> None:
    for name, fields in {
        "catalog.packages.bson": ("id_key", "identities"),
        "catalog.versions.bson": ("identities",),
    }.items():
        assert_refused(name, [(field, value) for field in fields for value in ("acme", [], ["productcode:x"])])


def test_a_release_with_entries_for_the_audit_log_is_accepted() -> None:
    check_record("catalog.versions.bson", stored(version_record(release={"unaudited": [AUDITED]})))


@each(
    "change",
    [
        ("rings", ["a", "A"]),
        ("rings", ["a,b"]),
        ("gates", {"nobody": {"approvals": 1}}),
        ("gates", {"everyone": {"approvals": 99}}),
        ("retention", [{"keep_versions": 0}]),
    ],
)
def test_a_policy_that_no_form_accepts_is_refused(change: tuple[str, Any]) -> None:
    assert_refused("catalog.release_policies.bson", [change])


@each("field", ["switches", "dependencies", "manifest"])
def test_an_unknown_field_within_a_version_is_refused(field: str) -> None:
    inner = version_record()[field]
    changes = [(field, {**inner, "more": value}) for value in HOSTILE.values()]
    assert_refused("catalog.versions.bson", changes)


def test_a_package_name_of_12000_characters_is_refused() -> None:
    with pytest.raises(BadRecord, match="package_name"):
        check_record("catalog.packages.bson", stored(package_record(name="a" + "!" * 11_998 + "a")))


@each("package_id", ["../x", "a/b", "a\\b", ".", "", " a", "a,b", "a" * 129])
def test_a_package_id_that_no_form_accepts_is_refused(package_id: str) -> None:
    with pytest.raises(BadRecord):
        check_record("catalog.packages.bson", stored(package_record(package_id=package_id)))


@each("logo", [b"<svg onload=alert(1)>", png(257), png(16)[:20], b"\xff\xd8\xff"])
def test_a_logo_in_another_format_than_the_catalog_is_refused(logo: bytes) -> None:
    with pytest.raises(BadRecord):
        check_record("catalog.packages.bson", stored(package_record(logo=logo)))


@each(
    "manifest",
    [
        {"tags": ["a" * 41]},
        {"tags": ["a"] * 17},
        {"publisher_url": "javascript:alert(1)"},
        {"locales": [{"package_locale": "de-DE", "license": "\0\0\0"}]},
        {"locales": [{"license": "frei"}]},
        {"tags": "a"},
        {"license": ["a", "b", "c"]},
        {"icons": [{"icon_url": "https://example.com", "icon_file_type": "exe"}]},
    ],
)
def test_a_manifest_that_no_form_accepts_is_refused(manifest: dict[str, Any]) -> None:
    with pytest.raises(BadRecord):
        check_record("catalog.packages.bson", stored(package_record(manifest=manifest)))


@each(
    "fields",
    [
        {"nested_paths": ("../../a.exe", "b.exe")},
        {"version": "a" * 129},
        {"switches": Switches(silent="a" * 2049)},
        {"product_code": "{x}"},
        {"dependencies": Dependencies(external=("a" * 257,))},
        {"release_notes": "a" * 10_001},
        {"commands": ("a, b",)},
        {"release_date": "31.1.2026"},
    ],
    ids=str,
)
def test_a_version_that_no_form_accepts_is_refused(fields: dict[str, Any]) -> None:
    version = make_version(**{"server_filename": FILE, "installer_type": FileType.ZIP, **fields})
    with pytest.raises(BadRecord):
        check_record("catalog.versions.bson", stored(version_record(version)))


def test_a_version_that_winget_clients_would_refuse_is_accepted() -> None:
    record = version_record(
        make_version(server_filename=FILE, dependencies=Dependencies(windows_features=("Net Fx3",)))
    )
    check_record("catalog.versions.bson", record)


def test_a_version_of_a_release_without_manifests_is_accepted() -> None:
    record = version_record(make_version(server_filename=FILE))
    del record["manifest"], record["installer_url"]
    check_record("catalog.versions.bson", stored(record))


@each("costs", [{"memory_cost": 524288}, {"memory_cost": 4}, {"time_cost": 1}, {"hash_len": 64}])
def test_a_password_hash_with_other_parameters_is_refused(costs: dict[str, int]) -> None:
    parameters = {"memory_cost": 19456, "time_cost": 2, "parallelism": 1, "hash_len": 32, **costs}
    text = HASH.split("$")
    text[3] = "m={memory_cost},t={time_cost},p={parallelism}".format(**parameters)
    text[5] = "A" * (parameters["hash_len"] * 4 // 3 + 1)
    with pytest.raises(BadRecord, match="password_hash"):
        check_record("auth.users.bson", stored(user_record(password_hash="$".join(text))))


@each("username", ["", "..", "a/b", "a" * 129, "a b"])
def test_a_user_that_no_form_accepts_is_refused(username: str) -> None:
    with pytest.raises(BadRecord, match="username"):
        check_record("auth.users.bson", stored(user_record(username=username)))


@each("roles", [["root"], [], "viewer", None, [1], ["viewer"] * 6, ["Viewer"]])
def test_a_user_with_other_roles_is_refused(roles: object) -> None:
    with pytest.raises(BadRecord, match="roles"):
        check_record("auth.users.bson", stored(user_record(roles=roles)))


@each("field", ["issuer", "subject", "name", "email"])
def test_a_user_of_an_identity_provider_is_refused(field: str) -> None:
    with pytest.raises(BadRecord, match=field):
        check_record("auth.users.bson", stored(user_record(**{field: "https://login.example.com"})))


@each("fields", [{"roles": ["viewer"]}, {"roles": [*Role]}, {"is_break_glass": True}])
def test_a_user_with_known_roles_is_accepted(fields: dict[str, Any]) -> None:
    check_record("auth.users.bson", stored(user_record(**fields)))
