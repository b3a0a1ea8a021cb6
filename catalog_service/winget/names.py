"""Names as winget compares those of installed programs with those of packages: what says no more than which release
it is, for which machine, and in which language, is left out.

What the client sends was made of a program's name by rules of its own, which change nothing any more. These are the
same rules, as far as they are told apart by names that there are; both sides of a comparison need the same result.
"""

import re
from functools import lru_cache

# Spelled-out: a letter is any but \W, digits and _.
_LETTER, _NO_LETTER = r"[^\W\d_]", r"[\W\d_]"
_RELEASE = "v|ver|versi[oó]n|versão|versie|wersja|build|release|rc|sp"
_ARCHITECTURES = (
    rf"(?<!{_LETTER})(?:x32|x64|amd64|x86[-_]64|x86)(?!\d)(?:\sedition)?",
    r"(?<!\d)(?:32|64)[-_\s]?bits?(?:\sedition)?",
)
_PATH = r"[cdef]:\\(?:[^\\]+\\)*\S*"
_NOISE = (
    r"^\(.*?\)",
    r"\(\s*\)|\[\s*\]|\"\s*\"",
    rf"[(\"]{_PATH}[)\"]|(?:(?:installed\sat|in)\s)?{_PATH}",
    rf"(?<!{_LETTER})(?:(?:{_RELEASE}){_NO_LETTER})?{_LETTER}\d+(?:[^\w\s]\d+)+",
    rf"(?:(?<!{_LETTER})(?:{_RELEASE}){_NO_LETTER}?)?\d+(?:[^\w\s+&()\[\]]\d?(?:rc|[abrk]|sp)?\d+)+(?:[^\w\s]?{_LETTER}(?!{_LETTER}))?",
    rf"(?:for\s)?(?<!{_LETTER})(?:p|r|{_RELEASE})(?:{_NO_LETTER}{_LETTER}|{_NO_LETTER})?[\d.]+(?:rc|[abrv]|sp)?\d?",
    r"\sen\s*$",
    r"\([^()]*\)|\[[^\[\]]*\]",
    r"[(\[{].*[)\]}]|\".*\"",
    rf"^{_NO_LETTER}+",
    r"[\W_]+$",
)
_ARCHITECTURE, _NOISES = re.compile("|".join(_ARCHITECTURES)), tuple(map(re.compile, _NOISE))
_LOCALE = re.compile(rf"(?<!{_LETTER})[a-z]{{2,3}}(?:-(?:cans|cyrl|latn|mong))?-[a-z]{{2}}(?!{_LETTER})(?:-valencia)?")
_WORD = re.compile(r"[^\W_+&]+|[+&]+")
_COMPANIES = """
ab ad ag aps as asa bv co company corp corporation cv doo ges gesmbh gmbh holding holdings inc incorporated kg ks
limited llc lp ltd ltda mbh nv plc ps pty pvt sa sarl sc sca sl sp spa srl sro subsidiary
"""
# Windows' locales: a language, and its countries.
_LOCALES = """
af-za am-et ar-ae-bh-dz-eg-iq-jo-kw-lb-ly-ma-om-qa-sa-sy-tn-ye as-in ba-ru be-by bg-bg bn-bd-in bo-cn br-fr ca-es co-fr
cs-cz cy-gb da-dk de-at-ch-de-li-lu dv-mv el-gr en-au-bz-ca-gb-ie-in-jm-my-nz-ph-sg-tt-us-za-zw
es-ar-bo-cl-co-cr-do-ec-es-gt-hn-mx-ni-pa-pe-pr-py-sv-us-uy-ve et-ee eu-es fa-ir fi-fi fil-ph fo-fo
fr-be-ca-ch-fr-lu-mc fy-nl ga-ie gl-es gsw-fr gu-in he-il hi-in hr-ba-hr hu-hu hy-am id-id ig-ng ii-cn is-is it-ch-it
ja-jp ka-ge kk-kz kl-gl km-kh kn-in kok-in ko-kr ky-kg lb-lu lo-la lt-lt lv-lv mi-nz mk-mk ml-in mn-mn mr-in ms-bn-my
mt-mt nb-no ne-np nl-be-nl nn-no nso-za oc-fr or-in pa-in pl-pl prs-af ps-af pt-br-pt rm-ch ro-ro ru-ru rw-rw sa-in
se-fi-no-se si-lk sk-sk sl-si sq-al sv-fi-se sw-ke ta-in te-in th-th tk-tm tn-za tr-tr tt-ru ug-cn uk-ua ur-pk vi-vn
wo-sn xh-za yo-ng zh-cn-hk-mo-sg-tw zu-za
"""
_COMPANY = frozenset(_COMPANIES.split())
_COUNTRIES = {language: countries for language, *countries in (line.split("-") for line in _LOCALES.split())}


@lru_cache(maxsize=4096)
def normalized(name: str) -> str:
    """A program's name as it is compared: `Acme Editor 2.1 (64-bit, de-DE)` is `acmeeditor`."""
    left = name.casefold().strip()
    left = left[: left.find("@@", 3)] if "@@" in left[3:] else left
    while len(left) >= 2 and (left[0], left[-1]) in {('"', '"'), ("(", ")")}:
        left = left[1:-1]
    left = _quiet(_ARCHITECTURE.sub("", left))
    left = _LOCALE.sub(lambda found: "" if _is_locale(found[0]) else found[0], left)
    before = ""
    while before != left:
        before, left = left, _quiet(left)
    return "".join(word for word in _WORD.findall(left) if word not in _COMPANY)


def _quiet(text: str) -> str:
    for noise in _NOISES:
        text = noise.sub("", text)
    return text


def _is_locale(text: str) -> bool:
    language, *_, country = text.removesuffix("-valencia").split("-")
    return country in _COUNTRIES.get(language, ()) or text.count("-") == 2
