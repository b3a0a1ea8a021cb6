"""Apply each mutation to a copy of the repository, run the tests near it, and list those that no test notices.

python -m tests.mutants [--only TEXT] [--list]

Exit status 1: a mutation survived, or its tests fail without it.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from tests.mutants.mutations import ROOT, Mutation, read_mutations

LIMIT = 900  # seconds of the tests of one mutation; a mutant that never ends is noticed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="mutations with this text in their name or file")
    parser.add_argument("--list", action="store_true", help="print the mutations")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True)
    mutations = [each for each in read_mutations() if arguments.only in f"{each.name} {each.file}"]
    if arguments.list:
        for mutation in mutations:
            console.print(f"{mutation.name}: {mutation.file}", highlight=False)
        return 0
    with TemporaryDirectory(prefix="pkgrepo-mutants-") as folder:
        survivors = _survivors(mutations, _copy(Path(folder) / "repository"), console)
    console.print(f"{len(mutations) - len(survivors)} of {len(mutations)} mutations were noticed.")
    for name in survivors:
        console.print(f"Nobody noticed: {name}")
    return 1 if survivors else 0


def _copy(folder: Path) -> Path:
    """A copy of the files that Git knows, as they are now."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S607
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def _survivors(mutations: Iterable[Mutation], copy: Path, console: Console) -> Sequence[str]:
    survivors, sound = [], set[tuple[str, ...]]()
    for mutation in mutations:
        began = time.monotonic()
        if mutation.tests not in sound and not _pass(mutation.tests, copy):
            console.print(f"[red]red without it[/]  {mutation.name}")
            survivors.append(mutation.name)
            continue
        sound.add(mutation.tests)
        text = mutation.apply(copy)
        is_noticed = not _pass(mutation.tests, copy)
        (copy / mutation.file).write_text(text, encoding="utf-8")
        if not is_noticed:
            survivors.append(mutation.name)
        result = "[green]noticed[/] " if is_noticed else "[red]survived[/]"
        console.print(f"{result}  {mutation.name}  {time.monotonic() - began:.0f} s", highlight=False)
    return survivors


def _pass(tests: Sequence[str], copy: Path) -> bool:
    """Whether tests pass in the copy, whose modules come before the installed ones."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(command, cwd=copy, check=False, capture_output=True, timeout=LIMIT).returncode == 0
    except subprocess.TimeoutExpired:
        return False


if __name__ == "__main__":
    sys.exit(main())
