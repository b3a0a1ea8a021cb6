"""The dashboard's stylesheet is written in sections, one a subject."""

from pathlib import Path

STYLES = Path(__file__).parents[4] / "gateway" / "dashboard" / "static" / "dashboard.css"


def test_a_section_begins_where_no_rule_of_the_one_before_is_open() -> None:
    text = STYLES.read_text(encoding="utf-8")
    sections = text.split("\n/* ")
    assert len(sections) > 4
    assert [part.splitlines()[0] for part in sections if part.count("{") != part.count("}")] == []
