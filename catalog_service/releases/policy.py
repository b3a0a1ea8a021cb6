"""A tenant's policy for releases: its rings, the gates before each, and what retention keeps."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from common.auth.roles import EVERY_PACKAGE, PATTERN_LIMIT
from common.errors import InvalidField
from common.tenants import DEFAULT_RING

MAX_RINGS = 10
MAX_RULES = 100  # of retention, or of the signatures before a ring
MAX_APPROVALS = 20
MAX_DAYS = 3650
MAX_DOWNLOADED_DAYS = 365  # Downloads are counted for 400 days.
Ring = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]{0,31}$")]
Pattern = Annotated[str, StringConstraints(min_length=1, max_length=PATTERN_LIMIT)]
Days = Annotated[int, Field(ge=1, le=MAX_DAYS)]


def plain_subject(subject: str) -> str:
    """The subject of a certificate without spaces between its parts, as upload_service returns it."""
    return re.sub(r"\s*([,+=])\s*", r"\1", subject)


def is_same_name(one: str, other: str) -> bool:
    """Whether two subjects are the same; letter case does not matter."""
    return plain_subject(one).casefold() == plain_subject(other).casefold()


class Part(BaseModel):
    """A part of the policy: unknown names and other types are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class SignatureRule(Part):
    """A valid signature is needed for matching packages: of this publisher, if one is pinned."""

    packages: Pattern = EVERY_PACKAGE[0]
    publisher: Annotated[str, StringConstraints(max_length=1000)] = ""


class Gates(Part):
    """The gates before a ring. `approvals` is a number of users, `age_days` are days in the ring before."""

    approvals: Annotated[int, Field(ge=0, le=MAX_APPROVALS)] = 0
    age_days: Annotated[int, Field(ge=0, le=MAX_DAYS)] = 0
    scan: bool = False
    signature: (
        Literal["", "signed"]
        | SignatureRule
        | Annotated[tuple[SignatureRule, ...], Field(strict=False, max_length=MAX_RULES)]
    ) = ""

    @property
    def signature_rules(self) -> Sequence[SignatureRule]:
        """The rules of signatures; the first that matches a package counts."""
        if isinstance(self.signature, tuple):
            return self.signature
        if isinstance(self.signature, SignatureRule):
            return (self.signature,)
        return (SignatureRule(),) if self.signature else ()


class RetentionRule(Part):
    """Conditions of the matching packages; a version that none of them keeps is deleted. None: no such condition."""

    packages: Pattern = EVERY_PACKAGE[0]
    keep_versions: Annotated[int, Field(ge=1, le=10_000)] | None = None
    published_days: Days | None = None
    downloaded_days: Annotated[int, Field(ge=1, le=MAX_DOWNLOADED_DAYS)] | None = None


class RingRule(Part):
    """Puts clients into a ring: those in a network, or the users with an app role (or group id) of Entra ID."""

    ring: str
    network: str = ""
    app_role: str = ""


class Policy(Part):
    """Rings in order, gates by ring, and retention rules: the first that matches a package counts.

    The first of the `ring_rules` that matches a client without a ring of its own chooses its ring.
    """

    rings: Annotated[tuple[Ring, ...], Field(strict=False)] = ()
    ring_rules: Annotated[tuple[RingRule, ...], Field(strict=False)] = ()
    gates: Mapping[str, Gates] = {}
    retention: Annotated[tuple[RetentionRule, ...], Field(strict=False, max_length=MAX_RULES)] = ()

    @property
    def effective_rings(self) -> Sequence[str]:
        """The rings, by default one."""
        return self.rings or (DEFAULT_RING,)

    @property
    def is_controlled(self) -> bool:
        """Whether new versions have a stage."""
        return bool(self.rings or self.gates)

    @property
    def shown_rings(self) -> Sequence[str]:
        """The rings; none without release control."""
        return self.effective_rings if self.is_controlled else ()

    @property
    def has_scan(self) -> bool:
        """Whether a ring has a scan gate."""
        return any(gates.scan for gates in self.gates.values())


def unknown_ring(field: str, rings: Sequence[str]) -> InvalidField:
    """The error of a field that names a ring which the tenant does not have."""
    if not rings:
        return InvalidField(field, "is not for a tenant without rings", reason="no_rings")
    names = ", ".join(rings)
    return InvalidField(field, f"must be one of the rings: {names}", reason="no_such_ring", rings=names)
