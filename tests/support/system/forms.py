"""Request bodies as bytes, and valid forms for each operation."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from gateway.operations import OPERATIONS, Access, Operation
from tests.support.api import Answer
from tests.support.samples.openapi import DOCUMENT
from tests.support.system.fields import fields_of
from tests.support.system.seed import SeedData, title


def contents_of(row: Operation) -> dict[str, dict[str, dict[str, object]]]:
    """The content types of an operation's body, with their schemas."""
    operation = DOCUMENT["paths"].get(f"/{row.path}", {}).get(row.method.lower(), {})
    contents: dict[str, dict[str, dict[str, object]]] = operation.get("requestBody", {"content": {}})["content"]
    return contents


FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=limit"
END = b"--limit--\r\n"
TRANSFER = {"X-File-ID": "malformed", "Content-Range": "bytes 0-3/4"}
WITH_FIELDS = [row for row in OPERATIONS if fields_of(row) and row.access is not Access.SIGNED]
# Deletions come last, so one tenant is enough for all writes.
WRITES = sorted(
    (row for row in OPERATIONS if row.audited), key=lambda row: (row.method == "DELETE", row.name == "delete_package")
)
# These succeed with an identity provider only: see `test_company_login`.
OF_PROVIDERS = {
    "sign_in/oidc/backchannel_logout",
    "edit_company_login",
    "test_company_login",
    "delete_company_login",
}
UPLOADS = [row for row in OPERATIONS if title(row) == "POST-upload_package_version"]
# The document does not describe the sign-in form of browsers.
WITH_BODY = [row for row in OPERATIONS if "multipart/form-data" in contents_of(row) or title(row) == "POST-sign_in"]
Body = tuple[dict[str, str], bytes]


def part(name: str, value: bytes, more: str = "") -> bytes:
    return f'--limit\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode() + value + b"\r\n"


CHUNK = part("chunk", b"abcd", '; filename="blob"')


def encoded(form: Mapping[str, str], kind: str = FORM, more: bytes = b"") -> Body:
    return {"Content-Type": kind}, urlencode(form).encode() + more


def multipart(form: Mapping[str, str], kind: str = MULTIPART, more: bytes = b"", end: bytes = END) -> Body:
    return {"Content-Type": kind}, b"".join(part(name, value.encode()) for name, value in form.items()) + more + end


def own_form(row: Operation, seed_data: SeedData) -> dict[str, str]:
    """Valid values for an operation's own fields.

    The file is an archive, so every field is read. The session stays valid, and no client is recorded as seen.
    """
    good, names = dict(seed_data.form), {field.name for field in fields_of(row)}
    if row.access is Access.CLIENT:
        names.discard("auth_token")
    good |= {"file_type": "ZIP", "token": "another session's", "client": "0", "version_key": "version"}
    if row.name == "add_user":
        good["username"] = "newcomer"
    return {name: value for name, value in good.items() if name in names}


async def send_whole(row: Operation, seed_data: SeedData, **more: str) -> Answer:
    """Call an operation with its valid form as multipart, and with more fields."""
    chunk, transfer = (CHUNK, TRANSFER) if row in UPLOADS else (b"", {})
    headers, body = multipart({**own_form(row, seed_data), **more}, more=chunk)
    return await seed_data.send(row, headers={**headers, **transfer}, data=body)


async def send_form(row: Operation, seed_data: SeedData, *, without: str = "", **request: Any) -> Answer:
    """Call an operation with its valid form, without one field and with the `data` and `params` of `request`."""
    api = seed_data.api.anonymous() if row.access is Access.CLIENT else seed_data.caller_of(row)
    form = {name: value for name, value in own_form(row, seed_data).items() if name != without}
    return await seed_data.send(row, api, **{**request, "data": {**form, **request.get("data", {})}})
