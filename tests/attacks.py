"""Attacks on the product: which tests are one, by `@pytest.mark.attack("S10")`, and what came of them.

pytest -m attack --attack-table tests/system/ATTACKS.md

counts what marked tests are answered and writes the table; an answer that is an error of ours then fails its test,
unless the mark says that one may be: `@pytest.mark.attack("L6", expected=[503])`. Without the option nothing is heard.
"""

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attack_table import ATTACKS, Heard, page
from tests.hearing import listen

RECORDER = "attack recorder"
# Matrix, row, column, and the status that came.
Cell = Callable[[str, str, str, int], None]


class Recorder:
    """Counts by attack what marked tests are answered, one test at a time."""

    def __init__(self, to: Path) -> None:
        self.to = to
        self.attacks: dict[str, Heard] = {}
        self.matrices: defaultdict[str, defaultdict[str, defaultdict[str, list[int]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )
        self._attack: Heard | None = None
        self._expected: set[int] = set()
        self._errors: list[str] = []

    def answered(self, request: str, status: int, seconds: float) -> None:
        if self._attack is None:
            return
        self._attack.worst = max(self._attack.worst, seconds)
        if status < 400:
            self._attack.let_through += 1
        elif status < 500 or status in self._expected:
            self._attack.refused += 1
        else:
            self._attack.errors += 1
            self._errors.append(f"{request} was answered {status}.")

    def dropped(self) -> None:
        if self._attack is not None:
            self._attack.dropped += 1

    def cell(self, matrix: str, row: str, column: str, status: int) -> None:
        self.matrices[matrix][row][column].append(status)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The tests of an attack come one after the other, so that memory is the attack's."""
        order = list(ATTACKS)
        items.sort(key=lambda item: order.index(_attack(item)) if _attack(item) else -1)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Listen while the test itself runs; what its fixtures do is no attack. Fails for errors of ours."""
        name = _attack(item)
        if not name:
            return (yield)
        self._attack = attack = self.attacks.setdefault(name, Heard())
        self._expected = set().union(*(mark.kwargs.get("expected", ()) for mark in item.iter_markers("attack")))
        self._errors = []
        before = attack.requests
        attack.tests += 1
        attack.growth.begin()
        try:
            yield
        finally:
            if attack.requests > before:  # else the memory is that of the test
                attack.growth.end()
            self._attack = None
        if self._errors:
            raise pytest.fail.Exception("\n".join(self._errors), pytrace=False)
        return None

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the table, of a run that failed too: it says so. One that was broken off has none."""
        if exitstatus not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED}:
            return
        command = shlex.join(["pytest", *session.config.invocation_params.args])
        self.to.write_text(page(command, self.attacks, self.matrices, session.testsfailed), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--attack-table", type=Path, metavar="FILE", help="write what came of the attacks")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "attack(name, expected=()): an attack of tests/attack_table.py, and the server errors it asks for"
    )
    file = config.getoption("--attack-table")
    if file:
        recorder = Recorder(file)
        config.pluginmanager.register(recorder, RECORDER)
        patch = pytest.MonkeyPatch()
        config.add_cleanup(patch.undo)
        listen(recorder, patch)


def pytest_itemcollected(item: pytest.Item) -> None:
    name = _attack(item)
    if name and name not in ATTACKS:
        raise pytest.UsageError(f"{item.nodeid} is marked as {name}, which tests/attack_table.py does not know.")


@pytest.fixture(scope="session")
def cell(pytestconfig: pytest.Config) -> Cell:
    """Puts a status into a matrix of the table, where one is made."""
    recorder: Recorder | None = pytestconfig.pluginmanager.get_plugin(RECORDER)
    return recorder.cell if recorder else _nowhere


def _nowhere(_matrix: str, _row: str, _column: str, _status: int) -> None:
    pass


def _attack(item: pytest.Item) -> str:
    mark = item.get_closest_marker("attack")
    return str(mark.args[0]) if mark else ""
