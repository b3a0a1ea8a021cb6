"""The logo of a package as a winget icon with a signed URL."""

from catalog_service.model.manifest import Icon
from catalog_service.winget.manifest import icon_url, with_logo_icon
from tests.support.factories import KEYS, make_caller
from tests.support.samples.winget_factories import make_entry
from tests.support.services.catalog import picture
from tests.support.tables import each

OWN = Icon(icon_url="https://acme.example/icon.ico", icon_file_type="ico", icon_sha256="ab" * 32)


@each(
    ("size", "resolution"),
    [((16, 16), "16x16"), ((256, 256), "256x256"), ((64, 32), "custom"), ((65, 65), "custom"), ((1, 1), "custom")],
)
def test_resolution_is_the_winget_name_of_the_size(size: tuple[int, int], resolution: str) -> None:
    entry = with_logo_icon(make_entry(logo=picture(size=size)), "https://acme.example/logo.png")

    (icon,) = entry.package.manifest.icons

    assert icon.icon_resolution == resolution


def test_logo_follows_the_icons_of_the_package() -> None:
    entry = with_logo_icon(make_entry(logo=picture(), icons=(OWN,)), "https://acme.example/logo.png")

    assert [icon.icon_url for icon in entry.package.manifest.icons] == [OWN.icon_url, "https://acme.example/logo.png"]


@each("package_id", ["Acme.Editor", "Acme.Éditeur", "Acme.100%", "Acme.a&b=c#d"])
def test_url_has_the_package_id_as_one_segment(package_id: str) -> None:
    address = icon_url(make_caller(), KEYS, package_id=package_id, logo=b"logo", expires=1)

    assert address.startswith(f"{make_caller().base_url.rpartition('/')[0]}/")
    assert address.partition("?")[0].count("/") == make_caller().base_url.count("/") + 3
