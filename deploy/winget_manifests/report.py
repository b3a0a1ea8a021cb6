"""The report of an import: one row for each manifest and installer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from common.errors import Problem
from deploy.publish.model import Installer, NotPublished, Published
from deploy.winget_manifests.manifest import Manifest
from deploy.winget_manifests.manifest_tree import RefusedManifest
from deploy.winget_manifests.schema.installer_form import ManifestInstaller


class Outcome(StrEnum):
    PUBLISHED = "published"
    EXISTING = "there"
    NEW = "new"  # would be published without --dry-run
    REFUSED = "refused"


@dataclass(frozen=True)
class WouldPublish:
    """An installer that would be published without --dry-run."""

    installer: Installer


@dataclass(frozen=True)
class Row:
    """An installer, or a refused manifest. `size` is in bytes, 0 for a file that was not read."""

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
    def label(self) -> str:
        """The manifest, and which installer of it."""
        installer = " ".join(filter(None, (self.package_id, self.version, self.architecture)))
        return f"{self.manifest}: {installer}" if installer else str(self.manifest)

    def document(self) -> dict[str, Any]:
        """Return the row as `--json` shows it, without empty fields."""
        problem = self.problem
        fields = {
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
        return {name: value for name, value in fields.items() if value}


def of_refused(refused: RefusedManifest) -> Row:
    return Row(refused.path, Outcome.REFUSED, refused.package_id, refused.version, problem=refused)


def of_published(manifest: Manifest, source: ManifestInstaller, result: Published | NotPublished | WouldPublish) -> Row:
    installer = source.installer
    names = (installer.package_id, installer.version, installer.architecture, installer.url, installer.sha256)
    row = Row(manifest.path, Outcome.NEW, *names, notes=source.notes)
    if isinstance(result, WouldPublish):
        return row
    if isinstance(result, NotPublished):
        return replace(row, outcome=Outcome.REFUSED, problem=result.problem)
    outcome = Outcome.PUBLISHED if result.created else Outcome.EXISTING
    return replace(row, outcome=outcome, uid=result.uid, size=result.size)


def summary(rows: Sequence[Row]) -> dict[str, int]:
    """Count the rows of each outcome."""
    return {outcome.value: sum(row.outcome is outcome for row in rows) for outcome in Outcome}
