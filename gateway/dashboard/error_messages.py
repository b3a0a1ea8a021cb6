"""The codes of services as messages in the language of a page.

The catalogues in `texts` have a message for a code, in the context `error`. Its placeholders are the `params` beside
the code. A code without a message is shown with the English text of its service.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from common.errors import Problem
from gateway.dashboard.languages import _, translations

# The labels of the fields that winget may refuse or confuse.
LABELS = {
    "package_id": _("Package id"),
    "package_version": _("Version"),
    "package_name": _("Name"),
    "productcode": _("Product code"),
    "upgradecode": _("Upgrade code"),
    "package_family_name": _("Package family name"),
    "file_type_nested": _("Nested type"),
    "file_nested_path": _("Path inside the archive"),
}
SHARED = _("%(field)s: the package %(package)s has the same. winget may offer one to machines that have the other.")


def localized(problem: Problem, language: str) -> str:
    """The message of a problem. The message of an invalid field begins with the field's name."""
    params, field = problem.params, problem.params.get("field")
    if message := _message(params.get("reason", ""), params, language):
        return f"{field}: {message}" if field else message
    return _message(problem.code, params, language) or problem.detail


def localized_reason(state: Mapping[str, Any], language: str) -> str:
    """The `reason` of a gate, a release or an event of its history."""
    messages = [_message(code, state["params"], language) for code in state["codes"]]
    return " ".join(messages) if all(messages) and messages else state["reason"]


def localized_refusal(refusal: Mapping[str, Any], language: str) -> str:
    """One of `winget_refusals`, with the label of its field."""
    field, message = refusal["field"], _message(refusal["code"], refusal, language) or refusal["reason"]
    label = translations(language).gettext(LABELS[field]) if field in LABELS else field and f"{field}:"
    return f"{label} {message}".lstrip()


def localized_identity(identity: Mapping[str, str], language: str) -> str:
    """One of `shared_identities` as a sentence."""
    texts, label = translations(language), LABELS[identity["field"]]
    return texts.gettext(SHARED) % {"field": texts.gettext(label), "package": identity["package_id"]}


def _message(code: str, params: Mapping[str, str], language: str) -> str:
    """The message of a code, "" if there is none."""
    message = translations(language).pgettext("error", code)
    with suppress(KeyError):  # A service of another release sends other params.
        return message % params if message != code else ""
    return ""
