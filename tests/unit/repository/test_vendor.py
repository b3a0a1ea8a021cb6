"""Vendored files are unchanged, and the pages need nothing from another origin."""

import hashlib
import re
from pathlib import Path

from tests.support.tables import each

GATEWAY = Path(__file__).parents[3] / "gateway"
VENDOR = GATEWAY / "vendor"
FOLDERS = [GATEWAY / "dashboard" / name for name in ("templates", "static")]
PAGES = sorted(path for folder in FOLDERS for path in folder.iterdir() if path.suffix in {".html", ".js", ".css"})
OURS = {"CHECKSUMS", "README.md"}

# A URL with a host that a browser would load: `https://…`, or `//…` after a quote or a bracket. Templates have URLs
# in their texts, too; there, browsers load only the URLs in attributes.
OFF_ORIGIN = re.compile(r"""\b(?:https?|wss?|ftp):|["'(]\s*//|@import""", re.IGNORECASE)
FOLLOWED = re.compile(r"""\b(?:src|href|action|content|srcset|hx-\w+)\s*=\s*["'][^"']*""", re.IGNORECASE)
REFERENCE = re.compile(r"""(?:src|href)="([^"]*)\"""")


def checksums() -> dict[str, str]:
    """The SHA-256 of every vendored file, by its path in the vendor folder."""
    lines = (VENDOR / "CHECKSUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def test_vendored_files_match_their_checksums() -> None:
    checksums_found = {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in checksums()}
    assert checksums_found == checksums()


def test_nothing_in_vendor_is_unlisted() -> None:
    files = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.is_file()}
    assert files - OURS == set(checksums())


def test_no_source_map_is_vendored() -> None:
    assert not [name for name in checksums() if name.endswith(".map")]


@each("page", PAGES, ids=lambda page: page.name)
def test_pages_load_nothing_from_another_origin(page: Path) -> None:
    text = page.read_text()
    followed = "\n".join(FOLLOWED.findall(text)) if page.parent.name == "templates" else text
    assert OFF_ORIGIN.findall(followed) == []


@each("page", [page for page in PAGES if page.suffix == ".html"], ids=lambda page: page.name)
def test_every_asset_of_a_page_exists(page: Path) -> None:
    assets = {*PAGES, *(VENDOR / "swagger-ui").iterdir()}
    required = [address for address in REFERENCE.findall(page.read_text()) if "docs/assets/" in address]
    assert {address.removeprefix("docs/assets/") for address in required} <= {asset.name for asset in assets}


@each("page", [page for page in PAGES if page.suffix == ".html"], ids=lambda page: page.name)
def test_pages_have_no_inline_script_or_style(page: Path) -> None:
    assert re.findall(r"<style|<script>|\s(?:style|on[a-z]+)=", page.read_text()) == []


def test_swagger_ui_uses_no_online_validator() -> None:
    assert "validatorUrl: null" in (GATEWAY / "dashboard" / "static" / "docs.js").read_text()
