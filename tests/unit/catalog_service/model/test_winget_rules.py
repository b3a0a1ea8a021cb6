"""Values that winget clients refuse: winget's own fields are answered with 400, others are stored and not offered."""

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from catalog_service.model.enumerations import FileType, Locale
from catalog_service.model.versions import Dependencies, PackageVersion
from catalog_service.model.winget_rules import contradictions, winget_refusals
from catalog_service.versions.forms import new_version
from common.errors import InvalidField
from common.http.forms import Form
from tests.support.services.catalog import version_form
from tests.support.tables import each

ENTRY = '[{"display_name": "Editor"}]'
ENTRIES = '[{"display_name": "Editor"}, {"display_name": "Editor 2"}]'
CODES = json.dumps([{"installer_return_code": code, "return_response": "custom"} for code in (5, 6)])
GUID = "{0A1B2C3D-0000-4000-8000-00000000000F}"
ZIP: dict[str, Any] = {"file_type": "ZIP", "file_type_nested": "EXE", "file_nested_path": "a.exe"}
PORTABLE: dict[str, Any] = {**ZIP, "file_type_nested": "PORTABLE"}


def read(**fields: Any) -> PackageVersion:
    sent = {**version_form(), "server_filename": "file", **fields}
    form = Form({name: (value,) if isinstance(value, str) else tuple(value) for name, value in sent.items()})
    return new_version(form, "acme.editor")


@each(
    "fields",
    [
        {},
        {"productcode": GUID, "apps_and_features_entries": ENTRIES},
        {"file_type": "MSIX", "package_family_name": "Acme.Editor_8wekyb3d8bbwe"},
        {"file_type": "FONT"},
        {"file_type": "PORTABLE", "commands": "edit", "apps_and_features_entries": ENTRY},
        {"commands": "edit,editor"},
        ZIP,
        {**ZIP, "productcode": GUID},
        {**PORTABLE, "file_nested_path": ("a.exe", "b.exe"), "portable_command_alias": ("a", "b")},
        {**PORTABLE, "commands": "edit,editor", "apps_and_features_entries": ENTRY},
        {**ZIP, "file_type_nested": "FONT", "file_nested_path": ("a.ttf", "b.ttf")},
        {"installer_success_codes": "7", "expected_return_codes": CODES},
        {"dep_windows_features": "NetFx3,Containers-DisposableClientVM,IIS_6"},
        {"allowed_markets": "DE"},
    ],
    ids=repr,
)
def test_a_version_that_clients_accept_is_offered(fields: dict[str, Any]) -> None:
    version = read(**fields)

    assert list(contradictions(version)) == []
    assert winget_refusals([version]) == {}


@each(
    ("field", "fields"),
    [
        ("apps_and_features_entries", {"file_type": "MSIX", "apps_and_features_entries": ENTRY}),
        ("apps_and_features_entries", {"file_type": "appx", "apps_and_features_entries": ENTRY}),
        ("apps_and_features_entries", {**ZIP, "file_type_nested": "MSIX", "apps_and_features_entries": ENTRY}),
        ("apps_and_features_entries", {"file_type": "PORTABLE", "apps_and_features_entries": ENTRIES}),
        ("apps_and_features_entries", {**PORTABLE, "apps_and_features_entries": ENTRIES}),
        ("commands", {"file_type": "PORTABLE", "commands": "edit,editor"}),
        ("excluded_markets", {"allowed_markets": "DE", "excluded_markets": "US"}),
        ("expected_return_codes", {"expected_return_codes": CODES.replace("6,", "5,")}),
        ("expected_return_codes", {"expected_return_codes": CODES, "installer_success_codes": "1,6"}),
        ("dep_windows_features", {"dep_windows_features": "NetFx3,Net Fx 4"}),
        ("dep_windows_features", {"dep_windows_features": "NétFx3"}),
        ("portable_command_alias", {"portable_command_alias": "edit"}),
        ("portable_command_alias", {**ZIP, "portable_command_alias": "edit"}),
        ("portable_command_alias", {**PORTABLE, "portable_command_alias": ("edit", "more")}),
    ],
    ids=repr,
)
def test_contradictory_winget_fields_are_refused(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidField, match=f"^{field}: "):
        read(**fields)


@each(
    ("field", "fields"),
    [
        ("package_version", {"package_version": "<1.0"}),
        ("package_version", {"package_version": "1<2"}),
        ("productcode", {"file_type": "MSIX", "productcode": GUID}),
        ("productcode", {"file_type": "APPX", "productcode": GUID}),
        ("productcode", {**ZIP, "file_type_nested": "MSIX", "productcode": GUID}),
        ("file_type_nested", {**ZIP, "file_type_nested": ""}),
        ("file_type_nested", {**ZIP, "file_type_nested": "ZIP"}),
        ("file_nested_path", {**ZIP, "file_nested_path": ""}),
        ("file_nested_path", {**ZIP, "file_nested_path": ("a.exe", "b.exe")}),
        ("file_nested_path", {**PORTABLE, "file_nested_path": ("a.exe", "A.EXE")}),
    ],
    ids=repr,
)
def test_a_version_allowed_by_the_specification_only_is_not_offered(field: str, fields: dict[str, Any]) -> None:
    version = read(**fields)

    ((refusal,),) = winget_refusals([version]).values()
    assert refusal.field == field


def test_stored_version_with_a_wrong_windows_feature_is_not_offered() -> None:
    version = replace(read(), dependencies=Dependencies(windows_features=("NetFx3", "Net Fx 4")))

    ((refusal,),) = winget_refusals([version]).values()
    assert (refusal.field, refusal.code) == ("dep_windows_features", "not_a_feature")


@each(
    ("first", "second"),
    [
        ({"file_type": "MSIX"}, {"file_type": "APPX"}),
        ({**ZIP, "file_type_nested": "MSIX"}, {**ZIP, "file_type_nested": "APPX"}),
    ],
    ids=["packages", "archives"],
)
def test_msix_and_appx_are_one_installer_type(first: dict[str, str], second: dict[str, str]) -> None:
    assert len(winget_refusals([read(**first), read(**second)])) == 1


@each(
    ("first", "second"),
    list(combinations([kind for kind in FileType if kind not in {FileType.APPX, FileType.ZIP}], 2)),
    ids=str,
)
def test_other_installer_types_differ(first: FileType, second: FileType) -> None:
    assert winget_refusals([read(file_type=first), read(file_type=second)]) == {}


@each("package_id", ["editor", "acme.", "acme..editor", "acme.an editor", f"acme.{'e' * 33}"])
def test_a_package_whose_id_winget_refuses_is_not_offered(package_id: str) -> None:
    version = replace(read(), package_id=package_id)

    ((refusal,),) = winget_refusals([version]).values()
    assert refusal.field == "package_id"


def test_a_version_is_not_refused_for_another() -> None:
    good, bad = read(), read(package_version="<2")

    assert winget_refusals([good, bad]).keys() == {bad.uid}


@each(
    "other",
    [
        {},
        {"channel": "beta"},
        {"package_locale": "de-DE", "installer_locale": "EN_us"},
        {"file_type_nested": "WIX"},  # The type is no archive, so these fields do not count.
    ],
    ids=repr,
)
def test_one_of_indistinguishable_installers_is_offered(other: dict[str, str]) -> None:
    first, second = sorted([read(), read(**other)], key=lambda version: version.uid)

    assert winget_refusals([first, second]).keys() == winget_refusals([second, first]).keys() == {second.uid}


@each(
    "other",
    [
        {"file_architect": "arm64"},
        {"file_scope": "user"},
        {"file_type": "WIX"},
        {"package_locale": "de-DE"},
        {"installer_locale": "de-DE"},
        {**ZIP, "file_type_nested": "MSI"},
    ],
    ids=repr,
)
def test_distinguishable_installers_are_all_offered(other: dict[str, Any]) -> None:
    assert winget_refusals([read(), read(**other)]) == {}


def test_a_refused_installer_does_not_hide_others_like_it() -> None:
    bad = replace(read(**{**ZIP, "file_nested_path": ""}), uid="0")
    good = replace(read(**ZIP), uid="1")

    assert winget_refusals([bad, good]).keys() == {"0"}


def test_the_language_of_an_installer_distinguishes_it() -> None:
    plain, spelt = read(package_locale="ko-KR"), read(installer_locale="KO-kr")

    assert (plain.locale, plain.language, spelt.language) == (Locale.KO_KR, "ko-KR", "ko-KR")
    assert plain.installer_key == spelt.installer_key != read().installer_key
    assert read(installer_locale="sv-SE").installer_key.split("\n")[5] == "sv-SE"
