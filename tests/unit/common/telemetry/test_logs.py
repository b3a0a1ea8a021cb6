"""Logs are JSON with the request's id, and never contain a secret."""

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
import structlog
from structlog.contextvars import bound_contextvars

from common.telemetry import configure_logs, log

CANARY = "canary-7f3a9c"
TOKEN = jwt.encode({"sub": CANARY}, "k" * 32, algorithm="HS256")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The stream of the logs during a test; the previous configuration is restored afterwards."""
    before, handlers, level = structlog.get_config(), logging.root.handlers[:], logging.root.level
    written = io.StringIO()
    configure_logs("debug", written)
    yield written
    structlog.configure(**before)
    logging.captureWarnings(False)
    logging.root.handlers[:], logging.root.level = handlers, level


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


SHAPES = {
    "a bearer": f"Authorization: Bearer {CANARY}",
    "a basic one": f"authorization: basic {CANARY}==",
    "a session token": f"refused {TOKEN} for acme",
    "an address with a password": f"mongodb://user:{CANARY}@host:27017/?directConnection=true",
    "a password with a colon and an at": f"amqp://user:a:b@{CANARY}@host/",
    "a signed download": f"GET /acme/download/x.exe/y.exe?expires=9&signature={CANARY} HTTP/1.1",
    "an address of the object storage": f"https://s3/b/o?X-Amz-Credential={CANARY}&X-Amz-Signature={CANARY}&x=1",
    "a form": f"username=admin&password={CANARY}",
    "a client's form": f"auth_token={CANARY}&client=1",
    "JSON": f'{{"new_password": "{CANARY}"}}',
    "a dictionary": str({"auth_token": CANARY}),
    "a path with a client's token": f"DELETE /acme/delete_client/6c9f2a17/{CANARY}",
}


@pytest.mark.parametrize("text", SHAPES.values(), ids=SHAPES)
def test_a_secret_is_recognised_by_its_shape(stream: io.StringIO, text: str) -> None:
    log.info("some", told=text, several=[text], inner={"told": text}, cause=ValueError(text))
    log.info(text)
    logging.getLogger("a library").warning("it said %s", text)
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("failed")
        logging.getLogger("a library").exception("failed")

    assert len(lines(stream)) == 5
    assert CANARY not in stream.getvalue()
    assert TOKEN not in stream.getvalue()
    assert "[redacted]" in stream.getvalue()


@pytest.mark.parametrize("name", ["password", "auth_token", "Authorization", "Cookie", "session_key", "signature"])
def test_a_secret_is_recognised_by_its_name(stream: io.StringIO, name: str) -> None:
    log.info("some", **{name: CANARY}, inner={name: [CANARY]})

    assert lines(stream)[0][name] == "[redacted]"
    assert CANARY not in stream.getvalue()


def test_other_values_are_logged_unchanged(stream: io.StringIO) -> None:
    logged = {
        "address": "http://127.0.0.1:8080",
        "store": "mongodb://one:1,two:2/?replicaSet=rs0",
        "client_id": "6c9f2a17-0f3c-4b8a-9d55-7e1b2c3d4e5f",
        "detail": "password: has at least 12 characters; send `Authorization: Bearer <token>`",
        "mail": "write to someone@example.com",
        "count": 3,
        "ratio": 0.5,
        "none": None,
        "list": ["a", 1],
    }
    log.info("some", **logged)

    assert logged.items() <= lines(stream)[0].items()


@pytest.mark.filterwarnings("default")
def test_warnings_of_python_are_log_lines_too(stream: io.StringIO) -> None:
    warnings.warn(f"Bearer {CANARY}", RuntimeWarning, stacklevel=1)

    (line,) = lines(stream)
    assert "RuntimeWarning" in line["event"]
    assert CANARY not in line["event"]


def test_a_line_has_the_request_s_id(stream: io.StringIO) -> None:
    with bound_contextvars(request_id="0" * 32):
        log.warning("ours")
        logging.getLogger("a library").warning("theirs")

    assert [line["request_id"] for line in lines(stream)] == ["0" * 32] * 2
