"""Templates, texts in every language, styles, redirects and cookies of the dashboard."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

from babel.messages.extract import extract
from babel.messages.pofile import read_po
from markupsafe import Markup

from common.auth.internal_tokens import Caller
from common.errors import Unavailable
from gateway.dashboard.page_request import client_names_of, cookie_name, package_names_of, safe_next_url
from gateway.dashboard.templating import ENGLISH, LANGUAGES, label_cells
from tests.support.factories import make_caller, make_tenant
from tests.support.tables import each

HEADINGS = Markup('<th scope="col">Name</th><th><a href="?sort=id">Id &amp; "kind"</a></th>')


def test_a_cell_has_the_heading_of_its_column() -> None:
    rows = Markup('<tr><th scope="row">Anvil</th><td class="id">A</td></tr><tr><td>Trap</td><td>T</td></tr>')
    first, second = 'data-label="Name"', 'data-label="Id &amp; &quot;kind&quot;"'
    labelled = f'<tr><th scope="row">Anvil</th><td {second} class="id">A</td></tr>'
    assert label_cells(rows, HEADINGS) == f"{labelled}<tr><td {first}>Trap</td><td {second}>T</td></tr>"


@each(
    ("rows", "headings", "expected"),
    [
        (Markup("<tr><td>\n</td></tr>"), HEADINGS, "<tr><td>\n</td></tr>"),
        (
            Markup("<tr><td>…</td></tr>"),
            Markup('<th><span class="visually-hidden">A</span></th>'),
            "<tr><td>…</td></tr>",
        ),
        (
            Markup("<tr><td>{}</td></tr>").format("<td>"),
            HEADINGS,
            '<tr><td data-label="Name">&lt;td&gt;</td></tr>',
        ),
    ],
    ids=["an empty cell", "a hidden heading", "escaped text"],
)
def test_only_a_cell_with_text_below_a_heading_has_a_label(rows: Markup, headings: Markup, expected: str) -> None:
    assert label_cells(rows, headings) == expected


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
def test_a_catalogue_has_exactly_the_texts_of_the_pages(language: str) -> None:
    page_texts, translated = set(texts()), catalogue(language)
    assert sorted(str(text) for text in page_texts if not translated.get(text)) == []
    assert sorted(str(text) for text in translated.keys() - page_texts) == []


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


async def test_a_page_does_not_need_the_names_of_its_ids() -> None:
    page = Mock(fetch=AsyncMock(side_effect=Unavailable("away")))

    assert await package_names_of(page, ["Acme.Anvil"]) is None
    assert await client_names_of(page, ["c1"]) == {}


STYLES = Path(__file__).parents[4] / "gateway" / "dashboard" / "static" / "dashboard.css"


def test_every_section_closes_its_rules() -> None:
    text = STYLES.read_text(encoding="utf-8")
    sections = text.split("\n/* ")
    assert len(sections) > 4
    assert [part.splitlines()[0] for part in sections if part.count("{") != part.count("}")] == []


CALLER = Caller(make_tenant(tenant_id="acme"), base_url="https://packages.example.com/acme")
UNSAFE = [
    "",
    "dashboard",
    "//evil.example",
    "https://evil.example/acme/dashboard",
    "/\\evil.example",
    "\\\\evil.example",
    "/acme/dashboard//evil.example",
    "/acme/dashboard\r\nSet-Cookie: a=b",
    "/acme/dashboard\t",
    "/acme/dashboard/../../other/dashboard",
    "/acme/dashboard/..",
    "/acme/dashboard/..%2f..%2fother",
    "/acme/dashboard/%2e%2e/%2E%2e/other/dashboard",
    "/acme/dashboards",
    "/other/dashboard",
    "/acme/logout",
    "javascript:alert(1)",
    "/acme/dashboard/" + "a" * 3000,
]
PAGES = ["/acme/dashboard", "/acme/dashboard/packages?text=a%20b&page=2", "/acme/docs", "/acme/dashboard/packages/A.B"]


@each(("url", "expected"), [*((url, "/acme/dashboard") for url in UNSAFE), *((url, url) for url in PAGES)])
def test_only_a_page_of_the_tenant_is_the_next_one(url: str, expected: str) -> None:
    assert safe_next_url(url, CALLER) == expected


@each(("scheme", "prefix"), [("https", "__Host-"), ("http", "")])
def test_no_other_host_can_set_the_cookie_over_https(scheme: str, prefix: str) -> None:
    caller = make_caller(make_tenant(tenant_id="acme"), base_url=f"{scheme}://packages.example.com/acme")
    assert [cookie_name(caller), cookie_name(caller, "sign_in")] == [f"{prefix}session-acme", f"{prefix}sign_in-acme"]
