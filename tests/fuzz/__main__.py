"""Search for inputs that a target parses incorrectly, or that reach new code.

`python -m tests.fuzz 60 form chunk` runs each named target for 60 seconds, or all targets. Inputs that reach new code
are added to the corpus. This needs atheris, which `make fuzz-parsers` installs; the tests do not need it.
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


def main(arguments: list[str]) -> int:
    with atheris.instrument_imports(include=OURS + READERS):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415  what is imported here is watched

    if arguments[0] == "--target":
        atheris.Setup([sys.argv[0], *arguments[2:]], TARGETS[arguments[1]])
        atheris.Fuzz()
        return 0
    return max([_search(name, int(arguments[0])) for name in arguments[1:] or TARGETS])


def _search(target: str, seconds: int) -> int:
    """Fuzz one target in its own process, because libFuzzer ends the process that it runs in."""
    limits = [f"-max_len={LONGEST}", f"-rss_limit_mb={MEMORY}", f"-timeout={HANGS}", f"-max_total_time={seconds}"]
    with TemporaryDirectory() as folder:
        for name, content in read_corpus(target).items():
            (Path(folder) / name).write_bytes(content)
        says = ["-print_final_stats=1", f"-artifact_prefix={folder}/"]
        command = [sys.executable, "-m", "tests.fuzz", "--target", target, *limits, *says, folder]
        status = subprocess.run(command, check=False).returncode
        write_corpus(target, (path.read_bytes() for path in Path(folder).iterdir()))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
