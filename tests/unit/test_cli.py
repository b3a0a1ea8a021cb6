"""What the operator's command refuses before it does anything."""

import re
from errno import EACCES
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from deploy.cli import app, main


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("tenant", "create", "acme", "--max-clients", str(2**31)), "--max-clients"),
        (("tenant", "create", "acme", "--storage-quota", str(2**63)), "--storage-quota"),
        (("tenant", "edit", "acme", "--max-clients", str(2**31)), "--max-clients"),
        (("tenant", "edit", "acme", "--storage-quota", str(2**63)), "--storage-quota"),
        (("tenant", "edit", "acme", "--storage-quota", "9" * 5000), "--storage-quota"),
        (("tenant", "edit", "acme", "--max-clients", "many"), "--max-clients"),
        (("up", "--port", "65536"), "--port"),
    ],
)
def test_a_number_too_large_to_keep_is_refused(arguments: tuple[str, ...], option: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert option in re.sub(r"\x1b\[[0-9;]*m", "", result.output)


@patch("deploy.cli.configure_logs")
@patch("deploy.cli.app", side_effect=PermissionError(EACCES, "Permission denied", "/backups/lock"))
def test_a_file_that_cannot_be_used_is_named(*_: object) -> None:
    with pytest.raises(SystemExit, match="pkgrepo: /backups/lock: Permission denied"):
        main()
