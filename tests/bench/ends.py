"""How much of a machine so many clients need who start in the same minute: the arithmetic on what was measured."""

from collections.abc import Mapping

from tests.bench.report import Section, number

MACHINES = (1_000, 10_000, 100_000)
SECONDS, FULL = 60, 0.6  # in which they start, and the share of a core above which others wait
ANEW, KNOWN, CATALOG = (
    "`client_version` of a client that is asked about anew",
    "`get_packages`, known (304)",
    "catalog of 1,000",
)


def ends(costs: Mapping[str, float]) -> Section | None:
    """The cores that gateways and client_registry need; None where a part that this wants was not measured."""
    wanted = (f"{ANEW}: gateway", f"{ANEW}: client_registry", f"{KNOWN}: gateway", f"{CATALOG}: gateway")
    if not all(name in costs for name in wanted):
        return None
    first, registry, known = (costs[name] / 1000 for name in wanted[:3])
    anew, size = costs[wanted[3]], costs[f"{CATALOG}: bytes"]
    rows = [
        ("gateway, catalog unchanged, cores", f"{number(first)} + {number(known)}", *_cores(first + known)),
        ("gateway, catalog changed, cores", f"{number(first)} + {number(anew)}", *_cores(first + anew)),
        ("client_registry, cores", number(registry), *_cores(registry)),
        ("network, catalog changed, Gbit/s", f"{size / 1e6:.1f} MB", *_lines(size)),
    ]
    text = f"""`N` machines start within {SECONDS} seconds; each asks for the client's version, and for a
catalog of 1,000 packages that it knows or that changed. Milliseconds each * N / {SECONDS} s / {FULL}: no
core more than {FULL:.0%} busy, so that nobody waits."""
    return Section("Where one machine ends", text, ("what", "ms each", *(f"{many:,}" for many in MACHINES)), rows)


def _cores(milliseconds: float) -> list[str]:
    return [f"{milliseconds / 1000 * many / SECONDS / FULL:.2f}" for many in MACHINES]


def _lines(size: float) -> list[str]:
    return [f"{size * 8 * many / SECONDS / 1e9:.1f}" for many in MACHINES]
