"""What the operator's command refuses before it does anything."""

import re

import pytest
from typer.testing import CliRunner

from deploy.cli import app


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
