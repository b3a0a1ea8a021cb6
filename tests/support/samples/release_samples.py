"""Versions on their way through rings, for tests without a database. Times are days after the publication."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from catalog_service.model.installers import FileChecks, Scan, Signature
from catalog_service.model.releases import Approval, Release, ReleaseStatus, RingEntry, Stage, VersionRelease
from catalog_service.releases.gates import Policy

PUBLISHED = datetime(2026, 1, 2, tzinfo=UTC)
SHA256, OTHER_SHA256 = "ab" * 32, "cd" * 32


def day(number: float) -> datetime:
    return PUBLISHED + timedelta(days=number)


def make_release(
    now: float = 0,
    rings: Sequence[str] = (),
    status: str = "active",
    *,
    entered: dict[str, float] | None = None,
    approvals: Sequence[tuple[str, float]] = (),
    **fields: Any,
) -> VersionRelease:
    """A version of acme.editor that ada published, with approvals of its file (person and day)."""
    record = Release(
        publisher="ada",
        fence=1,
        entered=tuple(RingEntry(ring, day(at)) for ring, at in (entered or {}).items()),
        approvals=tuple(Approval(by, SHA256, day(at)) for by, at in approvals),
    )
    version = VersionRelease(
        tenant_id="acme",
        uid="7d0c5a3e-2b1f-4f68-9c1d-5e8a4b3c2d1f",
        package_id="acme.editor",
        version="1.0",
        channel="stable",
        architecture="x64",
        server_filename="a.msi",
        sha256=SHA256,
        published_by="token:ci",
        published_at=PUBLISHED,
        now=day(now),
        stage=Stage(tuple(rings), ReleaseStatus(status)),
        release=record,
    )
    return replace(version, **fields)


def make_policy(gates: dict[str, Any], rings: Sequence[str] = ("pilot", "everyone")) -> Policy:
    return Policy.model_validate({"rings": list(rings), "gates": gates})


def make_checks(
    scan: str = "", signature: str = "", signer: str = "CN=Acme", at: float | None = 0, sha256: str = SHA256
) -> FileChecks:
    """The checks of a file; the findings were made on a day."""
    when = None if at is None else day(at)
    return FileChecks(sha256, Scan(scan, "", when), Signature(signature, signer, "", when))
