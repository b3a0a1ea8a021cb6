"""Queries of releases, earlier versions with their signers, and the errors of release control."""

from dataclasses import dataclass

from catalog_service.model.releases import GateState
from common.errors import Conflict, Forbidden


@dataclass(frozen=True)
class ReleaseQuery:
    """A page of releases: those in flight or all, of one package or of all (""), the newest first."""

    in_flight: bool
    package_id: str
    offset: int
    limit: int


@dataclass(frozen=True)
class EarlierVersion:
    """A version that has entered a ring. The signer of the highest `rank` is the package's, see `releases.store`."""

    uid: str
    package_id: str
    sha256: str
    rank: int


@dataclass(frozen=True)
class LastSigner:
    """The signer of the highest rank among a package's deleted versions, None if it is not known."""

    signer: str | None
    rank: int


class GateWaiting(Conflict):
    """A gate before a ring has not passed."""

    code = "gate_waiting"

    def __init__(self, state: GateState) -> None:
        text = f"The gate {state.gate} before the ring {state.ring!r} has not passed: {state.reason.text}"
        super().__init__(text, ring=state.ring, gate=state.gate, state=state.state, cause=state.reason.text)
        self.members = {"ring": state.ring, "gate": state.gate.value}


class OwnVersion(Forbidden):
    code = "own_version"
    text = "You published this version. Another user must approve it."


class VersionStopped(Conflict):
    code = "version_stopped"
    text = "The version is {status}. Resume it first."


class VersionInfected(Conflict):
    code = "version_infected"
    text = "The scanner calls the file of this version infected, so it stays held."


class ReleaseChanged(Conflict):
    """Another process changed the version since it was read."""

    code = "release_changed"
    text = "The version changes at this moment; try again."
