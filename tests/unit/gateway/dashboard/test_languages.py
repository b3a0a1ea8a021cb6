"""Every text of the dashboard exists in every language."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babel.messages.extract import extract
from babel.messages.pofile import read_po

from gateway.dashboard.templating import ENGLISH, LANGUAGES
from tests.support.tables import each

DASHBOARD = Path(__file__).parents[4] / "gateway" / "dashboard"
OTHERS = [language for language in LANGUAGES if language != ENGLISH]
Text = Any  # a string, or its plural forms


def texts() -> Iterator[Text]:
    for folder, ending, method in (
        (DASHBOARD, "*.py", "python"),
        (DASHBOARD / "templates", "*.html", "jinja2.ext:babel_extract"),
    ):
        for path in folder.rglob(ending):
            with path.open("rb") as source:
                for _, text, _, _ in extract(method, source, options={"silent": "false", "encoding": "utf-8"}):
                    yield text


def catalogue(language: str) -> dict[Text, Text]:
    """The texts of the pages in a language, without the messages of problems."""
    with (DASHBOARD / "texts" / f"{language}.po").open("rb") as source:
        return {message.id: message.string for message in read_po(source) if message.id and not message.context}


@each("language", OTHERS)
def test_no_text_is_missing_in_a_language(language: str) -> None:
    translated_texts = catalogue(language)
    assert sorted(str(text) for text in set(texts()) if not translated_texts.get(text)) == []


@each("language", OTHERS)
def test_a_catalogue_has_only_texts_of_pages(language: str) -> None:
    assert sorted(str(text) for text in catalogue(language).keys() - set(texts())) == []


@each("language", OTHERS)
def test_a_catalogue_has_each_text_once(language: str) -> None:
    lines = (DASHBOARD / "texts" / f"{language}.po").read_text(encoding="utf-8").splitlines()
    texts = Counter(line for line in lines if line.startswith("msgid "))
    assert [text for text, times in texts.items() if times > 1 and text != 'msgid ""'] == []


@each("language", OTHERS)
def test_a_translation_has_the_same_placeholders(language: str) -> None:
    for text, translated in catalogue(language).items():
        once = [text] if isinstance(text, str) else list(text)
        other = [translated] if isinstance(translated, str) else list(translated)
        assert {values(text_form) for text_form in other} <= {values(text_form) for text_form in once}, text


def values(text: str) -> frozenset[str]:
    return frozenset(part.partition(")")[0] for part in text.split("%(")[1:])
