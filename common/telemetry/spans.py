"""The span of a request that is not traced, and the header that names a span."""

from collections.abc import Mapping
from typing import Self

TRACEPARENT = "traceparent"  # the W3C header, and the extension attribute of a CloudEvent


class NoopSpan:
    """A span that does nothing, for requests that are not traced."""

    @property
    def traceparent(self) -> str:
        """The context for other services to continue the trace; "" for none."""
        return ""

    def set_status(self, status: int, cause: str = "") -> None:
        """Set the response status; `cause` is the class of the error."""

    def update(self, name: str, attributes: Mapping[str, str]) -> None:
        """Change the name and set attributes; empty values are left out."""

    def end(self, error: str = "") -> None:
        """End a span that was not entered; `error` is the class of the error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        pass


NOOP_SPAN = NoopSpan()
