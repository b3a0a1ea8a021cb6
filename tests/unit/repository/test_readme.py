"""The documents name every operation and setting, and their links and pictures exist."""

import re
from pathlib import Path

from auth_service.settings import AuthSettings
from catalog_service.settings import CatalogSettings
from client_registry.settings import RegistrySettings
from common.settings import FIXED
from gateway.operations import OPERATIONS, Operation
from gateway.settings import GatewaySettings
from tests.support.role_matrix import DOCUMENT, with_matrix
from tests.support.tables import each
from upload_service.settings import UploadSettings

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "deploy" / "docs"
INTERFACE = (DOCS / "interface.md").read_text(encoding="utf-8")
CONFIGURATION = (DOCS / "configuration.md").read_text(encoding="utf-8")
PAGES = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/kubernetes/README.md"),
    *sorted(str(page.relative_to(ROOT)) for page in [*ROOT.glob("*/README.md"), *DOCS.glob("*.md")]),
)
SETTINGS = sorted(
    {
        name.upper()
        for kind in (AuthSettings, CatalogSettings, RegistrySettings, GatewaySettings, UploadSettings)
        for name in kind.model_fields.keys() - FIXED
    }
)
# The pages of the sign-in and the assets are for browsers only.
SIGN_IN = {"sign_in", "sign_in/oidc", "sign_in/oidc/callback"}
NAMED = [row for row in OPERATIONS if row.name not in SIGN_IN and "assets" not in row.parts]


@each("row", NAMED, ids=lambda row: f"{row.method} {row.path}")
def test_the_documents_name_every_operation(row: Operation) -> None:
    assert f"`{row.method} {row.path}`" in INTERFACE


def test_the_document_of_access_has_the_current_matrix_of_roles() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_matrix(text) == text


@each("setting", SETTINGS)
def test_the_documents_name_every_setting(setting: str) -> None:
    assert f"`{setting}`" in CONFIGURATION


@each("kind", [CatalogSettings, UploadSettings])
def test_the_documents_name_the_default_address_of_rabbitmq(kind: type[CatalogSettings] | type[UploadSettings]) -> None:
    assert f"`{kind.model_fields['rabbitmq_url'].default}`" in CONFIGURATION


@each("page", PAGES)
def test_links_lead_to_existing_pages_and_headings(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"]\(([^()\s]+)\)", text):
        file, _, heading = link.partition("#")
        if not file.startswith("https:"):
            target = (ROOT / page).parent / file if file else ROOT / page
            assert target.exists(), link
            assert not heading or heading in headings(target), link


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


@each("page", [*PAGES, "CHANGELOG.md", "deploy/compose.yaml"])
def test_operator_commands_in_compose_have_no_deps(page: str) -> None:
    commands = re.findall(r"\brun --rm .*?operator\b", (ROOT / page).read_text(encoding="utf-8"))
    assert set(commands) <= {"run --rm --no-deps operator", "run --rm --no-deps -T operator"}  # -T: with an input


@each("page", [*PAGES, *sorted(f"deploy/{file.name}" for file in (ROOT / "deploy").glob("compose*.yaml"))])
def test_no_compose_command_leaves_out_the_overlays(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"docker compose (?:-p \w+ )?-f.*|.*--remove-orphans.*", text) == []


def test_every_line_that_adds_the_winget_source_trusts_it() -> None:
    pages = [ROOT / page for page in PAGES] + sorted((ROOT / "gateway" / "dashboard" / "templates").rglob("*.html"))
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    adding = [line for line in lines if "winget source add " in line]

    assert len(adding) >= 3
    assert [line for line in adding if "--trust-level trusted" not in line] == []


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    lines = [line.lstrip("# ") for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}
