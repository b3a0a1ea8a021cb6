"""A stub of other services, which answers each operation with the method of its name."""

from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from aiohttp import web

from common.errors import Problem
from common.http.middleware import json_response, problems


@dataclass
class StubServices:
    """A stub whose methods take the tenant and the JSON body, or the last segments of a path, and return JSON.

    It records the `requests`: operation and body. It raises the operation's one of `refusals`, or else
    `refusal`, if that is not None.
    """

    requests: list[tuple[str, Any]] = field(default_factory=list)
    refusal: Problem | None = None
    refusals: dict[str, Problem | None] = field(default_factory=dict)

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.requests]

    def app(self) -> web.Application:
        app = web.Application(middlewares=[problems])
        app.router.add_route("*", "/{tenant_id}/{operation}{rest:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        tenant_id, operation, rest = (request.match_info[name] for name in ("tenant_id", "operation", "rest"))
        body = await request.json() if request.method == "POST" else rest.removeprefix("/")
        self.requests.append((operation, body))
        if refusal := self.refusals.get(operation, self.refusal):
            raise refusal
        answer = getattr(self, operation)(tenant_id, body)
        return json_response(await answer if isawaitable(answer) else answer)
