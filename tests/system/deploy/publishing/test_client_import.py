"""`pkgrepo client import`: its output, its exit status, and the server's refusals."""

import json
from pathlib import Path

from tests.support.processes.publish_command import run_publish
from tests.support.system.services import Api


async def test_a_list_of_clients_is_imported_and_their_tokens_are_printed(tenant: Api, tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    path.write_text("client_name;enabled\npc-1;1\npc-2;0\n", encoding="utf-8-sig")

    first = await run_publish(tenant, "import", str(path), command="client")
    again = await run_publish(tenant, "import", str(path), command="client")
    path.write_text("client_name\npc-1\npc-3\n")
    skipping = await run_publish(tenant, "import", str(path), "--skip-existing", "--json", command="client")

    header, *rows = first.output.splitlines()
    assert header == "client_name,client_id,auth_token,source_url"
    clients = {each["client_name"]: each for each in (await tenant.call("GET", "get_clients")).body}
    assert {row.split(",")[0]: row.split(",")[1] for row in rows} == {
        name: clients[name]["client_id"] for name in ("pc-1", "pc-2")
    }
    assert (again.status, again.output) == (1, "")
    assert "A client of this name exists: line 2, 3." in again.log
    imported = json.loads(skipping.output)
    assert (skipping.status, imported["skipped"]) == (0, 1)
    assert [client["client_name"] for client in imported["clients"]] == ["pc-3"]
