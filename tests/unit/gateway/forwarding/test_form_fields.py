"""Operations for administrators have the form fields of the OpenAPI document, and no others."""

from urllib.parse import urlencode

import pytest

from common.errors import InvalidField
from common.http.forms import MULTIPART, URLENCODED
from gateway.forwarding.proxy import FormFields
from gateway.operations import OPERATIONS, Access, Operation
from tests.support.samples.openapi import DOCUMENT
from tests.support.system.fields import all_fields_of
from tests.support.tables import each

FIELDS = FormFields(DOCUMENT)
CHECKED = [row for row in OPERATIONS if row.access in {Access.ADMINISTRATOR, Access.SESSION} and row.method != "GET"]
UNCHECKED = [row for row in OPERATIONS if row.access in {Access.OPEN, Access.CLIENT, Access.PACKAGE_MANAGER}]


def operation(name: str) -> Operation:
    (row,) = (row for row in OPERATIONS if row.name == name)
    return row


def refusal(name: str, *fields: str) -> str:
    with pytest.raises(InvalidField) as error:
        FIELDS.check(operation(name), fields)
    return error.value.detail


def test_every_field_of_the_document_is_known() -> None:
    for row in CHECKED:
        FIELDS.check(row, [field.name for field in all_fields_of(row) if field.place == "data"])
    FIELDS.check(operation("edit_package"), ["Logo", "logo", "package_id"])  # The last is also in its address.


def test_no_operation_for_administrators_has_an_unknown_field() -> None:
    for row in CHECKED:
        with pytest.raises(InvalidField):
            FIELDS.check(row, ["no such field"])


def test_operations_of_clients_ignore_unknown_fields() -> None:
    assert {"login", "logout", "client_version", "get_packages"} < {row.name for row in UNCHECKED}
    for row in (*UNCHECKED, operation("get_clients")):  # A GET has no form.
        FIELDS.check(row, ["no such field"])


@each(
    ("name", "field", "nearest"),
    [
        ("add_package", "package_descripton", "package_description"),
        ("add_package", "Package-Name", "package_name"),
        ("add_package_version", "switch_silent", "switch_Silent"),
        ("add_package_version", "package_dependencies", "dep_pkg_identifier"),
        ("add_package_version", "PackageDependencies", "dep_pkg_identifier"),
        ("add_package_version", "installer_type", "file_type"),
        ("add_package_version", "product_code", "productcode"),
        ("edit_settings", "client_auth", "client_authentication"),
    ],
)
def test_a_refusal_names_the_nearest_field(name: str, field: str, nearest: str) -> None:
    assert refusal(name, field) == f"{field}: is no field of this operation; did you mean {nearest}?"


def test_a_refusal_shortens_a_long_name_and_leads_to_the_documentation() -> None:
    assert refusal("delete_package", "force") == "force: is no field of this operation; see its documentation"
    assert refusal("add_client", "x" * 10_000).startswith(f"{'x' * 64}…: ")


@each(
    ("kind", "body"),
    [
        (URLENCODED, b"client_name=pc&room=7"),
        (URLENCODED, b"client_name=pc&r%6Fom=7"),
        (f"{URLENCODED}; charset=utf-8", urlencode({"room": "7"}).encode()),
        (f"{MULTIPART}; boundary=b", b'--b\r\nContent-Disposition: form-data; name="room"\r\n\r\n7\r\n--b--\r\n'),
        (
            f"{MULTIPART}; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="room"; filename="a"\r\n\r\n7\r\n--b--\r\n',
        ),
    ],
)
def test_an_unknown_field_of_any_form_is_refused(kind: str, body: bytes) -> None:
    with pytest.raises(InvalidField, match="room: "):
        FIELDS.check_body(operation("add_client"), kind, body)


@each(
    ("kind", "body"),
    [
        ("application/json", b'{"room": 7}'),
        (f"{MULTIPART}; boundary=b", b"nonsense"),
        (URLENCODED, b"client_name=%ff"),
        (URLENCODED, b"%ff=a"),
        (URLENCODED, b"\xff=a"),
        (URLENCODED, b"a=&" * 1001),
        ("", b""),
    ],
)
def test_a_body_that_is_no_form_is_left_to_the_service(kind: str, body: bytes) -> None:
    FIELDS.check_body(operation("add_client"), kind, body)


def test_a_long_name_is_unknown_in_the_form_in_which_it_was_sent() -> None:
    name = "%72oom" * 100
    with pytest.raises(InvalidField, match=f"{name[:64]}…: "):
        FIELDS.check_body(operation("add_client"), URLENCODED, f"{name}=7".encode())
