"""Curves over logarithmic axes, as an SVG."""

import math
from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 210, 40, 60
COLOURS = ("#3366cc", "#dc3912", "#109618", "#ff9900", "#990099", "#0099c6")

Curve = Sequence[tuple[float, float]]


def plot(title: str, across: str, up: str, curves: Mapping[str, Curve]) -> str:
    """Draw the curves as an SVG. All values must be positive."""
    points = [point for curve in curves.values() for point in curve]
    columns, rows = _decades(x for x, _ in points), _decades(y for _, y in points)

    def place(x: float, y: float) -> str:
        across = LEFT + (math.log10(x) - columns[0]) / (columns[-1] - columns[0]) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - (math.log10(y) - rows[0]) / (rows[-1] - rows[0]) * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f},{down:.1f}"

    lines = [_text(LEFT, 24, title, size=16), _text(LEFT, HEIGHT - 12, across), _text(8, TOP - 4, up)]
    for column in columns:
        x, y = place(10**column, 10 ** rows[0]).split(",")
        lines += [_line(f"M{x},{TOP}V{y}", "#8884"), _text(float(x) - 14, HEIGHT - BOTTOM + 20, f"{10**column:,.0f}")]
    for row in rows:
        x, y = place(10 ** columns[0], 10**row).split(",")
        lines += [_line(f"M{x},{y}H{WIDTH - RIGHT}", "#8884"), _text(8, float(y) + 4, f"{10.0**row:g}")]
    ends: list[float] = []
    for (name, curve), colour in zip(curves.items(), COLOURS, strict=False):
        lines.append(_line("M" + " L".join(place(*point) for point in curve), colour, width=2.5))
        end = float(place(*curve[-1]).split(",")[1]) + 4
        while any(abs(end - other) < 15 for other in ends):
            end += 3  # keeps labels apart
        ends.append(end)
        lines.append(_text(WIDTH - RIGHT + 8, end, name, colour=colour))
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{ground}{"".join(lines)}</svg>\n'


def _decades(values: Iterable[float]) -> list[int]:
    numbers = list(values)
    return list(range(math.floor(math.log10(min(numbers))), math.ceil(math.log10(max(numbers))) + 1))


def _line(path: str, colour: str, width: float = 1) -> str:
    return f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>\n'


def _text(x: float, y: float, text: str, *, size: int = 12, colour: str = "#333") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}">{escape(text)}</text>\n'
