"""Previews through the gateway: they answer an effect, change nothing, and are no writes."""

from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.releases import set_policy
from tests.support.system.services import Services


async def test_a_preview_changes_nothing_and_is_not_in_the_audit_log(services: Services) -> None:
    api = await services.tenant()
    await set_policy(api, "pilot,everyone")
    await add_package(api, name := package_id())
    version = await publish(api, name, "1.0")
    before = (await api.call("GET", "server_information")).body["settings"]
    form = {"rings": "", "client_authentication": "true", "preview": "true"}
    settings = await api.call("PATCH", "edit_settings", data=form)
    assert (settings.status, settings.body["Message"]) == (200, "Nothing was changed.")
    assert [(row["uid"], row["rings"]) for row in settings.body["effect"]["offered"]] == [(version.uid, ["everyone"])]
    promoted = await api.call("POST", "promote_version", version.uid, data={"ring": "everyone", "preview": "true"})
    assert promoted.body["offered"] == {"pilot": "1.0", "everyone": "1.0"}
    assert (await api.call("GET", "server_information")).body["settings"] == before
    operations = [entry["operation"] for entry in (await api.call("GET", "get_audit_log")).body]
    assert "promote_version" not in operations
    assert operations.count("edit_settings") == 1


async def test_a_preview_of_a_wrong_form_is_refused(services: Services) -> None:
    api = await services.tenant()
    answer = await api.call("PATCH", "edit_settings", data={"gates": "[", "preview": "true"})
    assert (answer.status, answer.body["code"]) == (400, "invalid_field")
