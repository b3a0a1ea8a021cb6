"""What a run found: the lines of the one table, the sections of details, and how they are written down."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table

KEPT = "<!-- Below this line nothing is measured anew: `make bench` leaves it as it is. -->"
COLUMNS = ("line", "what it cost", "the limit beside it", "ratio", "budget", "met?")

INTRODUCTION = """Costs are processor time of all services together, in brackets by process; stores and
callers aside. Limits are of the same minutes, so a ratio says more than a figure does. A budget that is a
ratio was made from the figure in brackets, on a machine where the limit was known; one without a ratio is
absolute, and is missed by a machine that has other things to do."""


@dataclass(frozen=True)
class Line:
    """A line of the table; `met` is None where there is no budget, or nothing to hold it against."""

    title: str
    cost: str
    limit: str = ""
    ratio: float | None = None
    budget: str = ""
    met: bool | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else number(self.ratio)
        return (
            self.title,
            self.cost,
            self.limit,
            ratio,
            self.budget,
            {None: "", True: "yes", False: "**no**"}[self.met],
        )


@dataclass(frozen=True)
class Limit:
    """Something that the machine did in the same minute, and its cost in the unit of the line."""

    name: str
    cost: float


def against(
    title: str,
    costs: Mapping[str, float],
    unit: str,
    limit: Limit | None,
    most: float | None = None,
    *,
    of: str = "",
) -> Line:
    """A line whose budget is a ratio: at most `most` times the limit; `of` says what that is in absolute terms."""
    whole = sum(costs.values())
    ratio = whole / limit.cost if limit and limit.cost else None
    budget = "" if most is None else f"≤ {most:g}" + (f" ({of})" if of else "")
    met = None if ratio is None or most is None else ratio <= most
    return Line(
        title, shared(costs, unit), f"{limit.name}: {number(limit.cost)} {unit}" if limit else "", ratio, budget, met
    )


def within(title: str, value: float, unit: str, most: float | None = None, *, beside: str = "", cost: str = "") -> Line:
    """A line whose budget is absolute; `cost` says the value in more words."""
    budget = "" if most is None else f"≤ {most:g} {unit}"
    return Line(title, cost or f"{number(value)} {unit}", beside, None, budget, None if most is None else value <= most)


def shared(costs: Mapping[str, float], unit: str) -> str:
    """A cost as what all processes needed, and in brackets who needed how much of it."""
    whole = sum(costs.values())
    parts = [f"{name} {number(cost)}" for name, cost in costs.items() if cost >= whole / 100]
    return f"{number(whole)} {unit}" + (f" ({', '.join(parts)})" if len(parts) > 1 or not costs else "")


def number(value: float) -> str:
    """Three digits that count."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


@dataclass(frozen=True)
class Section:
    """Details: a heading, what the figures are, and a table of them."""

    heading: str
    text: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    after: str = ""

    def __str__(self) -> str:
        parts = [f"## {self.heading}", self.text, table(self.columns, self.rows) if self.columns else "", self.after]
        return "\n\n".join(part for part in parts if part)


@dataclass
class Found:
    """What a part found. `costs` has what other sections calculate with, in microseconds or seconds per GB."""

    lines: list[Line] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    plot: str = ""

    def add(self, other: "Found") -> None:
        self.lines += other.lines
        self.sections += other.sections
        self.costs |= other.costs
        self.failures += other.failures
        self.plot = other.plot or self.plot


def failure(what: str, error: Exception) -> str:
    """What went wrong with a part, and what was noted with it."""
    return "; ".join([f"{what}: {error!r}", *getattr(error, "__notes__", ())])


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(head: Sequence[str], found: Found, before: str = "") -> str:
    """All of it in Markdown; what stood below the marker in the page of before stays there."""
    lines = [f"- {line}" for line in head]
    failed = ["**Not everything came to its end:**", "\n".join(f"- {failure}" for failure in found.failures)]
    parts = [
        "# What requests, catalogs and transfers cost, beside what this machine can do",
        "\n".join(lines),
        INTRODUCTION,
        *(failed if found.failures else []),
        table(COLUMNS, [line.cells for line in found.lines]),
        *map(str, found.sections),
        KEPT + (before.partition(KEPT)[2].rstrip() or ""),
    ]
    return "\n\n".join(parts) + "\n"


def shown(found: Found) -> Group:
    """The same for a terminal, without the sections' texts."""
    whole = Table(*COLUMNS)
    for line in found.lines:
        whole.add_row(*line.cells, style="red" if line.met is False else "")
    sections = []
    for section in found.sections:
        sections.append(Table(*section.columns, title=section.heading))
        for row in section.rows:
            sections[-1].add_row(*row)
    return Group(*sections, whole, *(f"FAILED: {failure}" for failure in found.failures))
