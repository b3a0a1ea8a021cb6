"""The choice between a page and JSON by the Accept header."""

from gateway.dashboard.routes import prefers_html
from tests.support.tables import each

BROWSERS = [
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "text/html",
    "TEXT/HTML; q=0.9, */*;q=0.8",
    "application/json;q=0.5, text/html;q=0.6",
]
PROGRAMS = [
    "",
    "*/*",
    "application/json",
    "application/json, text/plain, */*",
    "text/html, */*",
    "text/html, application/json",
    "text/html;q=0.4, application/*;q=0.5",
    "text/html;q=0, text/plain",
    "text/html;q=none",
    "text/htmlx",
    "text/*",
    ",;,q=1",
]


@each(("accept", "is_browser"), [*((text, True) for text in BROWSERS), *((text, False) for text in PROGRAMS)])
def test_only_a_browser_prefers_a_page(accept: str, is_browser: bool) -> None:
    assert prefers_html(accept) is is_browser
