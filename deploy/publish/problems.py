"""Problems of publishing. The problems of the server are `common.errors.UpstreamProblem`."""

from collections.abc import Mapping
from pathlib import Path

from common.errors import Problem


class Unreachable(Problem):
    """The server did not answer, or not to the end; it may later."""

    code = "unreachable"


class NotTheInterface(Problem):
    """Something else than the interface answers at the address."""

    status = 404
    code = "not_the_interface"


class Untrusted(Problem):
    """The server's certificate does not verify."""

    status = 403
    code = "certificate_not_trusted"


class FileUnusable(Problem):
    """The file is empty, or cannot be read."""

    status = 400
    code = "file_unusable"


class FileChanged(Problem):
    """The file is not what it was when its digest was made."""

    status = 409
    code = "file_changed"

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} changed while it was sent; run the command again.")


class UploadCancelled(Problem):
    """Another client cancelled the transfer while this run sent it."""

    status = 409
    code = "upload_cancelled"

    def __init__(self, path: Path) -> None:
        super().__init__(f"The upload of {path} was cancelled by another client.")


class OtherBytes(Problem):
    """The file has another SHA-256 than the one that it must have."""

    status = 409
    code = "sha256_differs"

    def __init__(self, path: Path, wanted: str, found: str) -> None:
        super().__init__(f"{path} has the SHA-256 {found}, not {wanted}.")


class VersionTaken(Problem):
    """The package has another installer in this version's place."""

    status = 409
    code = "version_exists"


class StoredDifferently(Problem):
    """What the server stored has another SHA-256 than the file, or cannot be used."""

    status = 409
    code = "stored_differently"


class StoredDamaged(Problem):
    """The version is there with the same bytes, but its stored file is missing or altered."""

    status = 409
    code = "installer_damaged"


def may_pass(problem: Problem) -> bool:
    """Whether the same may succeed later: the server is away or busy, and has not refused it for good."""
    return problem.status == 429 or (problem.status >= 500 and problem.code != "transfer_damaged")


def wait(error: Exception, timeout: float) -> bool | float:
    """Whether to try again: after as many seconds as the server says, or after a growing pause."""
    if not isinstance(error, Problem) or not may_pass(error):
        return False
    if error.retry_after is None:
        return True
    return max(1.0, error.retry_after) if error.retry_after <= timeout else False


def retry_after(headers: Mapping[str, str]) -> int | None:
    """The seconds that an answer asks to wait; None where it names none, or a date."""
    said = headers.get("Retry-After", "")
    return int(said) if said.isdecimal() and len(said) < 10 else None
