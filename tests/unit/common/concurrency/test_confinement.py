"""A confined process can read its input and write its output, and nothing else."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common.concurrency import confined_process

# Forbidden actions of a confined process, and the error of each.
FORBIDDEN = {
    "open a file": "open('/etc/hostname')",
    "write a file": "os.write(1, b'x')",
    "read an inherited descriptor": "os.read(3, 1)",
    "reach the network": "socket.socket()",
    "take memory": "bytearray(1 << 30)",
}


def run_confined(code: str, *arguments: str) -> int:
    """The exit code of a Python process with this code."""
    environment, command = {"PYTHONPATH": str(confined_process.CODE)}, [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, check=False, timeout=200).returncode


@pytest.mark.parametrize("action", FORBIDDEN)
def test_a_confined_process_cannot(action: str, tmp_path: Path) -> None:
    output = tmp_path / "said"
    code = (
        "import os, socket, sys, encodings.idna; from common.concurrency.confinement import confine\n"
        "file = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR); os.dup2(file, 1); os.dup2(file, 3); confine(1 << 28)\n"
        f"try: {FORBIDDEN[action]}\n"
        "except (OSError, MemoryError): sys.exit(7)"
    )
    assert run_confined(code, str(output)) == 7
    assert output.read_bytes() == b""


def test_a_confined_process_gains_no_rights_and_cannot_be_traced() -> None:
    code = (
        "import ctypes, sys; from common.concurrency.confinement import confine; confine(1 << 28)\n"
        "asked = ctypes.CDLL(None).prctl; dumpable, no_new_privileges = 3, 39\n"
        "sys.exit(7 if (asked(dumpable), asked(no_new_privileges, 0, 0, 0, 0)) == (0, 1) else 1)"
    )
    assert run_confined(code) == 7


def test_a_confined_process_ends_at_its_timeout() -> None:
    code = (
        "from common.concurrency import confinement\n"
        "confinement.CPU_TIME = 1; confinement.confine(1 << 28)\n"
        "while True: pass"
    )
    assert run_confined(code) == -signal.SIGXCPU
