"""The way of a version through gates and rings, as its document records it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import uuid4

from pydantic import TypeAdapter

from common.errors import Problem
from common.tenants import ALL_RINGS, DEFAULT_RING


class ReleaseStatus(StrEnum):
    """The stop of a version, if any."""

    ACTIVE = "active"
    PAUSED = "paused"  # It stays where it is.
    HELD = "held"  # Nobody gets it until it is resumed.
    ROLLED_BACK = "rolled_back"  # Nobody gets it until it is resumed before the first ring.
    RETIRED = "retired"  # Retention hides it, and deletes it some days later.


@dataclass(frozen=True)
class Stage:
    """The rings that a version has entered, the latest last; `ALL_RINGS` after it has entered the last ring.

    A version without a stage was published without release control: it is in all rings.
    """

    rings: tuple[str, ...] = ()
    status: ReleaseStatus = ReleaseStatus.ACTIVE

    @property
    def is_withdrawn(self) -> bool:
        return self.status not in {ReleaseStatus.ACTIVE, ReleaseStatus.PAUSED}

    def level(self, rings: Sequence[str]) -> int:
        """The position of the furthest of a tenant's rings that the version has entered, -1 for none."""
        if ALL_RINGS in self.rings:
            return len(rings) - 1
        return max((position for position, ring in enumerate(rings) if ring in self.rings), default=-1)


def stage_of(document: Mapping[str, Any] | None) -> Stage | None:
    """Return the stage in a version's document, None if it has none."""
    return Stage(tuple(document["rings"]), ReleaseStatus(document["status"])) if document else None


def known_ring(ring: str, rings: Sequence[str]) -> str:
    """Return the ring, or the last of a tenant's rings if it has no such ring."""
    if ring == ALL_RINGS or ring in rings:
        return ring
    return rings[-1] if rings else DEFAULT_RING


def is_offered(stage: Stage | None, ring: str, rings: Sequence[str]) -> bool:
    """Whether a version in a stage is offered to the clients of a ring, or of the last one if there is no such ring.

    `ALL_RINGS` is for callers who see every version. `rings` are the tenant's, in order; none is one, `DEFAULT_RING`.
    """
    if stage is None or ring == ALL_RINGS:
        return True
    if stage.is_withdrawn:
        return False
    rings = rings or (DEFAULT_RING,)
    return rings.index(known_ring(ring, rings)) <= stage.level(rings)


HISTORY_LIMIT = 200  # events of a version
# The fields of a version's document that begins before the first ring.
BEGIN: dict[str, Any] = {"stage": {"rings": [], "status": "active"}, "release.fence": 1, "release.in_flight": True}
DUE_NOW: dict[str, Any] = {"release.due": True}  # for `$currentDate`
# The English of each code. The dashboard has other languages in its catalogues.
SENTENCES = {
    "given": "{text}",
    "fields": "Fields: {fields}.",
    "cause": "({cause})",
    "approvals": "{count} of {needed} approved.",
    "ring_before": "Not in the ring '{ring}' yet.",
    "days_in_ring": "Days in the ring '{ring}': {days}.",
    "days_published": "Days since the publication: {days}.",
    "version_paused": "The version is paused.",
    "clock_went_back": "The database's clock went back.",
    "not_looked_at": "Not checked yet.",
    "keep_versions": "Newer versions of its channel and architecture: at least {keep_versions}.",
    "published_days": "Days since its publication: more than {published_days}.",
    "downloaded_days": "Days without a download: at least {downloaded_days}.",
    "kept_again": "It is kept again, and the next run offers it again.",
    "scan_external": "An external installer cannot be scanned.",
    "scan_pending": "The file is not scanned yet.",
    "scan_clean": "The scanner calls the file clean.",
    "scan_infected": "The scanner calls the file infected.",
    "scan_too_large": "The file is too large for the scanner.",
    "scan_off": "No scanner is configured.",
    "scan_failed": "The scan failed; it is tried again.",
    "signature_external": "The signature of an external installer cannot be verified.",
    "signature_pending": "The signature is not verified yet.",
    "signature_unsigned": "The file is not signed.",
    "signature_invalid": "The signature is invalid.",
    "signature_untrusted": "The file is signed, but this server does not trust the signer yet.",
    "signature_expired": "The signature is expired.",
    "signature_unsupported": "The signature is of a kind that is not supported.",
    "signed_by": "The file is signed by {signer}.",
    "not_the_publisher": "The signer is {signer}, and not {publisher}.",
    "other_signer_before": "The signer is {signer}; the version before was signed by {previous}.",
    "unknown_signer_before": "The signer is {signer}; the signer of the version before is not known.",
}


class Gate(StrEnum):
    """The kinds of gates."""

    APPROVAL = "approval"
    AGE = "age"
    SCAN = "scan"
    SIGNATURE = "signature"


class GateStatus(StrEnum):
    """The answer of a gate. Only `PASSED` lets a version enter the ring."""

    PASSED = "passed"
    WAITING = "waiting"
    FAILED = "failed"


# The operations of automatic changes in the audit log.
AUDITED_AS = {
    "entered": "promote_version",
    "held": "hold_version",
    **{f"gate_{each}": "check_gate" for each in GateStatus},
    **dict.fromkeys(("retired", "resumed", "deleted"), "retention"),
}


@dataclass(frozen=True)
class Reason:
    """The reason of a state: the codes of its sentences, and the values in them.

    `members` are its members of an answer: `reason` is for a person, the others are for the pages in any language.
    """

    codes: tuple[str, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def given(cls, text: str) -> "Reason":
        """The words of a person."""
        return cls(("given",), {"text": text}) if text else cls()

    @property
    def text(self) -> str:
        return " ".join(SENTENCES.get(code, code).format(**self.params) for code in self.codes)

    @property
    def members(self) -> dict[str, Any]:
        return {"reason": self.text, "codes": self.codes, "params": self.params}


@dataclass(frozen=True)
class GateState:
    """The state of a gate before a ring since `at`. `until` is when it ends to wait, `by` are the approvers."""

    ring: str
    gate: Gate
    state: GateStatus
    reason: Reason = Reason()
    until: datetime | None = None
    at: datetime | None = None
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Approval:
    """An approval of the file with this digest by a person."""

    by: str
    sha256: str
    at: datetime


@dataclass(frozen=True)
class RingEntry:
    """The time at which a version entered a ring; `by` is "" if it entered by itself."""

    ring: str
    at: datetime
    by: str = ""


@dataclass(frozen=True)
class Event:
    """A line of the history; `by` is "" for an automatic change."""

    at: datetime
    event: str
    by: str = ""
    ring: str = ""
    reason: Reason = Reason()


@dataclass(frozen=True)
class Release:
    """The record under `release` in a version's document.

    `publisher` is the person who published the version. `fence` counts the changes. `due` is when the background loop
    looks at the version again, None for never: an automatic change must set it. `unaudited` has entries for the audit
    log. With `is_untold`, upload_service does not know yet whether the file is withheld. With `is_open`, it does not
    withhold the file of a version that is new. `waiting` are the gates of the next ring that have not passed. With
    `signer_counts`, the version passed a signature gate, or was rolled back from all rings: its signer counts also
    outside of the rings. `editors` changed what machines run, the last time at `edited_at`.
    """

    publisher: str = ""
    fence: int = 0
    due: datetime | None = None
    in_flight: bool = False
    is_untold: bool = False
    is_open: bool = False
    pinned: bool = False
    signer_counts: bool = False
    reason: Reason = Reason()
    retired_at: datetime | None = None
    waiting: tuple[Gate, ...] = ()
    approvals: tuple[Approval, ...] = ()
    entered: tuple[RingEntry, ...] = ()
    gates: tuple[GateState, ...] = ()
    history: tuple[Event, ...] = ()
    editors: tuple[str, ...] = ()
    edited_at: datetime | None = None
    unaudited: tuple[Mapping[str, object], ...] = ()

    def entry_of(self, ring: str) -> RingEntry | None:
        """The latest entry into a ring."""
        return next((entry for entry in reversed(self.entered) if entry.ring == ring), None)


class VersionChanged(Problem):
    """The record is not the one that the caller has read."""

    status = 412
    code = "version_changed"
    text = "This version was changed since you read it. Read it again, then make your change."


@dataclass(frozen=True)
class VersionRelease:
    """A version with its stage and its record, at the time `now` of the database's clock.

    A version without a stage was published without release control. `server_filename` is "" for an external installer.
    """

    tenant_id: str
    uid: str
    package_id: str
    version: str
    channel: str
    architecture: str
    server_filename: str
    sha256: str
    published_by: str
    published_at: datetime
    now: datetime
    is_deleted: bool = False
    stage: Stage | None = None
    release: Release = field(default_factory=Release)

    @property
    def status(self) -> ReleaseStatus:
        return self.stage.status if self.stage else ReleaseStatus.ACTIVE

    @property
    def is_withdrawn(self) -> bool:
        """Whether nobody gets the version."""
        return self.stage is not None and self.stage.is_withdrawn

    @property
    def is_retired(self) -> bool:
        return self.status is ReleaseStatus.RETIRED

    @property
    def rings(self) -> tuple[str, ...]:
        return self.stage.rings if self.stage else (ALL_RINGS,)

    @property
    def is_complete(self) -> bool:
        """Whether the version has entered the last ring."""
        return ALL_RINGS in self.rings

    @property
    def is_in_flight(self) -> bool:
        """Whether the version has not entered the last ring, or somebody stopped it."""
        is_done = self.status is ReleaseStatus.ACTIVE and self.is_complete
        return not (is_done or self.is_retired)

    @property
    def is_external(self) -> bool:
        return not self.server_filename

    @property
    def authors(self) -> set[str]:
        """The people whose approvals do not count: the publisher, and those who changed what machines run."""
        return {self.release.publisher or self.published_by, *self.release.editors}

    @property
    def edited_at(self) -> str:
        """The time of the last change of what machines run, "" for none."""
        return self.release.edited_at.isoformat() if self.release.edited_at else ""

    @property
    def changed(self) -> VersionChanged:
        """The error for a caller who read an earlier record, with the last change."""
        edited = next((event for event in reversed(self.release.history) if event.event == "edited"), None)
        if edited is None:
            return VersionChanged()
        text = f"{edited.by} changed this version since you read it. {edited.reason.text} Read it again."
        fields = edited.reason.params["fields"]
        return VersionChanged(text, reason="version_changed_by", by=edited.by, fields=fields)

    @property
    def is_withheld(self) -> bool:
        """Whether nobody may download the file: the version is withdrawn, or waits before the first ring for its scan.

        The gates of a new version are not known at first.
        """
        unscanned = any(
            state.gate is Gate.SCAN and state.state is not GateStatus.PASSED for state in self.release.gates
        )
        return self.is_withdrawn or (not self.rings and (unscanned or not self.release.gates))

    def level(self, rings: Sequence[str]) -> int:
        """The position of the furthest ring that the version has entered, -1 for none."""
        return Stage(self.rings).level(rings)

    def with_stage(self, rings: tuple[str, ...], status: ReleaseStatus) -> "VersionRelease":
        return replace(self, stage=Stage(rings, status))

    def with_event(self, event: str, by: str = "", ring: str = "", reason: Reason = Reason()) -> "VersionRelease":
        """The version with an event in its history. An automatic one goes to the audit log."""
        release = self.release
        history = (*release.history, Event(self.now, event, by, ring, reason))[-HISTORY_LIMIT:]
        unaudited = release.unaudited
        if not by:
            target = {"package_id": self.package_id, "version": self.version, "uid": self.uid}
            details = {"ring": ring, "step": event, "reason": reason.text}
            target |= {name: text for name, text in details.items() if text}
            unaudited = (*unaudited, self._audit_entry(AUDITED_AS[event], target))
        return replace(self, release=replace(release, history=history, unaudited=unaudited))

    def _audit_entry(self, operation: str, target: Mapping[str, str]) -> Mapping[str, object]:
        """An entry of the audit log for an automatic change, for auth_service's `record_audit`."""
        entry = {"id": uuid4().hex, "at": self.now.isoformat(), "operation": operation, "status": 200, "target": target}
        return {**entry, "user": "", "ip": "", "request_id": "", "changes": {}}


_RELEASE = TypeAdapter(Release)
_VERSION = TypeAdapter(VersionRelease)


def version_release_of(document: Mapping[str, Any]) -> VersionRelease:
    """Return the version of a document with these fields. Further ones are ignored."""
    return _VERSION.validate_python({"published_by": "", **document})


def release_document(release: Release) -> dict[str, Any]:
    """The record as values that BSON has."""
    fields: dict[str, Any] = _RELEASE.dump_python(release)
    return fields
