"""How tests call a service as the gateway does."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import ClientSession

from common.auth.callers import INTERNAL_TOKEN, Caller, sign
from common.http.middleware import AUDIT_HEADER
from tests.support.factories import KEY


@dataclass(frozen=True)
class Answer:
    """A whole answer: `body` is the parsed JSON where it is JSON, else the bytes."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def audit_target(self) -> dict[str, str]:
        """What a service tells the gateway that its write was about."""
        target: dict[str, str] = json.loads(self.headers[AUDIT_HEADER])["target"]
        return target


@dataclass(frozen=True)
class ServiceApi:
    """Calls one service with its internal token."""

    session: ClientSession
    address: str
    service: str

    async def call(self, caller: Caller, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        """Send `data`, `json`, `params` or `headers` as aiohttp's client takes them."""
        path = "/".join(quote(part, safe="") for part in (caller.tenant_id, *operation.split("/"), *segments))
        token = sign(KEY, caller, service=self.service, operation=operation)
        headers = {INTERNAL_TOKEN: token, **request.pop("headers", {})}
        async with self.session.request(method, f"{self.address}/{path}", headers=headers, **request) as response:
            return await read_answer(response)


# What an error never tells: where our code and its stores are, and what they are made of.
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
    """The same answer; one to something that went wrong tells nothing of our insides, whichever test asked for it."""
    if answer.status >= 400:
        # The library that serves is named where a service is asked directly, which only the gateway does.
        headers = {name: value for name, value in answer.headers.items() if name.casefold() != "server"}
        told = f"{answer.body} {headers}".casefold()
        assert [word for word in (*INTERNAL_PATHS, *INTERNAL_NAMES) if word.casefold() in told] == []
    return answer


async def read_answer(response: Any) -> Answer:
    """The answer of an aiohttp client's response."""
    body = await response.read()
    if response.content_type.endswith("json"):
        body = await response.json(content_type=None)
    return assert_no_internals(Answer(response.status, response.headers, body))
