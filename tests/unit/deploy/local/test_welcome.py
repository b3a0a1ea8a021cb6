"""The lines that `pkgrepo up` prints for Windows machines."""

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from deploy.local.folder import DataFolder
from deploy.local.up import RunningService, print_welcome

URLS = ("https://pkgrepo.test:8090/demo", "https://127.0.0.1:8090/demo")


def welcome(*, is_local: bool) -> str:
    certificates: Any = SimpleNamespace(ca_certificate=b"ca", ca_was_replaced=False)
    service = RunningService("demo", *URLS, None, certificates, is_local)
    output = StringIO()
    print_welcome(Console(file=output, soft_wrap=True), service, DataFolder(Path("/data")))
    return output.getvalue()


def test_loopback_names_the_command_for_other_machines() -> None:
    text = welcome(is_local=True)
    assert "run `pkgrepo up --tls --host 0.0.0.0 --port 8090 --name NAME`" in text
    assert "winget source add" not in text


def test_a_reachable_address_is_in_the_lines_for_windows() -> None:
    text = welcome(is_local=False)
    assert "winget source add --name demo --arg https://pkgrepo.test:8090/demo/winget" in text
    assert "cannot connect" not in text
