"""Every problem in a form of the dashboard has a message in every language."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from babel.messages.pofile import read_po

from catalog_service.logos import service as logos
from common.errors import Forbidden, InvalidField, Problem, UpstreamProblem
from gateway.dashboard.error_messages import localized, localized_identity, localized_refusal, localized_sentence
from gateway.dashboard.languages import ENGLISH, LANGUAGES
from tests.support.tables import each

ROOT = Path(__file__).parents[4]
SERVICES = ("auth_service", "catalog_service", "client_registry", "upload_service", "gateway", "common")
FIELD_ERRORS = {"InvalidField", "InstallerContradicts"}
# No form of the dashboard has these fields: they belong to commands, winget requests, manifests and scripts.
WITHOUT_FORM = (
    "auth_service/audit/model.py",
    "auth_service/oidc/providers.py",
    "auth_service/tenants/service.py",
    "catalog_service/model/manifest/",
    "catalog_service/model/external_installers.py",
    "catalog_service/winget/",
    "common/auth/entra_app.py",
    "client_registry/releases/service.py",
    "upload_service/forms.py",
)
FIELDS_WITHOUT_FORM = {"limit", "installer_sha256", "dep_pkg_min_version", "dep_pkg_identifier"}
# a query parameter, a field of the one-call form, and a field with its own code
MESSAGES_WITHOUT_FORM = (
    "must be a date or a time",
    "or server_filename or installer_url",
    "this list would shut you out",
)
LOGO_REASONS = {reason for _, reason, _ in logos.REASONS.values()}


@cache
def calls() -> Mapping[str, list[ast.Call]]:
    """The calls in every module of the services, by the path of the module."""
    modules = {path.relative_to(ROOT).as_posix(): path for name in SERVICES for path in (ROOT / name).rglob("*.py")}
    return {
        name: [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        for name, path in modules.items()
    }


def raised_field_errors() -> Iterator[ast.Call]:
    """The calls that create a field error of a form."""
    for name, calls_there in calls().items():
        if name.startswith(WITHOUT_FORM):
            continue
        for call in calls_there:
            if isinstance(call.func, ast.Name) and call.func.id in FIELD_ERRORS:
                text = ast.unparse(call)
                if "contradiction" in text or any(message in text for message in MESSAGES_WITHOUT_FORM):
                    continue
                if ast.unparse(call.args[0]).strip("'") not in FIELDS_WITHOUT_FORM:
                    yield call


def reason_of(call: ast.Call) -> str:
    """The reason of a field error; "" if it is not constant."""
    values = [item.value for item in call.keywords if item.arg == "reason"]
    return str(values[0].value) if values and isinstance(values[0], ast.Constant) else ""


@cache
def messages(context: str, language: str) -> Mapping[str, str]:
    """The messages of a context in a language, by their ids."""
    with (ROOT / "gateway" / "dashboard" / "texts" / f"{language}.po").open("rb") as source:
        return {str(message.id): str(message.string) for message in read_po(source) if message.context == context}


def errors_in(language: str) -> Mapping[str, str]:
    """The messages of a language, by their codes and reasons."""
    return messages("error", language)


def sent_codes() -> set[str]:
    """Every code and reason in the source of the services."""
    source = "\n".join(path.read_text(encoding="utf-8") for name in SERVICES for path in (ROOT / name).rglob("*.py"))
    return set(re.findall(r'"([a-z][a-z_]+)"', source))


OTHERS = [language for language in LANGUAGES if language != ENGLISH]


@each("language", OTHERS)
def test_every_field_error_of_a_form_has_a_reason_and_a_message(language: str) -> None:
    errors = list(raised_field_errors())
    assert len(errors) > 30
    missing = [ast.unparse(call) for call in errors if reason_of(call) not in errors_in(language)]
    # The reasons of logos come from a table.
    assert missing == ["InvalidField(field, message, reason=reason, most=most)"]
    assert errors_in(language).keys() >= LOGO_REASONS


@each("language", OTHERS)
def test_a_message_has_only_the_values_that_the_error_carries(language: str) -> None:
    for call in raised_field_errors():
        names = {item.arg for item in call.keywords} - {"reason"}
        message = errors_in(language).get(reason_of(call), "")
        assert set(re.findall(r"%\((\w+)\)s", message)) <= names, ast.unparse(call)


@each("language", [*LANGUAGES])
def test_every_message_belongs_to_a_code_of_a_service(language: str) -> None:
    assert sorted(errors_in(language).keys() - sent_codes()) == []


def test_every_english_message_is_translated() -> None:
    assert [language for language in OTHERS if errors_in(ENGLISH).keys() - errors_in(language).keys()] == []


@each("language", OTHERS)
def test_every_winget_refusal_is_translated(language: str) -> None:
    rules = (ROOT / "catalog_service/model/manifest/rules.py").read_text(encoding="utf-8")
    constants = {node.value for node in ast.walk(ast.parse(rules)) if isinstance(node, ast.Constant)}
    sentences = {text for text in map(str, constants) if text.startswith(("is ", "must ", "holds ", "may "))}
    assert len(sentences) > 10
    assert sorted(sentences - messages("winget", language).keys()) == []


@each(
    ("problem", "message"),
    [
        (InvalidField("channel", "…", reason="too_long", limit=128), "channel: ist länger als 128 Zeichen"),
        (InvalidField("a", "…", reason="other_file_type", value="MSI", actual="ZIP"), "a: ist MSI, die Datei aber ZIP"),
        (
            InvalidField("network", "…", reason="not_a_network", network="a: b"),
            "network: 'a: b' ist weder eine IP-Adresse",
        ),
        (Forbidden("…", reason="foreign_page"), "Das kam nicht von einer Seite Ihrer Sitzung."),
        (InvalidField("file_nested_path", "holds a path twice"), "file_nested_path: enthält einen Pfad doppelt"),
        (InvalidField("field", "says this"), "field: says this"),
        (UpstreamProblem("Detail.", status=404, code="unheard_of"), "Detail."),
    ],
)
def test_a_message_has_the_field_and_the_values_of_its_problem(problem: Problem, message: str) -> None:
    assert localized(problem, "de").startswith(message)


def test_a_problem_of_a_service_keeps_the_values_in_its_message() -> None:
    problem = UpstreamProblem("…", status=404, code="package_not_found", params={"package_id": "%(limit)s"})
    assert localized(problem, "de") == "Es gibt kein Paket '%(limit)s'."


def test_a_problem_without_its_message_values_is_shown_in_english() -> None:
    assert localized(UpstreamProblem("There is none.", status=404, code="package_not_found"), "de") == "There is none."


def test_a_shared_identity_is_a_sentence_with_the_label_of_its_field() -> None:
    identity = {"field": "upgradecode", "value": "{0}", "package_id": "Big.100%(a)s"}
    assert localized_identity(identity, ENGLISH).startswith("Upgrade code: the package Big.100%(a)s has the same.")
    assert localized_identity(identity, "de").startswith("Upgrade-Code: Das Paket Big.100%(a)s hat denselben Wert.")


def test_a_winget_refusal_keeps_its_field_and_its_version() -> None:
    uid = "3f2b8e5c-7a43-4d19-b7c8-2f4b9a1d6e70"
    sentence = f"The version {uid} has an installer that cannot be told from this one."
    assert localized_sentence(sentence, "de").startswith(f"Die Version {uid} hat einen Installer")
    assert localized_sentence(sentence, ENGLISH) == sentence
    assert localized_sentence("package_version: holds a path twice", "de").startswith("package_version: enthält")


@each(
    ("sentence", "language", "text"),
    [
        ("package_id: is required with ZIP", ENGLISH, "Package id is required with ZIP"),
        ("file_nested_path: is required with ZIP", "de", "Pfad im Archiv wird bei ZIP benötigt"),
        ("commands: is required with ZIP", ENGLISH, "commands: is required with ZIP"),
        ("No version is in the channel stable.", "de", "Keine Version ist im Kanal stable."),
    ],
)
def test_a_winget_refusal_has_the_label_of_its_field(sentence: str, language: str, text: str) -> None:
    assert localized_refusal(sentence, language) == text
