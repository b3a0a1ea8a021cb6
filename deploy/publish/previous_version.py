"""Values of a new version that come from the newest version of its package."""

from collections.abc import Sequence
from dataclasses import replace

from catalog_service.model.enumerations import Scope
from deploy.publish.client import RetryingClient
from deploy.publish.model import Installer

SAME = ("INSTALLER_TYPE", "INSTALLER_NESTED_TYPE", "CHANNEL")


async def with_previous_values(
    client: RetryingClient, installers: Sequence[Installer], *, scope: bool, switches: bool
) -> list[Installer]:
    """The installers with the scope and the switches, as asked, of the newest version with the same type.

    An existing version counts before a newer one, so that a command that runs again means the same.
    """
    rows, results = await client.versions(installers[0].package_id) or (), []
    for installer in installers:
        same = [row for row in rows if all(row[name] == installer.key[name] for name in SAME)]
        same.sort(key=lambda row, version=installer.version: row["VERSION"] != version)  # type: ignore[misc]
        fields: dict[str, str] = {}
        if same and switches:
            fields = await client.request("GET", "get_version_details", same[0]["UID"])
        more = [(name, value) for name, value in fields.items() if name.startswith("switch_") and value]
        value = Scope(same[0]["INSTALLER_SCOPE"]) if same and scope else installer.scope
        results.append(replace(installer, scope=value, more=(*installer.more, *more)))
    return results
