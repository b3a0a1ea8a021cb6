"""The results of a run: the lines of the table, sections with details, and their output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MARKER = "<!-- Below this line nothing is measured anew: `make bench` leaves it as it is. -->"
COLUMNS = ("line", "what it cost", "the limit beside it", "ratio", "budget", "met?")

INTRODUCTION = """Costs are processor time of all services together, in brackets by process; stores and
callers aside. Limits are of the same minutes, so a ratio says more than a figure does. A budget that is a
ratio was made from the figure in brackets, on a machine where the limit was known; one without a ratio is
absolute, and is missed by a machine that has other things to do."""


@dataclass(frozen=True)
class Line:
    """A line of the table. `met` is None without a budget or a measured limit."""

    title: str
    cost: str
    limit: str = ""
    ratio: float | None = None
    budget: str = ""
    met: bool | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else number(self.ratio)
        met = {None: "", True: "yes", False: "**no**"}[self.met]
        return self.title, self.cost, self.limit, ratio, self.budget, met


@dataclass(frozen=True)
class Limit:
    """A reference cost on the same machine in the same minute, in the unit of the line."""

    name: str
    cost: float


def ratio_line(
    title: str,
    costs: Mapping[str, float],
    unit: str,
    limit: Limit | None,
    most: float | None = None,
    *,
    of: str = "",
) -> Line:
    """A line whose budget is a ratio: at most `most` times the limit. `of` is the absolute value of that."""
    total = sum(costs.values())
    ratio = total / limit.cost if limit and limit.cost else None
    budget = "" if most is None else f"≤ {most:g}" + (f" ({of})" if of else "")
    met = None if ratio is None or most is None else ratio <= most
    return Line(
        title,
        cost_by_process(costs, unit),
        f"{limit.name}: {number(limit.cost)} {unit}" if limit else "",
        ratio,
        budget,
        met,
    )


def absolute_line(
    title: str, value: float, unit: str, most: float | None = None, *, beside: str = "", cost: str = ""
) -> Line:
    """A line with an absolute budget. `cost` replaces the text of the value."""
    budget = "" if most is None else f"≤ {most:g} {unit}"
    return Line(title, cost or f"{number(value)} {unit}", beside, None, budget, None if most is None else value <= most)


def cost_by_process(costs: Mapping[str, float], unit: str) -> str:
    """The total cost, and in brackets the cost of each process."""
    total = sum(costs.values())
    parts = [f"{name} {number(cost)}" for name, cost in costs.items() if cost >= total / 100]
    return f"{number(total)} {unit}" + (f" ({', '.join(parts)})" if len(parts) > 1 or not costs else "")


def number(value: float) -> str:
    """A number with three significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.3f}"


@dataclass(frozen=True)
class Section:
    """A section with a heading, a text and a table."""

    heading: str
    text: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    after: str = ""

    def __str__(self) -> str:
        parts = [f"## {self.heading}", self.text, table(self.columns, self.rows) if self.columns else "", self.after]
        return "\n\n".join(part for part in parts if part)


@dataclass
class PartResult:
    """The result of a part. `costs` are values for other sections, in microseconds or seconds per GB."""

    lines: list[Line] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def add(self, other: "PartResult") -> None:
        self.lines += other.lines
        self.sections += other.sections
        self.costs |= other.costs
        self.failures += other.failures


def failure_text(part: str, error: Exception) -> str:
    """The text of a part's exception, with its notes."""
    return "; ".join([f"{part}: {error!r}", *getattr(error, "__notes__", ())])


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(head: Sequence[str], result: PartResult, before: str = "") -> str:
    """The result in Markdown. The text below the marker of the previous page is kept."""
    lines = [f"- {line}" for line in head]
    failed = ["**Some parts failed:**", "\n".join(f"- {failure}" for failure in result.failures)]
    parts = [
        "# What requests, catalogs and transfers cost, beside what this machine can do",
        "\n".join(lines),
        INTRODUCTION,
        *(failed if result.failures else []),
        table(COLUMNS, [line.cells for line in result.lines]),
        *map(str, result.sections),
        MARKER + (before.partition(MARKER)[2].rstrip() or ""),
    ]
    return "\n\n".join(parts) + "\n"
