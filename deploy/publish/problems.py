"""Problems of publishing. The problems of the server are `common.errors.UpstreamProblem`."""

from collections.abc import Mapping
from pathlib import Path

from common.errors import Problem


class Unreachable(Problem):
    """The server did not answer completely; it may later."""

    code = "unreachable"


class NotTheInterface(Problem):
    """The address does not lead to the interface."""

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
    """The file changed after its digest was made."""

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
    """The file does not have the expected SHA-256."""

    status = 409
    code = "sha256_differs"

    def __init__(self, path: Path, expected: str, actual: str) -> None:
        super().__init__(f"{path} has the SHA-256 {actual}, not {expected}.")


class VersionTaken(Problem):
    """The package has this version with another installer."""

    status = 409
    code = "version_exists"


class StoredDifferently(Problem):
    """The server stored other bytes than those of the file."""

    status = 409
    code = "stored_differently"


class StoredDamaged(Problem):
    """The version exists with the same bytes, but its stored file is missing or altered."""

    status = 409
    code = "installer_damaged"


def is_transient(problem: Problem) -> bool:
    """Whether a retry may succeed: the server is away or busy."""
    return problem.status == 429 or (problem.status >= 500 and problem.code != "transfer_damaged")


def retry_delay(error: Exception, timeout: float) -> bool | float:
    """Whether to retry, for stamina: the seconds that the server asks for, or True for a growing pause."""
    if not isinstance(error, Problem) or not is_transient(error):
        return False
    if error.retry_after is None:
        return True
    return max(1.0, error.retry_after) if error.retry_after <= timeout else False


def retry_after(headers: Mapping[str, str]) -> int | None:
    """The seconds of `Retry-After`; None without one, or for a date."""
    text = headers.get("Retry-After", "")
    return int(text) if text.isdecimal() and len(text) < 10 else None
