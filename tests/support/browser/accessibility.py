"""The findings of axe about a page, and of its layout on a phone."""

from pathlib import Path
from typing import Literal

from playwright.async_api import Page

AXE = Path(__file__).parents[2] / "browser" / "vendor" / "axe-core" / "axe.min.js"
SOURCE = AXE.read_text(encoding="utf-8")
SEVERE = {"serious", "critical"}
CONTRAST = "color-contrast"
COLOURS: tuple[Literal["light", "dark"], ...] = ("light", "dark")
TABLE = ".table:not([role=region][aria-label][tabindex='0'])"
SIDEWAYS = "The page scrolls sideways."
LAYOUT_PROBLEMS = {
    SIDEWAYS: "document.documentElement.scrollWidth > innerWidth",
    "A table cannot be scrolled with keys.": f'document.querySelector("{TABLE}") !== null',
    "A table is too wide.": "[...document.querySelectorAll('.table')].some(t => t.scrollWidth > t.clientWidth)",
    "The header is higher than 64 pixels.": "document.querySelector('.frame').offsetHeight > 64",
    "The current page has no name in the header.": "!document.querySelector('.frame .here').checkVisibility()",
}


async def severe_findings(page: Page, *rules: str) -> list[str]:
    """The serious and critical findings on a page, of all rules by default."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(SOURCE)
    only = {"runOnly": rules} if rules else {}
    results = await page.evaluate("options => axe.run(options)", {"resultTypes": ["violations"], **only})
    return [
        f"{finding['id']}: {node['html']} {node['failureSummary']}"
        for finding in results["violations"]
        if finding["impact"] in SEVERE
        for node in finding["nodes"]
    ]


async def findings_at(page: Page, width: int) -> list[str]:
    """The severe findings at another width, and whether the page scrolls sideways."""
    await page.set_viewport_size({"width": width, "height": 900})
    sideways = [SIDEWAYS] if await page.evaluate(LAYOUT_PROBLEMS[SIDEWAYS]) else []
    return [f"{width} px: {finding}" for finding in [*sideways, *await severe_findings(page)]]


async def layout_findings(page: Page) -> list[str]:
    """The problems of a page on a phone that axe does not find."""
    return [problem for problem, expression in LAYOUT_PROBLEMS.items() if await page.evaluate(expression)]
