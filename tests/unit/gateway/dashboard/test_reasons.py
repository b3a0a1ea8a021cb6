"""What services say of the fields that the pages' forms have is told in the page's language."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from gateway.dashboard.reasons import REASONS, VALUE, reason_in
from tests.support.tables import each

ROOT = Path(__file__).parents[4]
SERVICES = ("auth_service", "catalog_service", "client_registry", "upload_service", "gateway", "common")
FIELDS = {"InvalidField", "InstallerContradicts", "Contradiction"}  # each made of a field and what is said of it
A_VALUE = "7"
# Said of what no form of the pages has: commands, winget's own requests and manifests, scripts.
ELSEWHERE = (
    "auth_service/audit/chain.py",
    "auth_service/tenants/service.py",
    "catalog_service/winget/",
    "client_registry/releases/service.py",
    "upload_service/forms.py",
)
OF_NO_FORM = {
    "must be from 1 to 7",
    "must be a date or a time in ISO 8601, such as 2026-01-31T09:30:00Z",
    "is required with installer_url: clients hold the file against it",
    "is for installer_url only; that of a stored file is known",
    "must be sent once for each dep_pkg_identifier",
    "is required with dep_pkg_min_version",
    # of an installer that is neither sent nor named nor addressed
    (
        "or server_filename or installer_url is required: the installer, the name that its upload gave, or the "
        "address where it stays"
    ),
    "this list would shut you out: 7 is not on it",  # which has a code of its own
}


@cache
def modules() -> Mapping[str, ast.Module]:
    paths = {str(path.relative_to(ROOT)): path for service in SERVICES for path in (ROOT / service).rglob("*.py")}
    del paths["gateway/dashboard/reasons.py"]
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in paths.items()}


def example(node: ast.AST) -> str | None:
    """What a text of the code may say; None for what is no text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(example(part) or A_VALUE for part in parts)
    return None


def said_of_fields(module: ast.Module) -> Iterator[str]:
    named = {ast.unparse(node.targets[0]): node.value for node in ast.walk(module) if isinstance(node, ast.Assign)}
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[_, reason]) if name in FIELDS:
                pass
            case ast.Call(func=ast.Attribute(attr="__init__"), args=[_, reason]):
                pass
            case _:
                continue
        text = example(named.get(reason.id, reason) if isinstance(reason, ast.Name) else reason)
        if text is not None:
            yield text


def test_every_reason_that_a_form_can_get_is_translated() -> None:
    said = {
        text
        for name, module in modules().items()
        if not name.startswith(ELSEWHERE)
        for text in said_of_fields(module)
        if text not in OF_NO_FORM
    }
    assert len(said) > 30
    assert sorted(text for text in said if reason_in("de", text) == text) == []


def test_every_reason_that_is_translated_is_said_somewhere() -> None:
    said = {text for module in modules().values() for node in ast.walk(module) if (text := example(node))}
    wanted = {VALUE.sub(A_VALUE, template).replace("from 7 to", "from 0 to") for template in REASONS}
    assert sorted(wanted - said) == []


@each(
    ("said", "told"),
    [
        ("channel: is longer than 128 characters", "channel: ist länger als 128 Zeichen"),
        ("file_type: is MSI, but the file is ZIP", "file_type: ist MSI, die Datei aber ZIP"),
        ("file_architect: is x64, but the file is for x86", "file_architect: ist x64, die Datei aber für x86"),
        ("network: 'a: b' is not an IP address, a network (a/n) or a range (a-b)", "network: 'a: b' ist weder"),
        ("There is no package 'A: is required'.", "Das Paket 'A: is required' gibt es nicht."),
        ("There is no package '%(limit)s'.", "Das Paket '%(limit)s' gibt es nicht."),
        ("nobody: says this", "nobody: says this"),
    ],
)
def test_a_reason_keeps_its_field_and_its_values(said: str, told: str) -> None:
    assert reason_in("de", said)[: len(told)] == told
    assert reason_in("en", said) == said
