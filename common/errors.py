"""Problems that callers are told about. Raised where they happen, answered by `common.http.middleware`."""

from collections.abc import Mapping
from typing import ClassVar


class Problem(Exception):
    """Something the caller is told about; the base of every error that a service raises on purpose.

    `status` and `code` are part of the interface (RFC 9457 for the body); `detail` is one sentence for
    the person who reads it. `retry_after` is in seconds. `members` stand in the body beside the standard ones, for
    programs. `params` are the values in `detail`, by name: the dashboard translates a problem by its code and these.
    A `reason` among them is more precise than the code. `text` is the detail of a class that always says the same; it
    may name params in braces.
    """

    status: int = 500
    code: str = "internal_error"
    text: str = ""
    retry_after: int | None = None

    def __init__(self, detail: str = "", *, retry_after: int | None = None, **params: object) -> None:
        self.detail = detail or self.text.format(**params)
        super().__init__(self.detail)
        self.params = {name: str(value) for name, value in params.items()}
        self.retry_after = self.retry_after if retry_after is None else retry_after
        self.members: dict[str, int | str] = {}

    @property
    def headers(self) -> dict[str, str]:
        """The headers that go with the answer."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


class InvalidRequest(Problem):
    """The request cannot be understood, or a value in it is not allowed."""

    status = 400
    code = "invalid_request"


class InvalidField(InvalidRequest):
    """One field of the request is missing or not allowed; the detail begins with its name.

    `reason` is a stable code for the message; the dashboard translates it.
    """

    code = "invalid_field"

    def __init__(self, field: str, message: str, *, reason: str = "invalid", **params: object) -> None:
        super().__init__(f"{field}: {message}", field=field, reason=reason)
        self.params |= {name: str(value) for name, value in params.items()}
        self.field = field
        self.message = message


class BodyTooLarge(Problem):
    """The body is longer than the operation takes."""

    status = 413
    code = "body_too_large"


class NotAuthenticated(Problem):
    """Invalid, expired or missing token or credentials."""

    status = 401
    code = "not_authenticated"

    challenge: ClassVar[dict[str, str]] = {"WWW-Authenticate": "Bearer"}

    @property
    def headers(self) -> dict[str, str]:
        return self.challenge


class Forbidden(Problem):
    """The caller may not do this, whoever they are."""

    status = 403
    code = "forbidden"


class MethodNotAllowed(Problem):
    """The operation exists, with other methods."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, allowed: list[str]) -> None:
        super().__init__(f"This operation takes {' or '.join(allowed)}.")
        self.allowed = allowed

    @property
    def headers(self) -> dict[str, str]:
        return {"Allow": ", ".join(self.allowed)}


class NotFound(Problem):
    """Something the request names does not exist."""

    status = 404
    code = "not_found"


class StorageExceeded(Problem):
    """The tenant's storage quota would be exceeded."""

    status = 407  # The interface answers a full quota with 407.
    code = "storage_exceeded"


class Conflict(Problem):
    """Something of that name exists already, or changes at this moment."""

    status = 409
    code = "conflict"


class TooManyRequests(Problem):
    """The caller has to wait `retry_after` seconds."""

    status = 429
    code = "too_many_requests"


class Unavailable(Problem):
    """Something the service depends on does not answer; the same request may succeed in `retry_after` seconds."""

    status = 500  # The interface answers a database connection issue with 500.
    code = "dependency_unavailable"
    retry_after = 5


class Overloaded(Problem):
    """More is asked at once than can be done; the same request may succeed in `retry_after` seconds."""

    status = 503
    code = "overloaded"
    text = "Too many requests at once; try again soon."
    retry_after = 2


class UpstreamProblem(Problem):
    """A problem that another service answered with, on its way to the caller as it is.

    `content_range` says how long a file is of which bytes were asked for that it does not have.
    """

    def __init__(
        self,
        detail: str,
        *,
        status: int,
        code: str,
        retry_after: int | None = None,
        content_range: str = "",
        members: Mapping[str, int | str] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail, retry_after=retry_after)
        self.status = status
        self.code = code
        self.content_range = content_range
        self.members = dict(members or {})
        self.params = dict(params or {})

    @property
    def headers(self) -> dict[str, str]:
        challenge = NotAuthenticated.challenge if self.status == NotAuthenticated.status else {}
        content_range = {"Content-Range": self.content_range} if self.content_range else {}
        return {**super().headers, **challenge, **content_range}
