"""What came of each manifest and installer."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from common.errors import Problem
from deploy.publish.model import Installer, NotPublished, Published
from deploy.winget_import.discovery import Refused
from deploy.winget_import.reading import Manifest
from deploy.winget_import.schema.installer_forms import Wanted


class Outcome(StrEnum):
    PUBLISHED = "published"
    THERE = "there"
    NEW = "new"  # would be published, were it not a trial
    REFUSED = "refused"


@dataclass(frozen=True)
class NotTried:
    """An installer that could be published."""

    installer: Installer


@dataclass(frozen=True)
class Row:
    """An installer, or a manifest of which no installer was looked at. `size` is bytes, 0 if it was not read."""

    manifest: Path
    outcome: Outcome
    package_id: str = ""
    version: str = ""
    architecture: str = ""
    url: str = ""
    sha256: str = ""
    uid: str = ""
    size: int = 0
    notes: Sequence[str] = ()
    problem: Problem | None = None

    @property
    def named(self) -> str:
        return " ".join(filter(None, (self.package_id, self.version, self.architecture))) or str(self.manifest)

    def document(self) -> dict[str, Any]:
        """As `--json` shows it; what is empty is left out."""
        problem = self.problem
        said = {
            "manifest": str(self.manifest),
            "outcome": self.outcome,
            "package": self.package_id,
            "version": self.version,
            "architecture": self.architecture,
            "url": self.url,
            "sha256": self.sha256,
            "uid": self.uid,
            "size": self.size,
            "notes": list(self.notes),
            "error": {"code": problem.code, "detail": problem.detail} if problem else None,
        }
        return {name: value for name, value in said.items() if value}


def of_refused(refused: Refused) -> Row:
    return Row(refused.path, Outcome.REFUSED, refused.package_id, refused.version, problem=refused)


def of_manifest(manifest: Manifest, problem: Problem) -> Row:
    return Row(manifest.path, Outcome.REFUSED, manifest.package_id, manifest.version, problem=problem)


def of_installer(manifest: Manifest, wanted: Wanted, outcome: Outcome, **more: Any) -> Row:
    installer = wanted.installer
    return Row(
        manifest=manifest.path,
        outcome=outcome,
        package_id=installer.package_id,
        version=installer.version,
        architecture=installer.architecture,
        url=installer.url,
        sha256=installer.sha256,
        notes=wanted.notes,
        **more,
    )


def of_published(manifest: Manifest, wanted: Wanted, done: Published | NotPublished | NotTried) -> Row:
    if isinstance(done, NotTried):
        return of_installer(manifest, wanted, Outcome.NEW)
    if isinstance(done, NotPublished):
        return of_installer(manifest, wanted, Outcome.REFUSED, problem=done.problem)
    outcome = Outcome.PUBLISHED if done.created else Outcome.THERE
    return of_installer(manifest, wanted, outcome, uid=done.uid, size=done.size)


def summary(rows: Sequence[Row]) -> dict[str, int]:
    """How many rows have each outcome."""
    return {outcome.value: sum(row.outcome is outcome for row in rows) for outcome in Outcome}
