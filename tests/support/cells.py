"""One test for a whole table: it goes through every cell and then lists those that fail."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from traceback import extract_tb

import pytest


@contextmanager
def every_cell() -> Iterator[Callable[..., AbstractContextManager[None]]]:
    """Collect the failed assertions of the blocks `with cell(*name):`, and fail once with all of them."""
    failing: list[str] = []

    @contextmanager
    def cell(*name: object) -> Iterator[None]:
        label = " | ".join(map(str, name))
        try:
            yield
        except AssertionError as error:
            failing.append(f"{label}: {str(error) or extract_tb(error.__traceback__)[-1].line}")
        except Exception as error:
            error.add_note(f"cell: {label}")
            raise

    yield cell
    assert not failing, "\n".join([f"{len(failing)} cells fail:", *failing])


def sampled(every: int) -> pytest.MarkDecorator:
    """Give a test `every`: it slices its cells by it, so `make test` runs a sample and `make test-full` all of them."""
    steps = [every, pytest.param(1, marks=pytest.mark.full)]
    return pytest.mark.parametrize("every", steps, ids=["sample", "complete"])
