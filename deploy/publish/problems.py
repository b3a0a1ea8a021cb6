"""Problems of publishing. The problems of the server are `common.errors.UpstreamProblem`."""

from collections.abc import Mapping

from common.errors import Problem


class Unreachable(Problem):
    """The server did not answer completely; it may later."""

    code = "unreachable"


class LastingProblem(Problem):
    """A problem that a retry does not solve."""

    status = 409


class NotTheInterface(LastingProblem):
    """The address does not lead to the interface."""

    code = "not_the_interface"


class Untrusted(LastingProblem):
    """The server's certificate does not verify."""

    code = "certificate_not_trusted"


class FileUnusable(LastingProblem):
    """The file is empty, or cannot be read."""

    code = "file_unusable"


class FileChanged(LastingProblem):
    """The file changed after its digest was made."""

    code = "file_changed"


class UploadCancelled(LastingProblem):
    """Another client cancelled the transfer while this run sent it."""

    code = "upload_cancelled"


class OtherBytes(LastingProblem):
    """The file does not have the expected SHA-256."""

    code = "sha256_differs"
    text = "{path} has the SHA-256 {actual}, not {expected}."


class VersionTaken(LastingProblem):
    """The package has this version with another installer."""

    code = "version_exists"


class StoredDifferently(LastingProblem):
    """The server stored other bytes than those of the file."""

    code = "stored_differently"


class StoredDamaged(LastingProblem):
    """The version exists with the same bytes, but its stored file is missing or altered."""

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
