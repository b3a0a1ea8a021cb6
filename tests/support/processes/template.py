"""A process that has imported the product already, and is forked where a program of it is to be started.

`python -m tests.support.processes.template N` takes requests from the socket of the descriptor N: JSON of `module`,
`arguments`, `env` and `cwd`, with four descriptors: the program's standard ones, and where to tell its pid and then its
exit status, a line each. Most of the time that a start takes goes into imports. See `forked`.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

IMPORTED = ("auth_service", "catalog_service", "client_registry", "gateway", "upload_service")
LONGEST = 1 << 20  # bytes of a request
PR_SET_PDEATHSIG = 1


def import_the_product() -> None:
    for service in IMPORTED:
        importlib.import_module(f"{service}.app")
    importlib.import_module("deploy.cli")
    # The command's modules look at their terminal when they are imported: each program imports its own.
    for name in [name for name in sys.modules if name.partition(".")[0] == "deploy"]:
        del sys.modules[name]
    assert threading.active_count() == 1, "a fork has one thread"
    gc.freeze()


def taken(asking: socket.socket) -> dict[str, Any] | None:
    """The program that this process is to be; None where nobody asks any more. The others go on in forks."""
    while True:
        _bury()
        text, descriptors, *_ = socket.recv_fds(asking, LONGEST, 4)
        if not text:
            return None
        if not os.fork():
            asking.close()
            return _program(json.loads(text), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _bury() -> None:
    """Ended children stay zombies, with the time that they took, until somebody asks for them."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _program(request: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
    """Fork the program; whoever forked it stays to tell of its end."""
    _die_with_parent()
    told = descriptors[3]
    if pid := os.fork():
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        os.write(told, b"%d\n" % pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(told, b"%d\n" % status)
        os._exit(0)
    _die_with_parent()
    for standard, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, standard)
    for descriptor in descriptors:
        os.close(descriptor)
    return request


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def become(module: str, arguments: Sequence[str], env: dict[str, str], cwd: str) -> None:
    """What `python -m <module> <arguments>` is in an interpreter of its own."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [module, *arguments]
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through="PYTHONUNBUFFERED" in env)  # type: ignore[union-attr]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    import_the_product()
    with socket.socket(fileno=int(sys.argv[1])) as questions:
        program = taken(questions)
    if program:
        become(**program)
