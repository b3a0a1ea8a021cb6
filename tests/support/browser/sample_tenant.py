"""A tenant with sample data, for screenshots of the pages."""

import io
from collections.abc import Iterable

from aiohttp import FormData
from PIL import Image, ImageDraw, ImageFont

from tests.support.samples.msi_samples import MACHINE_MSI
from tests.support.system.publishing import publish
from tests.support.system.releases import add_user, set_policy
from tests.support.system.services import Api

PACKAGES = (
    (
        "Acme.Anvil",
        "Anvil",
        "Acme",
        "Draws parts and calculates their weight.",
        ("2.4.1", "2.4.0", "2.3.9"),
    ),
    ("Acme.Catapult", "Catapult", "Acme", "Sends large files between sites.", ("7.0.3", "6.9")),
    ("Acme.Magnet", "Magnet", "Acme", "Finds unused files on shared drives.", ("1.12.0",)),
    ("Fabrikat.Lathe", "Lathe", "Fabrikat", "Controls the machines of a workshop.", ("2026.3", "2026.2", "2025.4")),
    ("Fabrikat.Vice", "Vice", "Fabrikat", "Keeps the settings of machines unchanged.", ("3.1",)),
    (
        "Harbour.Beacon",
        "Beacon",
        "Harbour Software",
        "Shows the positions of ships and their loads.",
        ("5.5.0", "5.4.2"),
    ),
    ("Harbour.Ledger", "Ledger", "Harbour Software", "Records loaded and unloaded goods.", ("11.0",)),
    ("Nordlicht.Editor", "Nordlicht Editor", "Nordlicht", "Edits texts for printing.", ("4.2.0", "4.1.8", "4.1.7")),
    ("Nordlicht.Fonts", "Nordlicht Fonts", "Nordlicht", "Fonts for printed documents.", ("1.0",)),
    ("Tower.Agent", "Tower Agent", "Tower", "Reports the state of machines to the control room.", ("9.8.1",)),
)
COLOURS = ("#0b6e4f", "#8a3ffc", "#b35900", "#0f62fe", "#9f1853", "#00677d", "#6f4e37", "#4a5568", "#a2191f", "#2d6a4f")
CLIENTS = ("pc-0117", "pc-0118", "laptop-anna", "laptop-bela", "kiosk-lobby", "workshop-1", "workshop-2")


async def fill_tenant(api: Api) -> None:
    """Add packages, clients, users and blacklist entries to a tenant."""
    for number, (package_id, name, publisher, description, versions) in enumerate(PACKAGES):
        form = FormData(
            {
                "package_id": package_id,
                "package_name": name,
                "package_publisher": publisher,
                "package_description": description,
            }
        )
        form.add_field(
            "Logo", io.BytesIO(logo(name[0], COLOURS[number])), filename="logo.png", content_type="image/png"
        )
        assert (await api.call("POST", "add_package", data=form)).status == 200
        for version in versions:
            await publish(api, package_id, version, content=MACHINE_MSI, file_type="MSI")
    await _add_releases(api)
    await api.call("PATCH", "set_package_active", "Nordlicht.Fonts", data={"package_active": "0"})
    added = [(await api.call("POST", "add_client", data={"client_name": name})).body for name in CLIENTS]
    for client in added[:5]:
        identity = {"auth_token": client["auth_token"], "client": "1"}
        assert (await api.anonymous().call("POST", "client_version", data=identity)).status == 200
    await api.call("PATCH", "edit_client", added[-1]["client_id"], data={"enabled": "0"})
    for username in ("anna", "bela"):
        await api.call("POST", "add_user", data={"username": username, "password": "a password of a user"})
    await create(api, "add_blacklist_group", [{"name": "Workshop only", "package_ids": "Fabrikat.Lathe,Fabrikat.Vice"}])
    (group,) = (await api.call("GET", "get_blacklist_groups")).body
    await create(
        api,
        "add_blacklist_entry",
        [
            {"client_id": added[4]["client_id"], "group": group["group_id"]},
            {"network": "10.20.0.0/16", "package_ids": "Tower.Agent"},
        ],
    )


async def _add_releases(api: Api) -> None:
    """Set three rings, and publish versions that wait, that can be promoted and that are held."""
    gates = {"broad": {"approvals": 1}, "everyone": {"approvals": 2, "age_days": 7}}
    carla = await add_user(api, "carla")
    await set_policy(api, "pilot,broad,everyone", gates)
    for package_id, version in (("Acme.Anvil", "2.5.0"), ("Fabrikat.Vice", "3.2"), ("Tower.Agent", "9.9.0")):
        published = await publish(api, package_id, version, content=MACHINE_MSI, file_type="MSI")
        if package_id != "Acme.Anvil":
            assert (await carla.call("POST", "approve_version", published.uid)).status == 200
    assert (await api.call("POST", "hold_version", published.uid, data={"reason": "It loses reports."})).status == 200


async def create(api: Api, operation: str, forms: Iterable[dict[str, str]]) -> None:
    for form in forms:
        answer = await api.call("POST", operation, data=form)
        assert answer.status == 201, answer.body


def logo(letter: str, colour: str) -> bytes:
    """A logo: a letter on a colour."""
    picture = Image.new("RGB", (128, 128), colour)
    font = ImageFont.load_default(size=80)
    ImageDraw.Draw(picture).text((64, 64), letter, font=font, fill="white", anchor="mm")
    content = io.BytesIO()
    picture.save(content, "PNG")
    return content.getvalue()
