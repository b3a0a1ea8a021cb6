"""Calls of a service with an internal token, as the gateway makes them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import ClientSession

from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, sign
from common.http.middleware import AUDIT_HEADER
from tests.support.factories import KEY


@dataclass(frozen=True)
class Answer:
    """A complete response. `body` is parsed JSON, or bytes for other content types."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def audit_target(self) -> dict[str, str]:
        """The audit target that the service reports to the gateway."""
        target: dict[str, str] = json.loads(self.headers[AUDIT_HEADER])["target"]
        return target


@dataclass(frozen=True)
class ServiceApi:
    """Calls one service with its internal token."""

    session: ClientSession
    address: str
    service: str

    async def call(self, caller: Caller, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        """Send a request. `request` has `data`, `json`, `params` or `headers` of aiohttp's client."""
        path = "/".join(quote(part, safe="") for part in (caller.tenant_id, *operation.split("/"), *segments))
        token = sign(KEY, caller, service=self.service, operation=operation)
        headers = {INTERNAL_TOKEN: token, **request.pop("headers", {})}
        async with self.session.request(method, f"{self.address}/{path}", headers=headers, **request) as response:
            return await read_answer(response)


# Texts that no error may contain: paths and addresses, and names of the libraries.
INTERNAL_PATHS = (
    "Traceback",
    'File "',
    ".py",
    str(Path(__file__).parents[2]),
    "/usr",
    "site-packages",
    "Errno",
    "127.0.0.1:",
    "sock",
)
INTERNAL_NAMES = (
    "mongo",
    "redis",
    "rabbit",
    "amqp",
    "aiohttp",
    "motor",
    "bson",
    "orjson",
    "Exception",
    "Error:",
    "Error(",
    "object at",
)


def assert_no_internals(answer: Answer) -> Answer:
    """Check that an error response reveals no internals. Returns the response."""
    if answer.status >= 400:
        # Services name their library in `Server`; only the gateway sees it.
        headers = {name: value for name, value in answer.headers.items() if name.casefold() != "server"}
        text = f"{answer.body} {headers}".casefold()
        assert [word for word in (*INTERNAL_PATHS, *INTERNAL_NAMES) if word.casefold() in text] == []
    return answer


async def read_answer(response: Any) -> Answer:
    """Read and check a response of aiohttp's client."""
    body = await response.read()
    if response.content_type.endswith("json"):
        body = await response.json(content_type=None)
    return assert_no_internals(Answer(response.status, response.headers, body))
