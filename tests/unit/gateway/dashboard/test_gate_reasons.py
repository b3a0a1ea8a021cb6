"""The reasons of gates in German."""

import ast
from collections.abc import Iterator
from pathlib import Path

from catalog_service.releases import gates
from gateway.dashboard.gate_reasons import SENTENCES, localized_gate, waits_for_approval
from gateway.dashboard.languages import translations
from tests.support.releases import make_gate
from tests.support.tables import each

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)
# The values in the sentences of `gates` that are no names, numbers or texts.
PARTS = {"finding": "", "cause": "", "ring": "published", "signature.state": "invalid", "'s' * (days != 1)": "s"}


def reasons() -> Iterator[str]:
    """The reasons in the source of the gates, with a 1 for each value."""
    tree = ast.parse(Path(gates.__file__).read_text(encoding="utf-8"))
    docstrings = {
        (ast.get_docstring(node, clean=False) or "").strip() for node in ast.walk(tree) if isinstance(node, DOCUMENTED)
    }
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(map(text_of, parts)).strip()
        is_part = isinstance(node, ast.Constant) and not str(node.value)[:1].isupper()
        if text.endswith(".") and " " in text and text not in docstrings and not is_part:
            yield text


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.FormattedValue):
        text = PARTS.get(ast.unparse(node.value), "1")
        return repr(text) if node.conversion == ord("r") else text
    return ""


def test_every_reason_of_a_gate_is_translated() -> None:
    texts = set(reasons())
    assert len(texts) > 15
    assert sorted(text for text in texts if localized_gate(text, "de") == text) == []


def test_every_sentence_has_a_german_one() -> None:
    german = translations("de")
    assert [sentence for sentence in SENTENCES if german.pgettext("gate", sentence) == sentence] == []


@each(
    ("reason", "german"),
    [
        ("It has 1 of 2 approvals.", "1 von 2 Genehmigungen liegen vor."),
        (
            "The file is too large for the scanner. It has 0 of 1 approvals.",
            "Die Datei ist zu groß für die Virenprüfung. 0 von 1 Genehmigungen liegen vor.",
        ),
        (
            "The scanner calls the file infected (Eicar (test)).",
            "Die Virenprüfung meldet die Datei als infiziert. (Eicar (test))",
        ),
        (
            "The signer is CN=It has 9 of 9 approvals., O=A; the version before was signed by CN=%s.",
            "Unterzeichner ist CN=It has 9 of 9 approvals., O=A; die Version davor hat CN=%s unterzeichnet.",
        ),
        ("scan failed: The file is not scanned yet.", "Virenprüfung gescheitert: Die Datei ist noch nicht geprüft."),
        ("A sentence of a later release (%(x)s).", "A sentence of a later release (%(x)s)."),
        ("", ""),
    ],
)
def test_a_reason_is_translated_sentence_by_sentence(reason: str, german: str) -> None:
    assert localized_gate(reason, "de") == german
    assert localized_gate(reason, "en").removesuffix(" (Eicar (test))") in {
        reason,
        "The scanner calls the file infected.",
    }


@each(
    ("gate", "waits"),
    [
        (make_gate("approval", reason="It has 0 of 1 approvals."), True),
        (make_gate("approval", "passed", "It has 1 of 1 approvals."), False),
        (make_gate("scan", reason="The file is too large for the scanner. It has 0 of 1 approvals."), True),
        (make_gate("scan", reason="The file is not scanned yet."), False),
        (make_gate("signature", "failed", "The signer is CN=It has 1 of 2 approvals., and not CN=B."), False),
    ],
)
def test_a_gate_tells_whether_it_waits_for_approval(gate: dict[str, str], waits: bool) -> None:
    assert waits_for_approval(gate) == waits
