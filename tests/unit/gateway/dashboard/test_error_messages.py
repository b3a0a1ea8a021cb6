"""Every problem in a form of the dashboard has a message in every language."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

from babel.messages.pofile import read_po

from catalog_service.logos import service as logos
from catalog_service.model.releases import SENTENCES, Reason
from catalog_service.model.winget_rules import Refusal
from common.errors import Forbidden, InvalidField, Problem, UpstreamProblem
from gateway.dashboard.templating import (
    ENGLISH,
    LANGUAGES,
    localized,
    localized_identity,
    localized_reason,
    localized_refusal,
)
from tests.support.tables import each

ROOT = Path(__file__).parents[4]
SERVICES = ("auth_service", "catalog_service", "client_registry", "upload_service", "gateway", "common")
FIELD_ERRORS = {"InvalidField", "InstallerContradicts"}
# No form of the dashboard has these fields: they belong to commands, winget requests, manifests and scripts.
WITHOUT_FORM = (
    "auth_service/audit/store.py",
    "auth_service/oidc/service.py",
    "auth_service/tenants/service.py",
    "catalog_service/model/manifest_fields.py",
    "catalog_service/model/installers.py",
    "catalog_service/winget/",
    "common/tenants.py",
    "client_registry/releases/service.py",
    "upload_service/routes.py",
    "upload_service/uploads/routes.py",
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
def test_every_reason_and_winget_refusal_is_translated(language: str) -> None:
    refusals = {
        refusal.args[1] for refusal in calls()["catalog_service/model/winget_rules.py"] if len(refusal.args) > 2
    }
    codes = {str(code.value) for code in refusals if isinstance(code, ast.Constant)}
    assert len(codes) > 10
    # The words of a person are shown as they are.
    assert sorted((codes | SENTENCES.keys()) - errors_in(language).keys()) == ["given"]


@each("language", OTHERS)
def test_a_message_of_a_reason_has_the_values_of_its_sentence(language: str) -> None:
    for code, sentence in SENTENCES.items():
        names = set(re.findall(r"%\((\w+)\)s", errors_in(language).get(code, sentence)))
        assert names <= set(re.findall(r"\{(\w+)\}", sentence)), code


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
        (InvalidField("file_nested_path", "…", reason="path_twice"), "file_nested_path: enthält einen Pfad doppelt"),
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


@each(
    ("refusal", "language", "text"),
    [
        (Refusal("package_id", "nested_path_required", "is required"), ENGLISH, "Package id is required"),
        (Refusal("file_nested_path", "nested_path_required", "…"), "de", "Pfad im Archiv wird bei ZIP benötigt"),
        (Refusal("commands", "nested_path_required", "is required"), ENGLISH, "commands: is required"),
        (Refusal("", "no_stable_version", "…"), "de", "Keine Version ist im Kanal stable."),
        (Refusal("", "same_installer", "The version a.", "a"), ENGLISH, "The version a."),
        (Refusal("", "of_a_later_release", "Later."), "de", "Later."),
    ],
)
def test_a_winget_refusal_has_the_label_of_its_field(refusal: Refusal, language: str, text: str) -> None:
    assert localized_refusal(asdict(refusal), language) == text


def test_a_winget_refusal_names_the_other_version() -> None:
    refusal = Refusal("", "same_installer", "…", "3f2b8e5c")
    assert localized_refusal(asdict(refusal), "de").startswith("Version 3f2b8e5c hat schon einen Installer")


@each(
    ("reason", "german"),
    [
        (Reason(), ""),
        (Reason.given("%(x)s {y}"), "%(x)s {y}"),
        (
            Reason(("scan_too_large", "approvals"), {"count": "0", "needed": "1"}),
            "Die Datei ist zu groß für die Virenprüfung. 0 von 1 genehmigt.",
        ),
        (
            Reason(("scan_infected", "cause"), {"cause": "Eicar (test) %s"}),
            "Die Virenprüfung meldet die Datei als infiziert. (Eicar (test) %s)",
        ),
    ],
)
def test_a_reason_is_worded_by_its_codes(reason: Reason, german: str) -> None:
    assert localized_reason(reason.members, "de") == german
    assert localized_reason(reason.members, ENGLISH) == reason.text


def test_a_reason_of_a_later_release_is_shown_in_english() -> None:
    state = {"reason": "It waits for the moon.", "codes": ["scan_clean", "moon"], "params": {}}
    assert localized_reason(state, "de") == "It waits for the moon."
