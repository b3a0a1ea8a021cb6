"""The package's logo as an icon of winget's manifest, at a signed address that needs no token."""

from dataclasses import replace
from hashlib import sha256
from urllib.parse import quote

from catalog_service.catalog.reader import WholeEntry
from catalog_service.model.manifest.package import Icon
from common.auth.downloads import signed_query
from common.auth.internal_tokens import Caller
from common.auth.signing import Keys

# Widths in pixels of square icons that the client has a word for; it calls every other size `custom`.
WIDTHS = frozenset([16, 20, 24, 30, 32, 36, 40, 48, 60, 64, 72, 80, 96, 256])


def with_logo_icon(entry: WholeEntry, url: str) -> WholeEntry:
    """Return the entry with its logo, which must be there, as the last icon of the package's default language."""
    package = entry.package
    width, height = _size(package.logo)
    icon = Icon(
        icon_url=url,
        icon_file_type="png",
        icon_resolution=f"{width}x{height}" if width == height and width in WIDTHS else "custom",
        icon_theme="default",
        icon_sha256=sha256(package.logo).hexdigest().upper(),
    )
    manifest = package.manifest.model_copy(update={"icons": (*package.manifest.icons, icon)})
    return replace(entry, package=replace(package, manifest=manifest))


def icon_url(caller: Caller, keys: Keys, package_id: str, logo: bytes, *, expires: int) -> str:
    """Return the absolute address of a logo, valid until `expires` (seconds since 1970) or until the logo changes."""
    name = file_name(logo)
    query = signed_query(keys, caller.tenant_id, stored_name(package_id), name, expires)
    return f"{caller.base_url}/icon/{quote(package_id, safe='')}/{name}?{query}"


def file_name(logo: bytes) -> str:
    """Return the last part of a logo's address: it changes with the logo."""
    return f"{sha256(logo).hexdigest()}.png"


def stored_name(package_id: str) -> str:
    """Return the text that is signed in place of a stored file's name, which cannot hold a slash."""
    return f"icon/{package_id}"


def _size(png: bytes) -> tuple[int, int]:
    """Width and height in pixels, from the header of a PNG image."""
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
