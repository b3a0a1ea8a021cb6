"""The reasons of gates in German."""

from gateway.dashboard.gate_reasons import SENTENCES, localized_gate, waits_for_approval
from gateway.dashboard.languages import translations
from tests.support.releases import make_gate
from tests.support.tables import each


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
