"""The identities by which winget clients find the package of a program that is installed on a machine.

A search by an identity returns every package that has it. Clients may then offer one package for the other's program.
The client normalises the name of an installed program before it searches for it. The same rules apply here to the names
of packages, in the same order, so that both sides get the same text.
"""

import asyncio
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Protocol, Self

from common.errors import Forbidden

LIMIT = 256  # characters of a name; further ones do not count

# Symbols outside ASCII become the ASCII symbol that the rules treat alike. Only letters match `[^\W\d_]` afterwards.
_ASCII_SYMBOLS = {"Pd": "_", "Pc": "_", "Po": "!", "Ps": "{", "Pe": "}", "Zs": " ", "Zl": " ", "Zp": " "}
_OTHER_SYMBOL = "~"
_SYMBOLS = "".join(character for character in map(chr, range(128)) if not character.isalnum())

_LETTER, _NO_LETTER = r"[^\W\d_]", r"[\W\d_]"
_CASED_LETTER = "[a-zÀ-և]"  # a letter of the scripts that have capitals
_SEPARATOR = r"[!\"#%&'*,./:;?@\\_-]"  # between the numbers of a version
_RELEASE = "v|ver|versi[oó]n|versão|versie|wersja|build|release|rc|sp"
_DRIVE = r"[cdef]:\\"
# A folder's name may hold spaces, the last name of a path does not.
_PATH = rf"{_DRIVE}(?:.*\s[^\s\\]*\\)?\S*"


def _patterns(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


# The first of these that a name holds is removed. `32/64 bit` holds `64 bit`, and `x86-64` holds `x86`.
_ARCHITECTURES = _patterns(
    *(
        rf"(?<![^\W_]){architecture}(?:\sedition)?"
        for architecture in (
            r"(?:64[\\/]32|32[\\/]64)[-_ ]?bits?",
            r"(?:x64|amd64|x86[-_]64)(?!\d)",
            r"64[-_ ]?bits?",
            r"(?:x32|x86)(?!\d)",
            r"32[-_ ]?bits?",
        )
    )
)
# These are removed again and again, in this order, until nothing changes. Group 1 stays.
# An opening bracket, quote or path without its end is matched once, with the text after it: no later one has an end.
_NOISE = _patterns(
    r"^(roblox\s(?:player|studio))\sfor\s.*",
    r"^(bomgar\s(?:jump client|(?:access|representative) console|button)|embedded callback)\s.*",
    r"^\(.*?\)",
    r"\(\s*\)|\[\s*\]|\"\s*\"",
    rf"\(change #\d{{1,2}} to {_PATH}\)|(\(change #\d{{1,2}} to {_DRIVE}.*)",
    rf"\({_PATH}\)|(\({_DRIVE}.*)",
    rf"\"{_PATH}\"|(\"{_DRIVE}.*)",
    rf"(?:(?:installed\sat|in)\s)?{_DRIVE}(?:.*\\)?\S*",
    rf"(?<!{_LETTER})(?:(?:{_RELEASE}){_NO_LETTER})?{_CASED_LETTER}\d++(?:{_SEPARATOR}\d+)+",
    rf"(?:(?<!{_LETTER})(?:{_RELEASE}){_NO_LETTER}?|(?<!\d))\d++(?:{_SEPARATOR}\d?(?:rc|[abkr]|sp)?\d+)+"
    rf"(?:{_SEPARATOR}?[^\W_]++)*+",
    rf"(?:for\s)?(?<!{_LETTER})(?:p|r|{_RELEASE})(?:{_NO_LETTER}|{_NO_LETTER}{_LETTER})?(?:\d|\.\d)+(?:rc|[abrv]|sp)?\d?",
    r"\sen\s*\Z",
    r"\([^()]*\)|\[[^\[\]]*\]",
    r"[(\[{].*[)\]}]|\".*\"|([(\[{][^\"]*|\"[^(\[{]*)",
    rf"(?<!{_LETTER})(?:https?|ftp)://",
)
_KB_NUMBER = re.compile(r"\((kb\d+)\)", re.IGNORECASE)
# Programs of SAP Business Objects keep their names as they are.
_SAP_PACKAGE = re.compile(
    rf"(?:(?:{_CASED_LETTER}|\d)++[._])+(?:{_CASED_LETTER}|\d)++-(?:\d+\.)+\d+"
    rf"-(?:{_CASED_LETTER}{{2}}(?:_{_CASED_LETTER}{{2}})?|core)-(?:{_CASED_LETTER}{{2}}|\d\d)",
    re.IGNORECASE,
)
_WORD = re.compile(r"(?:[^\W_]|[+&])+")
_NOT_KEPT = re.compile(r"[\W_]+")
_LEGAL_FORM_NAMES = """
ab ad ag aps as asa bv co company corp corporation cv doo ev ges gesmbh gmbh holding holdings inc incorporated kg ks
limited llc lp ltd ltda mbh nv plc ps pty pvt sa sarl sc sca sl sp spa srl sro subsidiary
"""
_LEGAL_FORMS = frozenset(_LEGAL_FORM_NAMES.split())
_LOCALE = re.compile(
    r"(?<![a-z])[a-z]{2,3}(?:-(?:cans|cyrl|latn|mong))?-[a-z]{2}(?![a-z])(?:-valencia)?", re.IGNORECASE
)
# Windows' locales: a language, and the countries of each.
_LOCALE_NAMES = """
af/za am/et ar/ae/bh/dz/eg/iq/jo/kw/lb/ly/ma/om/qa/sa/sy/tn/ye arn/cl as/in az-cyrl/az az-latn/az ba/ru be/by
bg/bg bn/bd/in bo/cn br/fr bs-cyrl/ba bs-latn/ba ca/es/es-valencia co/fr cs/cz cy/gb da/dk de/at/ch/de/li/lu
dsb/de dv/mv el/gr en/au/bz/ca/gb/ie/in/jm/my/nz/ph/sg/tt/us/za/zw
es/ar/bo/cl/co/cr/do/ec/es/gt/hn/mx/ni/pa/pe/pr/py/sv/us/uy/ve et/ee eu/es fa/ir fi/fi fil/ph fo/fo
fr/be/ca/ch/fr/lu/mc fy/nl ga/ie gd/db gl/es gsw/fr gu/in ha-latn/ng he/il hi/in hr/ba/hr hsb/de hu/hu hy/am
id/id ig/ng ii/cn is/is it/ch/it iu-cans/ca iu-latn/ca ja/jp ka/ge kk/kz kl/gl km/kh kn/in kok/in ko/kr ky/kg
lb/lu lo/la lt/lt lv/lv mi/nz mk/mk ml/in mn/mn mn-mong/cn moh/ca mr/in ms/bn/my mt/mt nb/no ne/np nl/be/nl
nn/no nso/za oc/fr or/in pa/in pl/pl prs/af ps/af pt/br/pt qut/gt quz/bo/ec/pe rm/ch ro/ro ru/ru rw/rw sah/ru
sa/in se/fi/no/se si/lk sk/sk sl/si sma/no/se smj/no/se smn/fi sms/fi sq/al sr-cyrl/ba/cs/me/rs
sr-latn/ba/cs/me/rs sv/fi/se sw/ke syr/sy ta/in te/in tg-cyrl/tj th/th tk/tm tn/za tr/tr tt/ru tzm-latn/dz
ug/cn uk/ua ur/pk uz-cyrl/uz uz-latn/uz vi/vn wo/sn xh/za yo/ng zh/cn/hk/mo/sg/tw zu/za
"""
_LOCALES = frozenset(
    f"{language}-{country}"
    for language, *countries in (line.split("/") for line in _LOCALE_NAMES.split())
    for country in countries
)


def normalized(name: str) -> str:
    """Return a program's name as it is compared: `Acme Editor 2.1 (64-bit, de-DE)` is `acmeeditor`."""
    return _normalized(name[:LIMIT])


@lru_cache(maxsize=4096)
def _normalized(name: str) -> str:
    text = unicodedata.normalize("NFKC", name)[:LIMIT].strip()
    if "@@" in text[3:]:
        text = text[: text.find("@@", 3)]
    while len(text) >= 2 and (text[0], text[-1]) in {('"', '"'), ("(", ")")}:
        text = text[1:-1]
    if _SAP_PACKAGE.fullmatch(text):
        return text.casefold()
    text = _without_architecture("".join(map(_to_ascii_symbol, text)))
    text = _LOCALE.sub(lambda match: "" if match[0].casefold() in _LOCALES else match[0], text)
    text = _without_noise(_KB_NUMBER.sub(r"\1", text))
    words = _WORD.findall(text)
    parts = words[:1] + [word for word in words[1:] if word.casefold() not in _LEGAL_FORMS]
    return _NOT_KEPT.sub("", "".join(parts)).casefold()


def _to_ascii_symbol(character: str) -> str:
    if character.isascii() or character.isalpha() or character.isdecimal():
        return character
    return _ASCII_SYMBOLS.get(unicodedata.category(character), _OTHER_SYMBOL)


def _without_architecture(text: str) -> str:
    for architecture in _ARCHITECTURES:
        shorter = architecture.sub("", text)
        if shorter != text:
            return shorter
    return text


def _without_noise(text: str) -> str:
    before = ""
    while before != text:
        before = text
        for noise in _NOISE:
            text = noise.sub(lambda match: match[1] if match.lastindex else "", text)
        text = text.strip(_SYMBOLS)
    return text


class IdentityKind(StrEnum):
    """The kinds, by the names of form fields."""

    PRODUCT_CODE = "productcode"
    UPGRADE_CODE = "upgradecode"
    FAMILY_NAME = "package_family_name"
    NAME = "package_name"  # clients send no publisher with a name


@dataclass(frozen=True, order=True)
class SharedIdentity:
    """An identity that another package has, too. `value` is in lower case, and a name without its version."""

    package_id: str
    kind: IdentityKind
    value: str

    @classmethod
    def of(cls, package_id: str, identity: str) -> Self:
        """Return one of the identities of `identities_of`, with its package."""
        kind, _, value = identity.partition(":")
        return cls(package_id, IdentityKind(kind), value)


class IdentityTaken(Forbidden):
    """A restricted token gives a package an identity of a package that the token may not change."""

    code = "identity_taken"
    text = (
        "The package {package_id!r} has the {field} {value!r}, too, and this token may not change that package. winget "
        "would confuse the two; ask an administrator to publish this one."
    )


class HasIdentities(Protocol):
    """A package, its changes, or a version."""

    @property
    def identities(self) -> Collection[str]: ...


def identities_of(values: Mapping[IdentityKind, Iterable[str]]) -> list[str]:
    """Return the identities with these values as texts, each once; an empty value is none."""
    keys = {
        (kind, folded(normalized(text) if kind is IdentityKind.NAME else text))
        for kind, texts in values.items()
        for text in texts
    }
    return sorted(f"{kind}:{key}" for kind, key in keys if key)


async def normalize_names(owner: HasIdentities) -> None:
    """Compute the identities in a thread, because 256 long names take half a second. The names are cached then."""
    await asyncio.to_thread(getattr, owner, "identities")


def folded(text: str) -> str:
    """Return the same text for all spellings that differ in letter case only."""
    if text.isascii():
        return text.casefold()
    # Normalize again: a capital may fold into parts of a composed letter.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
