"""The messages of problems in the language of a page.

The catalogues in `texts` have a message for a reason or a code, in the context `error`. Its placeholders are the
`params` of the problem. A problem without a message is shown with its English `detail`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress

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
UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def localized(problem: Problem, language: str) -> str:
    """The message of a problem. The message of an invalid field begins with the field's name."""
    params = problem.params
    for code, field in ((params.get("reason", ""), params.get("field")), (problem.code, None)):
        message = translations(language).pgettext("error", code)
        if message != code:
            with suppress(KeyError):  # A service of another release sends other params.
                text = message % params
                return f"{field}: {text}" if field else text
    return localized_sentence(problem.detail, language)


def localized_sentence(sentence: str, language: str) -> str:
    """One of `winget_refusals`, which are sentences without a code; unchanged if it has no translation."""
    texts = translations(language)
    if uid := UID.search(sentence):
        return texts.pgettext("winget", UID.sub("%(uid)s", sentence)).replace("%(uid)s", uid[0])
    field, colon, message = sentence.partition(": ")
    return field + colon + texts.pgettext("winget", message) if message else texts.pgettext("winget", sentence)


def localized_refusal(sentence: str, language: str) -> str:
    """One of `winget_refusals` with the label of the field instead of its name in the interface."""
    field, colon, _message = sentence.partition(": ")
    label = LABELS.get(field)
    text = localized_sentence(sentence, language)
    return f"{translations(language).gettext(label)} {text.removeprefix(field + colon)}" if colon and label else text


def localized_identity(identity: Mapping[str, str], language: str) -> str:
    """One of `shared_identities` as a sentence."""
    texts, label = translations(language), LABELS[identity["field"]]
    return texts.gettext(SHARED) % {"field": texts.gettext(label), "package": identity["package_id"]}
