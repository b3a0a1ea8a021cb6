"""Files from a browser to versions: sent in chunks, broken off and gone on with, and told of to everyone there."""

import hashlib
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from gateway.dashboard.visits import Visit
from tests.browser.visitors import Visitor
from tests.samples import MACHINE_MSI

CHUNK = 64 << 10


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Visit, "chunk_size", CHUNK)


@pytest.fixture
def installer(tmp_path: Path) -> Path:
    """A file of several chunks, the last of them shorter."""
    path = tmp_path / "editor.exe"
    path.write_bytes(b"".join(number.to_bytes(4) for number in range(5 * CHUNK // 4 + 5)))
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


async def choose(page: Page, *paths: Path) -> None:
    await page.locator("[data-choose]").set_input_files(paths)


async def test_an_installer_becomes_the_first_version_of_a_new_package(visitor: Visitor, tmp_path: Path) -> None:
    installer = tmp_path / "editor.msi"
    installer.write_bytes(MACHINE_MSI)
    page = visitor.page
    await visitor.go("/publish")
    await choose(page, installer)
    await page.get_by_label("Package id").fill("Acme.Editor")
    await page.get_by_label("Package id").press("Tab")
    await expect(page.get_by_role("group", name="This package is new")).to_be_visible()
    await page.get_by_role("button", name="Publish").click()
    await expect(page.get_by_text("The version is published.")).to_be_visible()
    listed = (await visitor.api.call("GET", "get_package_versions", "Acme.Editor")).body
    assert [version["INSTALLER_SHA256"] for version in listed] == [sha256(installer)]
