"""Search for inputs that a target parses incorrectly, or that reach new code.

`python -m tests.fuzz 60 form chunk` runs each named target for 60 seconds, or all targets. The corpus then has the
fewest inputs that reach the same code, and those that failed. With 0 seconds it is only minimised. This needs atheris,
which `make fuzz-parsers` installs; the tests do not need it.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

from tests.fuzz.corpus import read_corpus, write_corpus

LONGEST = 4096  # bytes of an input
MEMORY = 1024  # MiB
HANGS = 10  # seconds for one input
OURS = ["common", "gateway", "auth_service", "catalog_service", "upload_service", "client_registry"]
READERS = ["multipart", "jwt", "PIL", "urllib.parse", "ipaddress", "email", "zipfile"]
READERS += ["olefile", "pefile", "asn1crypto"]
TARGET_CODE = ["tests.fuzz"]  # It tells accepted inputs from refused ones.


def main(arguments: list[str]) -> int:
    with atheris.instrument_imports(include=OURS + READERS + TARGET_CODE):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415  what is imported here is watched

    if arguments[0] == "--target":
        program = f"{sys.executable} -m tests.fuzz --target {arguments[1]}"  # libFuzzer runs it again for a merge.
        atheris.Setup([program, *arguments[2:]], TARGETS[arguments[1]])
        atheris.Fuzz()
        return 0
    return max([_search(name, int(arguments[0])) for name in arguments[1:] or TARGETS])


def _search(target: str, seconds: int) -> int:
    """Fuzz one target and write its corpus. Returns 0 if all inputs were parsed correctly."""
    with TemporaryDirectory() as name:
        inputs, smallest = Path(name, "inputs"), Path(name, "smallest")
        for folder in (inputs, smallest):
            folder.mkdir()
        for digest, content in read_corpus(target).items():
            (inputs / digest).write_bytes(content)
        status = 0
        if seconds:
            says = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", "-print_final_stats=1"]
            status = _run(target, *says, f"-artifact_prefix={smallest}/", inputs)
        # Without counters, inputs differ by the edges that they reach, not by how often.
        _run(target, "-set_cover_merge=1", "-use_counters=0", smallest, inputs)
        write_corpus(target, (path.read_bytes() for path in smallest.iterdir()))
    return status


def _run(target: str, *arguments: str | Path) -> int:
    """Run libFuzzer in a process of its own, because it ends the process that it runs in."""
    limits = [f"-rss_limit_mb={MEMORY}", f"-timeout={HANGS}"]
    command = [sys.executable, "-m", "tests.fuzz", "--target", target, *limits, *map(str, arguments)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
