"""What services say of what they refuse, in the words of a page's language: the one place where it is translated.

Services say it to every caller in English. What stands here are the same texts, with a name for each value in them:
what is said is found again by them. A test holds them against what the services' code says of the fields that the
pages' forms have.
"""

import re
from collections.abc import Sequence
from functools import cache

from gateway.dashboard.languages import _, translations

REASONS: Sequence[str] = (
    # of any field
    _("is required"),
    _("is required; one of %(values)s"),
    _("must be one of %(values)s"),
    _("is longer than %(limit)s characters"),
    _("is longer than %(limit)s bytes"),
    _("holds the character U+%(code)s, which is not allowed"),
    _("holds more than %(most)s items"),
    _("must be a whole number from %(least)s to %(most)s"),
    _("must be 1, 0, true or false"),
    _("must not begin or end with a space"),
    _("must be a list in JSON"),
    # of packages and versions
    _('must not be . or .., hold / \\ : * ? " < > | , or begin or end with a space'),
    _("must be a file"),
    _("has more than %(most)s pixels"),
    _("has more than %(most)s scans"),
    _("takes too much time or memory to decode"),
    _("is not a PNG or JPEG image"),
    _("must be a GUID in braces, such as {01234567-89AB-CDEF-0123-456789ABCDEF}"),
    _("must be a path inside the archive"),
    _("cannot be read as an installer (%(reason)s)"),
    _("is %(given)s, but the file is %(found)s"),
    _("is %(given)s, but the file is no known installer"),
    _("is %(given)s, but the file is for %(found)s"),
    _("is not the file's, which is %(found)s"),
    # of versions that winget is not offered
    _("must be two to eight parts of at most 32 characters, with dots between them"),
    _('must not hold \\ / : * ? " < > |'),
    _("is not for MSIX, APPX and fonts"),
    _("must have names of letters, digits, - and _ only"),
    _("holds more than the one item that a portable program has"),
    _("is not for a version that has allowed_markets"),
    _("holds an exit code twice, or one of installer_success_codes"),
    _("is for portable programs, once for each file_nested_path"),
    _("is required with ZIP, and not ZIP"),
    _("is required with ZIP"),
    _("may be sent once only, but for portable programs and fonts"),
    _("holds a path twice"),
    _("The version %(other)s has an installer that cannot be told from this one."),
    # of clients and the blacklist
    _("must be a host name: letters, digits, - and _ in parts of 1 to 63, at most %(most)s in all"),
    _("no IP address was found for %(name)s"),
    _("is required where no group is given"),
    _("%(text)s is not an IP address, a network (a/n) or a range (a-b)"),
    # of users and settings
    _("must be 1 to %(most)s of A-Z, a-z, 0-9 and . _ @ + -, and neither . nor .."),
    _("must have at least %(least)s characters"),
    _("must have objects with the texts %(names)s"),
    _("has an address that does not begin with https:// or http://"),
    _("has an agreement that says nothing"),
    # of what is not there, or not taken now
    _("There is no package %(package_id)s."),
    _("There is no version with the UID %(uid)s."),
    _("The package has no such version."),
    _("There is no user %(username)s."),
    _("There is no client with this id and token."),
    _("There is no blacklist entry with this id."),
    _("There is no blacklist group with this id."),
    _("There is no installer of this name."),
    _("There is no such operation."),
    _("Limit of %(limit)s unassigned uploads reached; publish or delete some."),
    _("The body is longer than %(limit)s bytes."),
    _("Too many failed logins; try again in %(seconds)s seconds."),
    _("The server's disk is full; send the same again later."),
    _("This was not sent by a page of your session; load the page again."),
    _("The sign-in form was sent from another site."),
)
VALUE = re.compile(r"%\((\w+)\)s")


def reason_in(language: str, said: str) -> str:
    """What was said, which may begin with the name of a field; as it stands where nothing here is like it."""
    field, colon, reason = said.partition(": ")
    for before, text in (("", said), (field + colon, reason)):
        for pattern, template in _patterns():
            if found := pattern.fullmatch(text):
                return before + translations(language).gettext(template) % found.groupdict()
    return said


@cache
def _patterns() -> Sequence[tuple[re.Pattern[str], str]]:
    """What each of them is found by, first those that say most: a value may be all but one word of another's text."""
    by_words = sorted(REASONS, key=lambda template: len(VALUE.sub("", template)), reverse=True)
    return [(re.compile(_pattern(template), re.DOTALL), template) for template in by_words]


def _pattern(template: str) -> str:
    words = VALUE.split(template)  # and between two of them the name of a value
    return "".join(f"(?P<{part}>.+)" if at % 2 else re.escape(part) for at, part in enumerate(words))
