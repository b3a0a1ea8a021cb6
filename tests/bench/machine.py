"""On what a run was made: versions, cores, memory, and how busy the machine was meanwhile."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARIES = ("aiohttp", "uvloop", "multipart", "motor", "pymongo", "redis", "argon2-cffi")


def load() -> str:
    """How many threads wanted a core in the last minute, on average."""
    return f"{os.getloadavg()[0]:.1f}"


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def described() -> list[str]:
    """What was measured, and on what; a line each."""
    versions = [f"{name} {version(name)}" for name in LIBRARIES]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    system = f"{platform.system()} {platform.release()}"
    nginx = _said("nginx", "-v").rpartition("/")[2] or "none"
    return [
        f"pkgrepo {version('pkgrepo')} at {_said('git', 'rev-parse', '--short', 'HEAD') or 'no commit'}",
        f"Python {platform.python_version()}, {', '.join(versions)}; nginx {nginx}",
        f"{len(os.sched_getaffinity(0))} cores of {_processor()}, {memory:.0f} GiB, {system}",
    ]


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def _said(*command: str) -> str:
    """What a command says of itself; nothing where it is not there."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    try:
        found = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return (found.stdout or found.stderr).strip()
