"""Problems in the words of a page's language, by their codes; where a code says too little, in the interface's own."""

from collections.abc import Mapping

from common.errors import Problem
from gateway.dashboard.languages import translations


def _(text: str) -> str:
    """Mark a text for the catalogues; it is looked up when it is told."""
    return text


TEXTS: Mapping[str, str] = {
    "client_exists": _("A client of this name is there already."),
    "client_limit_exceeded": _("There are as many clients as this tenant may have."),
    "dependency_unavailable": _("Something that is needed does not answer; try again soon."),
    "not_authenticated": _("Your session has ended. Sign in again."),
    "overloaded": _("Too much is asked at once; try again soon."),
    "package_exists": _("A package with this id is there already."),
    "storage_exceeded": _("There is not enough storage left for this file."),
    "version_exists": _("This version is there already."),
}


def in_words(problem: Problem, language: str) -> str:
    """What a person is told."""
    text = TEXTS.get(problem.code)
    return translations(language).gettext(text) if text else problem.detail
