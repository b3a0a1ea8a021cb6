"""What a reading process takes from itself before it looks at a stranger's bytes."""

import codecs
import resource
from contextlib import suppress

MEMORY = 192 << 20  # bytes of addresses, twice of which fit beside the service into the memory of its container
PROCESSOR = 10  # seconds

_UNICODE = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32-be", "ascii", "latin-1", "idna")
_WINDOWS = (437, 874, 932, 936, 949, 950, *range(1250, 1259))
# What texts may be encoded in. Python imports an encoding where it is first asked for.
ENCODINGS = {*_UNICODE, *(f"cp{page}" for page in _WINDOWS)}


def confine() -> None:
    """Let this process have little memory and time, write no file, start nothing, and open nothing any more.

    Without a descriptor to have there is no file and no network for it; what it is to read and to answer through is
    open already, and what it needs of Python must be imported already.
    """
    for encoding in ENCODINGS:
        codecs.lookup(encoding)
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
