"""What a reading process takes from itself before it looks at a stranger's bytes."""

import codecs
import ctypes
import resource
import sys
from contextlib import suppress

MEMORY = 192 << 20  # bytes of addresses, twice of which fit beside the service into the memory of its container
PROCESSOR = 10  # seconds

_UNICODE = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32-be", "ascii", "latin-1", "idna")
_WINDOWS = (437, 874, 932, 936, 949, 950, *range(1250, 1259))
# What texts may be encoded in. Python imports an encoding where it is first asked for.
ENCODINGS = {*_UNICODE, *(f"cp{page}" for page in _WINDOWS)}


_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38  # of Linux


def confine() -> None:
    """Let this process have little memory and time, write no file, fork no more, and open nothing any more.

    Without a descriptor to have there is no file and no network for it; what it is to read and to answer through is
    open already, and what it needs of Python must be imported already. On Linux it gains no rights by what it executes,
    and others of its user, such as those that read other tenants' files, cannot look into it; root may fork.

    It keeps the service's user: code that takes it over could do what that user may without a descriptor, such as
    remove or rename files, execute a program in its own place, signal the service or, where the system lets a process
    trace its parent, look into it.
    """
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
        prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for limit, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, PROCESSOR),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        with suppress(ValueError, OSError):  # macOS names limits that it does not take.
            resource.setrlimit(limit, (most, most + (limit == resource.RLIMIT_CPU)))  # The hard one says nothing.
