"""The install command on the page of a package."""

import re

from gateway.dashboard.pages.package import install_command
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


def read_by_powershell(word: str) -> str:
    """The value of a word between double quotes, as PowerShell takes it. Raises ValueError where more is meant."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", word):
        return word
    value, at = [], 1
    while word[at] not in '"\u201c\u201d\u201e':
        if word[at] == "$":
            raise ValueError("a value is put in")
        if word[at] == "`":
            at += 1
            if word[at] in "0abefnrtuv":
                raise ValueError("another character is meant")
        value.append(word[at])
        at += 1
    if word[0] != '"' or at != len(word) - 1:
        raise ValueError("something stands outside of the quotes")
    return "".join(value)


@each("package_id", IDS)
def test_powershell_reads_an_id_unchanged_and_runs_no_part_of_it(package_id: str) -> None:
    command = install_command(package_id, "acme")
    word = command.removeprefix("winget install --id ").removesuffix(" --source acme")
    assert read_by_powershell(word) == package_id


def test_a_plain_id_is_not_quoted() -> None:
    assert install_command("Acme.Anvil", "acme") == "winget install --id Acme.Anvil --source acme"
    assert install_command("Acme Anvil", "acme") == 'winget install --id "Acme Anvil" --source acme'
