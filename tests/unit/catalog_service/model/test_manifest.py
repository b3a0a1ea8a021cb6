"""Manifest fields of packages and versions beyond the specification: validation and storage."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog_service.model.manifest import PackageManifest, VersionManifest
from catalog_service.model.manifest_fields import (
    Aliases,
    Choice,
    Day,
    Fields,
    Flag,
    Listed,
    Records,
    ReturnCode,
    Text,
    parse_changes,
    parse_manifest,
    to_document,
)
from common.errors import InvalidField
from common.http.forms import Form
from tests.support.samples.openapi import DOCUMENT, resolve_ref
from tests.support.samples.sample_forms import PACKAGE, VERSION, form_of
from tests.support.tables import each


def part_of(annotation: Any) -> type[Fields] | None:
    """The model of the objects in a field, if it holds objects."""
    kinds = [kind for kind in get_args(annotation) if isinstance(kind, type) and issubclass(kind, Fields)]
    return kinds[0] if kinds else None


ADDRESS = "https://a.example/"
KINDS: list[tuple[type[Fields], dict[str, Any]]] = [(PackageManifest, PACKAGE), (VersionManifest, VERSION)]
FIELDS = [(kind, name) for kind, _ in KINDS for name in kind.model_fields]
JSON_FIELDS = [(kind, name) for kind, name in FIELDS if part_of(kind.model_fields[name].annotation)]


def form(sent: dict[str, Any]) -> Form:
    return Form({name: (value,) if isinstance(value, str) else tuple(value) for name, value in sent.items()})


def read(kind: type[Fields], **sent: Any) -> dict[str, Any]:
    """The document of a manifest of this kind, after a form."""
    return to_document(parse_manifest(kind, form(sent)))


@each(("kind", "fields"), KINDS, ids=["package", "version"])
def test_all_fields_are_stored_and_read_again(kind: type[Fields], fields: dict[str, Any]) -> None:
    assert fields.keys() == kind.model_fields.keys()

    manifest = parse_manifest(kind, form(form_of(fields)))

    assert to_document(manifest) == {name: value for name, value in fields.items() if value}
    assert kind.model_validate(json.loads(json.dumps(to_document(manifest)))) == manifest


@each(("kind", "fields"), KINDS, ids=["package", "version"])
def test_empty_values_are_absent(kind: type[Fields], fields: dict[str, Any]) -> None:
    assert read(kind) == read(kind, **dict.fromkeys(fields, "")) == {}
    assert parse_changes(kind, form({"locales": "", "tags": ("", "")})).get("locales", "") is None
    empty: list[dict[str, Any]] = [{"package_locale": "de", "license": "", "tags": [], "author": None}]
    assert read(PackageManifest, locales=json.dumps(empty)) == {"locales": [{"package_locale": "de"}]}


@each(
    ("kind", "field", "sent", "expected"),
    [
        (PackageManifest, "package_locale", "ko_KR", "ko-KR"),
        (PackageManifest, "package_locale", "ZH-hant-tw", "zh-Hant-TW"),
        (PackageManifest, "package_locale", "x-acme", "x-acme"),
        (PackageManifest, "license", "A\u0308hnlich", "\u00c4hnlich"),
        (PackageManifest, "tags", "text, editor,,", ["text", "editor"]),
        (PackageManifest, "tags", ("text,editor", "acme"), ["text", "editor", "acme"]),
        (PackageManifest, "tags", ",".join(map(str, range(16))), [str(number) for number in range(16)]),
        (PackageManifest, "moniker", ("editor", ""), "editor"),
        (PackageManifest, "moniker", "x" * 40, "x" * 40),
        (PackageManifest, "package_url", ADDRESS + "x" * (2048 - len(ADDRESS)), ADDRESS + "x" * (2048 - len(ADDRESS))),
        (PackageManifest, "locales", ' [{"package_locale": "DE"}] ', [{"package_locale": "de"}]),
        (VersionManifest, "platform", "windows.desktop", ["Windows.Desktop"]),
        (VersionManifest, "install_modes", "SILENT,silentwithprogress", ["silent", "silentWithProgress"]),
        (VersionManifest, "installer_success_codes", "1, -2147483648,4294967295", [1, -2147483648, 4294967295]),
        (VersionManifest, "minimum_os_version", "10", "10"),
        (VersionManifest, "minimum_os_version", "0.65535.0.1", "0.65535.0.1"),
        (VersionManifest, "release_date", "2024-02-29", "2024-02-29"),
        (VersionManifest, "portable_command_alias", ("", "two"), ["", "two"]),
        (VersionManifest, "installer_aborts_terminal", "TRUE", True),
        (VersionManifest, "elevation_requirement", "ELEVATESSELF", "elevatesSelf"),
        (VersionManifest, "unsupported_os_architectures", "ARM64", ["arm64"]),
    ],
)
def test_a_value_is_accepted_in_its_usual_spelling(kind: type[Fields], field: str, sent: Any, expected: Any) -> None:
    assert read(kind, **{field: sent}) == {field: expected}


def numbers(count: int) -> str:
    return ",".join(map(str, range(1, count + 1)))


UNKNOWN_VALUES: dict[type[Fields], dict[str, Sequence[Any]]] = {
    PackageManifest: {
        "package_locale": ["english", "de-DE-" + "x" * 15],
        "moniker": ["x" * 41],
        "tags": [numbers(17), numbers(10_000), "x" * 41, "text,text"],
        "license": ["AB", "a\0b"],
        "author": ["A"],
        "short_description": ["two\nlines"],
        "installation_notes": ["a\u202eb"],
        "package_url": ["ftp://a.example/", "https://", " https://a.example/", ADDRESS + "x" * 2048],
    },
    VersionManifest: {
        "platform": ["Windows.Phone"],
        "minimum_os_version": ["10.0.65536", "010"],
        "installer_success_codes": ["0", "4294967296", "1e3", "9" * 5000, numbers(17)],
        "protocols": [numbers(65)],
        "file_extensions": ["a/b"],
        "portable_command_alias": ["..\\cmd", ("One", "one")],
        "allowed_markets": ["us"],
        "signature_sha256": ["ab"],
        "release_date": ["2026-02-29", "20260228"],
        "installer_aborts_terminal": ["yes"],
        "elevation_requirement": ["root"],
        "unsupported_os_architectures": ["neutral"],
    },
}


@each(
    ("kind", "field", "sent"),
    [
        (kind, field, value)
        for kind, fields in UNKNOWN_VALUES.items()
        for field, values in fields.items()
        for value in values
    ],
)
def test_a_value_unknown_to_winget_is_refused_with_its_field(kind: type[Fields], field: str, sent: Any) -> None:
    with pytest.raises(InvalidField, match=rf"^{field}(\[\d+\])?: "):
        read(kind, **{field: sent})


@each(
    "sent",
    [
        "no JSON",
        "{}",
        "[1]",
        "[{}]",
        '[{"license": "MIT"}]',
        '[{"package_locale": 5}]',
        '[{"package_locale": "de", "license": ["MIT"]}]',
        '[{"package_locale": "de", "tags": [1]}]',
        '[{"package_locale": "de", "unknown": "a"}]',
        '[{"package_locale": "de", "agreements": [{}]}]',
        '[{"package_locale": "de", "icons": [{"icon_url": "https://a.example/"}]}]',
        '[{"package_locale": "de", "license": "a\\u0000b"}]',
        '[{"package_locale": "de", "license": "a\\ud800b"}]',
        '[{"package_locale": "de"}, {"package_locale": "de"}]',
        '[{"package_locale": "de", "license": NaN}]',
        "[" * 100_000 + "]" * 100_000,
        '[{"package_locale":' * 1000 + "1" + "}]" * 1000,
        json.dumps([{"package_locale": "de"}] * 257),
        "\ud800",
    ],
    ids=lambda text: text[:40],
)
def test_a_list_of_objects_is_read_strictly(sent: str) -> None:
    with pytest.raises(InvalidField, match=r"^locales\b"):
        read(PackageManifest, locales=sent)


@each(
    ("field", "item"),
    [
        ("expected_return_codes", {"installer_return_code": "1618", "return_response": "custom"}),
        ("expected_return_codes", {"installer_return_code": True, "return_response": "custom"}),
        ("expected_return_codes", {"installer_return_code": 0, "return_response": "custom"}),
        ("expected_return_codes", {"installer_return_code": 1618.0, "return_response": "custom"}),
        ("expected_return_codes", {"installer_return_code": 1618}),
        ("expected_return_codes", {"installer_return_code": 1618, "return_response": "fine"}),
        ("apps_and_features_entries", {"display_version": "< 1.0"}),
        ("apps_and_features_entries", {"installer_type": "msstore"}),
        ("installed_files", {"display_name": "Editor"}),
        ("locales", {"release_notes": "New."}),
    ],
)
def test_an_invalid_item_of_a_list_is_refused_with_its_index(field: str, item: dict[str, Any]) -> None:
    with pytest.raises(InvalidField, match=rf"^{field}\[0\]\.[a-z_]+: "):
        read(VersionManifest, **{field: json.dumps([item])})


RESOURCE = {"name": "Settings"}
MODULE = {"repository_url": ADDRESS, "module_name": "Acme", "resources": [RESOURCE]}


@each(
    "configuration",
    [
        "no JSON",
        {},
        {"power_shell": []},
        {"power_shell": [{**MODULE, "resources": []}]},
        {"power_shell": [{"module_name": "Acme", "resources": [RESOURCE]}]},
        {"power_shell": [{**MODULE, "module_name": "Acme."}]},
        {"power_shell": [{**MODULE, "module_name": "A" * 101}]},
        {"power_shell": [{**MODULE, "resources": [{"name": "2Settings"}]}]},
        {"power_shell": [{**MODULE, "resources": [{"name": f"a{number}"} for number in range(65)]}]},
        {"power_shell": [{**MODULE, "module_name": f"Acme{number}"} for number in range(17)]},
        {"dscv3": {"resources": [{"type": "Settings"}]}},
        {"dscv3": {"resources": [{"type": "a.b.c.d/Settings"}]}},
        {"dscv3": {"resources": [{"type": f"Acme/a{number}"} for number in range(129)]}},
        {"dscv2": {"resources": [{"type": "Acme/Settings"}]}},
    ],
    ids=lambda configuration: json.dumps(configuration)[:60],
)
def test_configuration_is_read_strictly(configuration: object) -> None:
    with pytest.raises(InvalidField, match=r"^desired_state_configuration\b"):
        read(VersionManifest, desired_state_configuration=json.dumps(configuration))


def test_configuration_has_the_limits_of_the_schema() -> None:
    resources = [{"name": f"a{number}"} for number in range(64)]
    modules = [{**MODULE, "module_name": f"Acme{number}", "resources": resources} for number in range(16)]
    types = [{"type": f"Acme/a{number}"} for number in range(128)]
    configuration = {"power_shell": modules, "dscv3": {"resources": types}}

    sent = json.dumps(configuration)

    assert read(VersionManifest, desired_state_configuration=sent) == {"desired_state_configuration": configuration}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(sorted({*PACKAGE, *VERSION})), inner),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(JSON_FIELDS), st.text() | ANYTHING.map(json.dumps))
def test_any_objects_in_a_field_are_stored_whole_or_refused(field: tuple[type[Fields], str], sent: str) -> None:
    stored_or_refused(field, [sent])


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(FIELDS), st.lists(st.text(st.characters(exclude_categories=[])), max_size=3))
def test_any_value_of_a_field_is_stored_whole_or_refused(field: tuple[type[Fields], str], sent: list[str]) -> None:
    stored_or_refused(field, sent)


def stored_or_refused(field: tuple[type[Fields], str], sent: list[str]) -> None:
    kind, name = field
    with suppress(InvalidField):
        manifest = parse_manifest(kind, form({name: sent}))
        assert kind.model_validate(to_document(manifest)) == manifest


def documented(kind: type[Fields]) -> dict[str, Any]:
    """The fields of a kind of manifest in the OpenAPI document."""
    properties: dict[str, Any] = DOCUMENT["components"]["schemas"][f"{kind.__name__}Fields"]["properties"]
    return properties


@each("kind", [kind for kind, _ in KINDS])
def test_openapi_document_has_the_limits_of_the_schema(kind: type[Fields]) -> None:
    assert documented(kind).keys() == kind.model_fields.keys()
    for name, schema in documented(kind).items():
        check(kind, name, schema, of_form=True)


def check(kind: type[Fields], name: str, schema: dict[str, Any], *, of_form: bool = False) -> None:
    """Check that a schema of the OpenAPI document has the limits of a field."""
    field, documented_schema = kind.model_fields[name], resolve_ref(schema)
    if part := part_of(field.annotation):
        item = documented_schema["contentSchema"] if of_form else documented_schema
        for rule in field.metadata:
            assert isinstance(rule, Records)
            assert (item["type"], item["maxItems"], item["uniqueItems"]) == ("array", rule.most, True)
            item = item["items"]
        item = resolve_ref(item)
        assert (item["properties"].keys(), item["additionalProperties"]) == (part.model_fields.keys(), False)
        for member, member_schema in item["properties"].items():
            check(part, member, member_schema)
    else:
        [rule] = field.metadata
        check_rule(rule, documented_schema)


def check_rule(rule: object, documented_schema: dict[str, Any]) -> None:
    match rule:
        case Listed(of=item, most=most):
            assert (documented_schema["type"], documented_schema["maxItems"]) == ("array", most)
            assert documented_schema.get("uniqueItems", False) is not isinstance(rule, Aliases)
            check_rule(item, resolve_ref(documented_schema["items"]))
        case Text(limit=limit, least=least):
            assert (
                documented_schema["type"],
                documented_schema.get("minLength", least),
                documented_schema.get("maxLength", limit),
            ) == ("string", least, limit)
            assert "pattern" in documented_schema
        case Choice(values=values):
            assert documented_schema["enum"] == [*values]
        case Flag():
            assert documented_schema["type"] == "boolean"
        case ReturnCode(low=low, high=high):
            assert (documented_schema["type"], documented_schema["minimum"], documented_schema["maximum"]) == (
                "integer",
                low,
                high,
            )
        case Day():
            assert documented_schema["format"] == "date"
        case _:
            raise AssertionError(rule)
