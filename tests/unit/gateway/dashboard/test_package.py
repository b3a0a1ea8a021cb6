"""The install command on the page of a package."""

import re

from gateway.dashboard.pages.packages import install_command
from tests.support.tables import each

IDS = [
    "Acme.Anvil",
    "Acme.Anvil & Söhne",
    "it's;calc",
    "$(calc)",
    "$env:USERNAME",
    "`n",
    "a`",
    "``$$",
    "(calc)",
    "a|calc",
    "{calc}",
    "@calc",
    "#a",
    "--%",
    "-a.b",
    "\u201d;calc;\u201c",
    "\u201e$a\u201e",
    "\u2018;calc;\u2019",
]


def read_by_powershell(quoted: str) -> str:
    """The value of a word in double quotes, as PowerShell reads it. Raises ValueError if it contains code."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", quoted):
        return quoted
    value, position = [], 1
    while quoted[position] not in '"\u201c\u201d\u201e':
        if quoted[position] == "$":
            raise ValueError("a value is put in")
        if quoted[position] == "`":
            position += 1
            if quoted[position] in "0abefnrtuv":
                raise ValueError("another character is meant")
        value.append(quoted[position])
        position += 1
    if quoted[0] != '"' or position != len(quoted) - 1:
        raise ValueError("something stands outside of the quotes")
    return "".join(value)


@each("package_id", IDS)
def test_powershell_reads_an_id_unchanged_and_runs_no_part_of_it(package_id: str) -> None:
    command = install_command(package_id, "acme")
    quoted = command.removeprefix("winget install --id ").removesuffix(" --source acme")
    assert read_by_powershell(quoted) == package_id


def test_a_plain_id_is_not_quoted() -> None:
    assert install_command("Acme.Anvil", "acme") == "winget install --id Acme.Anvil --source acme"
    assert install_command("Acme Anvil", "acme") == 'winget install --id "Acme Anvil" --source acme'
