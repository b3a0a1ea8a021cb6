"""The environment of a run: versions, cores, memory and load."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIBRARIES = ("aiohttp", "uvloop", "multipart", "motor", "pymongo", "redis", "argon2-cffi")


def load_average() -> str:
    """The load average of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def describe_run() -> list[str]:
    """The versions and the machine, one line each."""
    versions = [f"{name} {version(name)}" for name in LIBRARIES]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    system = f"{platform.system()} {platform.release()}"
    nginx = _output_of("nginx", "-v").rpartition("/")[2] or "none"
    return [
        f"pkgrepo {version('pkgrepo')} at {_output_of('git', 'rev-parse', '--short', 'HEAD') or 'no commit'}",
        f"Python {platform.python_version()}, {', '.join(versions)}; nginx {nginx}",
        f"{len(os.sched_getaffinity(0))} cores of {_processor()}, {memory:.0f} GiB, {system}",
    ]


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def _output_of(*command: str) -> str:
    """The output of a command. Empty if it is not installed."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    try:
        result = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return (result.stdout or result.stderr).strip()
