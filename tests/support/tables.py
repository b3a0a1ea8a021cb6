"""Tests of tables: one test checks every row, then lists the failed rows."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from traceback import extract_tb
from typing import Any

import pytest

MAX_FAILURE_TEXT = 2000  # characters of one row's failure


@contextmanager
def every_cell() -> Iterator[Callable[..., AbstractContextManager[None]]]:
    """Collect the failures of the blocks `with cell(*label):`, and fail once with all of them at the end."""
    failures: list[tuple[str, BaseException]] = []
    count = 0

    @contextmanager
    def cell(*label: object) -> Iterator[None]:
        nonlocal count
        count += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  raised below
            text = str(error) or f"{error!r} at {extract_tb(error.__traceback__)[-1].line}"
            failures.append((f"{' | '.join(map(str, label))}: {text[:MAX_FAILURE_TEXT]}", error))

    yield cell
    assert count, "the table has no cells"
    if failures:
        lines = [f"{len(failures)} of {count} fail:", *(line for line, _ in failures)]
        raise AssertionError("\n".join(lines)) from failures[0][1]


def each(
    names: str | tuple[str, ...], rows: Iterable[Any], ids: Callable[[Any], object] | Iterable[object] = repr
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test for each row, like `pytest.mark.parametrize`, but as one test whose rows share the fixtures.

    Use `parametrize` for a test that changes its fixtures.
    """
    arguments = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [dict(zip(arguments, row if len(arguments) > 1 else (row,), strict=True)) for row in rows]
    labels = [", ".join(str(ids(value)) for value in case.values()) for case in cases] if callable(ids) else list(ids)
    assert cases, "the table has no rows"
    table = list(zip(labels, cases, strict=True))

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            with every_cell() as cell:
                for label, case in table:
                    with cell(label):
                        test(**fixtures, **case)

        @wraps(test)
        async def run_async(**fixtures: Any) -> None:
            with every_cell() as cell:
                for label, case in table:
                    with cell(label):
                        await test(**fixtures, **case)

        decorated: Any = run_async if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        fixtures_only = [parameter for name, parameter in signature.parameters.items() if name not in arguments]
        decorated.__signature__ = signature.replace(parameters=fixtures_only)
        return decorated  # type: ignore[no-any-return]

    return decorate


def sampled(every: int, *, complete: int = 1) -> pytest.MarkDecorator:
    """Pass `every` to a test that slices its cells: `make test` runs a sample, `make test-full` all or many cells."""
    steps = [every, pytest.param(complete, marks=pytest.mark.full)]
    return pytest.mark.parametrize("every", steps, ids=["sample", "complete"])
