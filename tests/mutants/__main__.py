"""Break the product in one way after the other, run the tests near each, and list the ways that no test notices.

python -m tests.mutants [--limit SECONDS] [LIST …]

A list is a TOML file; without one, all lists of tests/mutants. Two mutations are tested at a time, each in a copy of
the repository. A test notices a mutation if it fails with it and passes without it. Exit status 1: a mutation
survived, or cannot be applied.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from rich.console import Console

from tests.mutants.mutations import ROOT, Mutation, read_mutations
from tests.mutants.near import near, wider

PROCESSES = 2
LIMIT = 240  # seconds of the tests of one mutation
STOPPING = 30  # seconds in which interrupted tests stop their servers
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
PASSED = {0, 5}  # exit statuses of pytest: every test passed, or none was selected


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("lists", nargs="*", type=Path, metavar="LIST")
    parser.add_argument("--limit", type=int, default=LIMIT, help=f"seconds of one mutation; by default {LIMIT}")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False, markup=False)
    mutations = read_mutations(arguments.lists)
    survivors = []
    with TemporaryDirectory(prefix="pkgrepo-mutants-") as folder, ThreadPoolExecutor(PROCESSES) as pool:
        copies = SimpleQueue[Path]()
        for number in range(PROCESSES):
            copies.put(_copy(Path(folder) / str(number)))
        running = {pool.submit(_test, mutation, copies, arguments.limit): mutation for mutation in mutations}
        for done in as_completed(running):
            mutation, (is_noticed, result) = running[done], done.result()
            console.print(f"{mutation.number:3}  {result}  ({mutation.file}: {mutation.breaks})")
            if not is_noticed:
                survivors.append(mutation)
    console.print(f"\n{len(mutations) - len(survivors)} of {len(mutations)} mutations were noticed.")
    for mutation in sorted(survivors, key=lambda each: each.number):
        console.print(f"No test noticed {mutation.number}: {mutation.file}: {mutation.breaks}")
    return 1 if survivors else 0


def _copy(folder: Path) -> Path:
    """A copy of the files that Git knows, as they are now."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S607
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def _test(mutation: Mutation, copies: "SimpleQueue[Path]", limit: int) -> tuple[bool, str]:
    """Whether a test notices the mutation, and the result in words."""
    if fault := mutation.fault():
        return False, f"CANNOT BE APPLIED: {fault}"
    copy, began = copies.get(), time.monotonic()
    try:
        is_noticed, result = _run_stages(mutation, copy, began + limit)
    finally:
        copies.put(copy)
    return is_noticed, f"{result}  {time.monotonic() - began:.0f} s"


def _run_stages(mutation: Mutation, copy: Path, end: float) -> tuple[bool, str]:
    """Run the tests stage by stage until one of them notices the mutation, or the time is up."""
    red: list[str] = []
    for marker, tests in _stages(mutation):
        while test := _first_failure(mutation, [*tests, "-m", marker, *map("--deselect={}".format, red)], copy, end):
            if _run_pytest([test], copy, LIMIT) == ("", True):
                return True, f"noticed by {test}"
            red.append(test)
        if time.monotonic() > end:
            return False, f"SURVIVED until the time was up, in the tests {tests[0]} … {tests[-1]}"
    return False, f"SURVIVED, red without it: {', '.join(red)}" if red else "SURVIVED"


def _stages(mutation: Mutation) -> Iterator[tuple[str, Sequence[str]]]:
    """The tests to run, with pytest's marker: those with the file's name, those near it, those further away."""
    closest = near(mutation.file)
    stem = Path(mutation.file).stem
    stages = [
        ("full or not full", mutation.tests),
        ("not full", [test for tests in closest[:2] for test in tests if stem in Path(test).stem]),
        *(("not full", tests) for tests in closest),
        ("full", [test for tests in closest for test in tests]),
        *(("not full", tests) for tests in wider(mutation.file)),
    ]
    return (stage for stage in stages if stage[1])


def _first_failure(mutation: Mutation, arguments: Sequence[str], copy: Path, end: float) -> str:
    """The first test that fails with the mutation; "" if none does in time."""
    text = mutation.apply(copy)
    try:
        return _run_pytest(arguments, copy, end - time.monotonic())[0]
    finally:
        (copy / mutation.file).write_text(text, encoding="utf-8")


def _run_pytest(arguments: Sequence[str], copy: Path, limit: float) -> tuple[str, bool]:
    """The first test that fails, "" if none does; and whether pytest ended in time."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "--tb=no",
        "--show-capture=no",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    # Programs of the tests import the copy as well, in place of the installed product.
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    output = copy.with_suffix(".txt")  # A pipe would stay open as long as a server of the tests.
    with output.open("w") as file:
        run = subprocess.Popen(command, cwd=copy, env=environment, stdout=file, stderr=subprocess.STDOUT)
        try:
            status = run.wait(max(limit, 0))
        except subprocess.TimeoutExpired:
            run.send_signal(signal.SIGINT)
            _wait_or_kill(run)
            return "", False
    if status in PASSED:
        return "", True
    failed = FAILED.search(output.read_text(encoding="utf-8", errors="replace"))
    return (failed.group(1) if failed else arguments[0]), True


def _wait_or_kill(run: "subprocess.Popen[bytes]") -> None:
    try:
        run.wait(STOPPING)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()


if __name__ == "__main__":
    sys.exit(main())
