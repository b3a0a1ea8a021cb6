"""The limits that a process sets for itself before it reads hostile bytes."""

import ctypes
import os
import resource
import sys
from contextlib import suppress

CPU_TIME = 3  # seconds
DESCRIPTORS = 1 << 20  # that a process may have inherited; macOS may name no limit
OUT_OF_MEMORY = 4  # exit status of every module whose memory does not suffice

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38  # of Linux


def confine(memory: int, cpu_time: int = CPU_TIME) -> None:
    """Limit the CPU time and address space of this process, and forbid it to open, write or fork anything.

    `memory` is in bytes, `cpu_time` in seconds. The process keeps its standard streams and gets no other file
    descriptor, hence no file and no connection. Import every module first: a later import opens a file and fails. On
    Linux the process gains no rights by `exec`, and other processes of its user cannot read its memory. Root may still
    fork.

    The process keeps the user of its service. Code that takes it over can do what needs no file descriptor: remove or
    rename files, execute a program in its place, signal the service or, where the system allows it, trace the service.
    """
    # uvloop lets a process inherit more than asyncio does.
    os.closerange(3, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], DESCRIPTORS))
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for limit, value in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu_time),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        with suppress(ValueError, OSError):  # macOS has limits that it does not accept.
            # The soft CPU limit sends SIGXCPU, which tells the reason; the hard one would only kill.
            resource.setrlimit(limit, (value, value + (limit == resource.RLIMIT_CPU)))
