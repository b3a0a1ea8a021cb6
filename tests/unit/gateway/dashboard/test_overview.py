"""The chart and the words of the overview."""

from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from gateway.dashboard.pages.overview import CHART_HEIGHT, chart_bars
from gateway.dashboard.templating import set_up_templates
from gateway.operations import OPERATIONS

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def test_the_chart_ends_today_and_has_30_days() -> None:
    bars = chart_bars({}, NOW)
    assert (len(bars), bars[0].day, bars[-1].day) == (30, "2026-10-24", "2026-11-22")
    assert {bar.height for bar in bars} == {0}


def test_the_highest_bar_fills_the_chart() -> None:
    bars = chart_bars({"2026-11-21": 4, "2026-11-22": 1, "2025-01-01": 9}, NOW)
    assert [(bar.y, bar.height) for bar in bars[-2:]] == [(0, CHART_HEIGHT), (75, 25)]


def test_every_audited_operation_has_words() -> None:
    shared = set_up_templates(web.Application()).get_template("administration.html")
    words: Any = shared.make_module({"language": "en"})
    assert {row.name for row in OPERATIONS if row.audited} <= words.action_names.keys()
