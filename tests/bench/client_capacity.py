"""The cores that many clients need if they start in the same minute, calculated from measured costs."""

from collections.abc import Mapping
from math import ceil

from tests.bench.report import Section, number

MACHINES = (1_000, 10_000, 100_000)
SECONDS, FULL = 60, 0.6  # seconds of the start, and the share of a core that avoids waiting
ANEW, KNOWN, CATALOG = (
    "`client_version` of a client that is asked about anew",
    "`get_packages`, known (304)",
    "catalog of 1,000",
)


def client_capacity(costs: Mapping[str, float]) -> Section | None:
    """The section with the cores of gateways and client_registry. None if a cost was not measured."""
    names = (f"{ANEW}: gateway", f"{ANEW}: client_registry", f"{KNOWN}: gateway", f"{CATALOG}: gateway")
    if not all(name in costs for name in names):
        return None
    first, registry, known = (costs[name] / 1000 for name in names[:3])
    anew, size = costs[names[3]], costs[f"{CATALOG}: bytes"]
    changed = first + anew
    rows = [
        ("gateway, catalog known (304)", f"{number(first)} + {number(known)} ms", *_cores(first + known)),
        ("gateway, catalog changed", f"{number(first)} + {number(anew)} ms", *_cores(changed)),
        ("client_registry", f"{number(registry)} ms", *_cores(registry)),
        ("network, catalog changed", f"{size / 1e6:.1f} MB", *(f"{_bits(size, many):.1f} Gbit/s" for many in MACHINES)),
        (
            "processes of one core: gateway + client_registry",
            "",
            *(f"{ceil(_busy(changed, many))} + {ceil(_busy(registry, many))}" for many in MACHINES),
        ),
    ]
    text = f"""`N` machines start within {SECONDS} seconds; each asks for the client's version, and for a
catalog of 1,000 packages that it knows or that changed. Cores are milliseconds * N / {SECONDS} s / {FULL}:
none is busy for more than {FULL:.0%}, so that nobody waits."""
    columns = ("", "each", *(f"{many:,} machines" for many in MACHINES))
    return Section("Where one machine ends", text, columns, rows)


def _cores(milliseconds: float) -> list[str]:
    return [f"{_busy(milliseconds, many):.2f} cores" for many in MACHINES]


def _busy(milliseconds: float, machines: int) -> float:
    return milliseconds / 1000 * machines / SECONDS / FULL


def _bits(size: float, machines: int) -> float:
    return size * 8 * machines / SECONDS / 1e9
