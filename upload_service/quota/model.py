"""A tenant's ledger, and the error about one without room."""

from collections.abc import Mapping
from dataclasses import dataclass

from common.errors import TooManyRequests


class TooManyUploads(TooManyRequests):
    """The ledger of the tenant has no room for another upload."""

    code = "too_many_uploads"

    def __init__(self, limit: int) -> None:
        detail = f"Limit of {limit} unassigned uploads reached; publish or delete some."
        super().__init__(detail, retry_after=60, limit=limit)


@dataclass(frozen=True)
class Ledger:
    """A tenant's ledger. Bytes: `used` by linked files, `reserved` as the sum of `holds` by upload id.

    `settled` are uploads that are not in it any more, though their record may still exist.
    """

    used: int
    reserved: int
    holds: Mapping[str, int]
    settled: frozenset[str] = frozenset()
