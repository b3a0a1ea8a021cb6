"""Tables of cases in one test, which lists every row that fails."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest


class Rows:
    """The rows of one run of a test, and those that failed."""

    def __init__(self) -> None:
        self.count = 0
        self.failures: list[tuple[object, BaseException]] = []

    @contextmanager
    def row(self, label: object) -> Iterator[None]:
        self.count += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  `finish` raises it
            self.failures.append((label, error))

    def finish(self) -> None:
        if self.failures:
            lines = [f"{str(label)[:200]}: {str(error)[:2000] or repr(error)}" for label, error in self.failures]
            summary = f"{len(lines)} of {self.count} rows fail:"
            raise AssertionError("\n".join([summary, *lines])) from self.failures[0][1]


def each(
    names: str | tuple[str, ...], rows: Iterable[Any], ids: Callable[[Any], object] | Iterable[object] = repr
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test for each row, as `pytest.mark.parametrize` does, but as one test that fails with a list of rows.

    All rows share the test's fixtures. Parametrize a test that changes what a fixture gives.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [dict(zip(arguments, row if len(arguments) > 1 else (row,), strict=True)) for row in rows]
    labels = [", ".join(str(ids(value)) for value in case.values()) for case in cases] if callable(ids) else list(ids)
    assert cases, "a table without rows shows nothing"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            rows = Rows()
            for label, case in zip(labels, cases, strict=True):
                with rows.row(label):
                    test(**fixtures, **case)
            rows.finish()

        @wraps(test)
        async def run_async(**fixtures: Any) -> None:
            rows = Rows()
            for label, case in zip(labels, cases, strict=True):
                with rows.row(label):
                    await test(**fixtures, **case)
            rows.finish()

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        decorated: Callable[..., Any] = run_async if inspect.iscoroutinefunction(test) else run
        decorated.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return decorated

    return decorate
