"""The stylesheet of the dashboard has sections."""

from pathlib import Path

STYLES = Path(__file__).parents[4] / "gateway" / "dashboard" / "static" / "dashboard.css"


def test_every_section_closes_its_rules() -> None:
    text = STYLES.read_text(encoding="utf-8")
    sections = text.split("\n/* ")
    assert len(sections) > 4
    assert [part.splitlines()[0] for part in sections if part.count("{") != part.count("}")] == []
