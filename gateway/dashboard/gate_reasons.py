"""Gates and their reasons in the language of a page. catalog_service gives the reasons as English sentences."""

import re
from collections.abc import Mapping

from gateway.dashboard.languages import ENGLISH, _, translations

GATES: Mapping[str, str] = {
    "approval": _("Approval"),
    "age": _("Age"),
    "scan": _("Scan"),
    "signature": _("Signature"),
}
STATES: Mapping[str, str] = {"passed": _("passed"), "waiting": _("waits"), "failed": _("failed")}
# The verdicts of upload_service about a file. Without a scanner, a scan is `off`.
SCANS: Mapping[str, str] = {
    "pending": _("not checked yet"),
    "clean": _("clean"),
    "infected": _("infected"),
    "too_large": _("too large to check"),
    "failed": _("the check failed"),
    "off": _("not checked"),
}
SIGNATURES: Mapping[str, str] = {
    "pending": _("not checked yet"),
    "valid": _("valid"),
    "unsigned": _("not signed"),
    "invalid": _("invalid"),
    "untrusted": _("not trusted"),
    "expired": _("expired"),
    "unsupported": _("not checked"),
}
# The German of these is in the context `gate` of the catalogue.
SENTENCES = (
    "It has %(count)s of %(needed)s approvals.",
    "It has not entered the ring '%(ring)s' yet.",
    "It must have been in the ring '%(ring)s' for %(days)s day.",
    "It must have been in the ring '%(ring)s' for %(days)s days.",
    "It must have been published for %(days)s day.",
    "It must have been published for %(days)s days.",
    "This gate is looked at in a moment.",
    "The version is paused.",
    "The database's clock went back.",
    "An external installer cannot be scanned.",
    "There is no verdict for this file yet.",
    "The scanner calls the file clean.",
    "The scanner calls the file infected.",
    "The file is too large for the scanner.",
    "No scanner is configured.",
    "The scan failed; it is tried again.",
    "The file is not scanned yet.",
    "The signature of an external installer cannot be verified.",
    "The signature is not verified yet.",
    "The signature is unsigned.",
    "The signature is invalid.",
    "The signature is untrusted.",
    "The signature is expired.",
    "The signature is unsupported.",
    "The signer is %(signer)s, and not %(publisher)s.",
    "The signer is %(signer)s; the version before was signed by %(previous)s.",
    "The signer is %(signer)s; the signer of the version before is not known.",
    "The file is signed by %(signer)s.",
)
_APPROVALS = re.compile(r"(?:(.*) )?(It has [0-9]+ of [0-9]+ approvals\.)", re.DOTALL)
_CAUSE = re.compile(r" \((.*)\)(?=[.;])", re.DOTALL)
_CHANGE = re.compile(rf"({'|'.join(GATES)}) ({'|'.join(STATES)}): (.*)", re.DOTALL)
_PATTERNS = {
    sentence: re.compile(re.sub(r"%\\\((\w+)\\\)s", r"(?P<\1>.*)", re.escape(sentence)), re.DOTALL)
    for sentence in SENTENCES
}


def waits_for_approval(gate: Mapping[str, str]) -> bool:
    """Whether approvals let a gate pass: the gate of approvals, or another one whose finding people may accept."""
    return gate["state"] == "waiting" and _APPROVALS.fullmatch(gate["reason"]) is not None


def localized_gate(reason: str, language: str) -> str:
    """The reason of a gate, or of an event of a release. A sentence without a translation stays English."""
    if language == ENGLISH:
        return reason
    texts = translations(language)
    if change := _CHANGE.fullmatch(reason):
        gate, state, rest = change.groups()
        return f"{texts.gettext(GATES[gate])} {texts.gettext(STATES[state])}: {localized_gate(rest, language)}"
    if (approvals := _APPROVALS.fullmatch(reason)) and approvals[1]:
        return f"{localized_gate(approvals[1], language)} {localized_gate(approvals[2], language)}"
    for sentence, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(reason):
            return texts.pgettext("gate", sentence) % match.groupdict()
    if cause := _CAUSE.search(reason):
        plain = reason[: cause.start()] + reason[cause.end() :]
        translated = localized_gate(plain, language)
        return reason if translated == plain else f"{translated} ({cause[1]})"
    return reason
