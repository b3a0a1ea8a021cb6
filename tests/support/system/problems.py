"""The form of errors that the interface promises."""

from http import HTTPStatus

from common.http.middleware import REQUEST_IDS
from gateway.operations import Operation
from tests.support.api import Answer

TITLES = {407: "Storage Exceeded"}  # The interface gives this status its own meaning.
MEMBERS = ["type", "title", "status", "detail", "code", "request_id"]
# The offsets after a refused chunk, as far as they are known, and the values in the detail.
OPTIONAL_MEMBERS = ["received", "total", "params"]


def check_problem(answer: Answer, status: int, code: str) -> None:
    """Check that an error is problem details with the request's id."""
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json"), answer.body
    assert [name for name in answer.body if name not in OPTIONAL_MEMBERS] == MEMBERS, answer.body
    expected = {"status": status, "code": code, "type": "about:blank"}
    expected |= {"title": TITLES.get(status, HTTPStatus(status).phrase), "request_id": answer.headers["X-Request-Id"]}
    assert {name: answer.body[name] for name in expected} == expected, (answer.body, expected)
    assert answer.body["detail"], answer.body
    assert all(isinstance(value, str) for value in answer.body.get("params", {}).values()), answer.body
    assert REQUEST_IDS.fullmatch(answer.body["request_id"]), answer.body


def check_error(row: Operation, answer: Answer, status: int, code: str) -> None:
    """Check an error in the form of the operation's protocol."""
    if not row.is_winget:
        check_problem(answer, status, code)
        return
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json"), answer.body
    detail = answer.body["message"]
    assert detail, answer.body
    expected = {"code": status, "message": detail, "ErrorCode": status, "ErrorMessage": detail}
    assert answer.body == expected, (answer.body, expected)
