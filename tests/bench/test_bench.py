"""The benchmark runs to its end and writes its page. The figures of a run this small mean nothing."""

from pathlib import Path
from typing import cast

import pytest

from tests.bench.__main__ import PARTS, bench, run_parts, write
from tests.bench.report import MARKER, PartResult
from tests.bench.scale import TINY, Run

LINES = (
    "`test`",
    "`test`, API token",
    "`client_version`, client token",
    "`get_packages`, known (304)",
    "`get_package_versions`",
    "`login`",
    "p99 of `client_version` beside two catalog pollers",
    "p99 of `test` while 4 clients log in",
    "up, 8 MiB chunks",
    "up, 1 MiB chunks",
    "up, one call",
    "… mongod",
    "a chunk of 1 MiB, beyond the bytes",
    "down, from upload_service",
    "down, through the gateway",
    "`get_packages`, 20, ",
    "winget: a manifest that was asked for just now",
    "winget: search of 20, 11 hits",
    "winget: upgrade of 200 programs, each search",
    "… of machines with the same programs",
    "winget: dearest search of 20",
    "five rings: `get_packages`",
    "five rings: search of a text",
    "S3: down, from upload_service",
    "S3: down, through the gateway",
    "S3: the move of an upload",
    "fleet: 667 searches a second, p99",
    "fleet over TLS, `pkgrepo up --tls`: a search",
    "… p99 at 667 searches a second",
    "… 6 machines behind one address",
    "a bare TLS hello, RSA 2048",
)
SECTIONS = (
    "Requests",
    "Tails",
    "Transfers",
    "Catalogs",
    "winget",
    "Rings",
    "A fleet",
    "A fleet over TLS",
    "A crowd of uploads",
    "A refused sign-in",
    "Object storage",
)


@pytest.mark.full
async def test_every_part_finishes_and_is_on_the_page(tmp_path: Path) -> None:
    result = await bench(TINY, list(PARTS), print)
    assert result.failures == []
    write(tmp_path / "RESULTS.md", ["made by a test"], result)
    page = (tmp_path / "RESULTS.md").read_text(encoding="utf-8")
    for title in LINES:
        assert f"\n| {title}" in page
    for heading in SECTIONS:
        assert f"\n## {heading}\n" in page


async def test_a_failed_part_is_reported_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(_: Run) -> PartResult:
        raise ConnectionError("the server is gone")

    async def succeed(_: Run) -> PartResult:
        return PartResult(costs={"a cost": 1.0})

    monkeypatch.setattr("tests.bench.__main__.PARTS", {"one": failing, "other": succeed})
    both = await run_parts(cast("Run", None), ["one", "other"], lambda _: None)
    assert both.failures == ["one: ConnectionError('the server is gone')"]
    assert both.costs == {"a cost": 1.0}


def test_text_below_the_marker_is_kept(tmp_path: Path) -> None:
    results = tmp_path / "RESULTS.md"
    write(results, ["the first"], PartResult())
    with results.open("a", encoding="utf-8") as file:
        file.write("\nWhat paid and what did not.\n")
    write(results, ["the second"], PartResult())
    assert results.read_text(encoding="utf-8").partition(MARKER)[2] == "\n\nWhat paid and what did not.\n"
    assert "- the second\n" in results.read_text(encoding="utf-8")
