"""Compares the subjects of certificates, written as in RFC 4514, such as `CN=Acme,O=Acme\\, Inc.,C=DE`."""

import re

NAME_LIMIT = 4000  # characters
NO_NAME = "This is no name of a certificate's subject, such as CN=Acme,O=Acme,C=DE."
_ALIASES = {
    "2.5.4.3": "CN",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "S": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "1.2.840.113549.1.9.1": "E",
    "EMAILADDRESS": "E",
}
# A quoted value, as Windows shows it, or characters with `\` before the special ones.
_VALUE = r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"\s*|(?P<plain>(?:[^"\\,;+]|\\.)*))'
_ATTRIBUTE = re.compile(
    r"\s*(?:OID\.)?(?P<type>[A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)+)\s*=" + _VALUE, re.IGNORECASE | re.DOTALL
)
_ESCAPED = re.compile(r"((?:\\[0-9A-Fa-f]{2})+)|\\(.)", re.DOTALL)

# One set of types and values for each part, in order.
Name = tuple[frozenset[tuple[str, str]], ...]


def parse_name(text: str) -> Name:
    """Return the parts of a name; letter case and repeated spaces do not matter. Raises ValueError."""
    if len(text) > NAME_LIMIT:
        raise ValueError(NO_NAME)
    parts: list[set[tuple[str, str]]] = [set()]
    position = 0
    while True:
        match = _ATTRIBUTE.match(text, position)
        if match is None:
            raise ValueError(NO_NAME)
        kind = match["type"].upper()
        value = _ESCAPED.sub(_unescape, match["plain"] if match["quoted"] is None else match["quoted"])
        parts[-1].add((_ALIASES.get(kind, kind), " ".join(value.casefold().split())))
        position = match.end()
        if position == len(text):
            return tuple(map(frozenset, parts))
        if text[position] in ",;":
            parts.append(set())
        elif text[position] != "+":
            raise ValueError(NO_NAME)
        position += 1


def is_same_name(one: str, other: str) -> bool:
    """Whether two texts name the same subject; a text that is no name equals none."""
    try:
        return parse_name(one) == parse_name(other)
    except ValueError:
        return False


def _unescape(match: re.Match[str]) -> str:
    if match[1]:
        return bytes.fromhex(match[1].replace("\\", "")).decode(errors="replace")
    return match[2]
