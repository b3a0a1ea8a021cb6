"""Problems in the words of a page's language, by their codes; where a code says too little, by what was said."""

from collections.abc import Mapping

from common.errors import Problem
from gateway.dashboard.languages import _, translations
from gateway.dashboard.reasons import reason_in

TEXTS: Mapping[str, str] = {
    "bad_credentials": _("The username or the password is wrong."),
    "client_exists": _("A client of this name is there already."),
    "client_limit_exceeded": _("There are as many clients as this tenant may have."),
    "dependency_unavailable": _("Something that is needed does not answer; try again soon."),
    "foreign_form": _("The form was sent by a page of another site; sign in here."),
    "group_exists": _("A group of this name is there already."),
    "group_in_use": _("Entries of the blacklist use this group; delete them first."),
    "last_user": _("The last user cannot be deleted; nobody could sign in any more."),
    "not_authenticated": _("Your session has ended. Sign in again."),
    "overloaded": _("Too much is asked at once; try again soon."),
    "package_exists": _("A package with this id is there already."),
    "shuts_out_caller": _("These networks would shut you out: your own address is not among them."),
    "storage_exceeded": _("There is not enough storage left for this file."),
    "user_exists": _("A user of this name is there already."),
    "version_exists": _("This version is there already."),
}


def in_words(problem: Problem, language: str) -> str:
    """What a person is told."""
    text = TEXTS.get(problem.code)
    return translations(language).gettext(text) if text else reason_in(language, problem.detail)
