"""The serious accessibility findings of axe on a page."""

from pathlib import Path

from playwright.async_api import Page

AXE = Path(__file__).parents[2] / "browser" / "vendor" / "axe-core" / "axe.min.js"
SOURCE = AXE.read_text(encoding="utf-8")
SEVERE = {"serious", "critical"}


async def severe_findings(page: Page) -> list[str]:
    """The serious and critical findings on a page."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(SOURCE)
    results = await page.evaluate("options => axe.run(options)", {"resultTypes": ["violations"]})
    return [
        f"{finding['id']}: {node['html']} {node['failureSummary']}"
        for finding in results["violations"]
        if finding["impact"] in SEVERE
        for node in finding["nodes"]
    ]
