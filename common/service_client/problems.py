"""Reads the responses of other services: their JSON, or their problems."""

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import ClientError

from common.auth.internal_tokens import UntrustedCaller
from common.errors import Unavailable, UpstreamProblem
from common.service_client.transport import Response

MEMBERS = ("received", "total")  # in bytes: the state of the upload whose chunk was refused
TEXT_MEMBERS = ("ring", "gate")  # that refused a version


async def raise_problem(response: Response) -> None:
    """Raise the problem of an error response; do nothing for any other."""
    if response.status >= 400:
        raise await _problem_of(response)


async def json_of(response: Response) -> Any:
    """The JSON body of a response. Raises its problem."""
    await raise_problem(response)
    return orjson.loads(await response.read())


async def _problem_of(response: Response) -> UpstreamProblem | Unavailable:
    try:
        problem = orjson.loads(await response.read())
        code, detail = str(problem["code"]), str(problem["detail"])
    except (orjson.JSONDecodeError, KeyError, TypeError, ClientError):
        return Unavailable(f"A service answered with status {response.status} and no reason.")
    if code == UntrustedCaller.code:
        # The service rejected our token, not the caller's: the two services have different keys.
        return Unavailable("The services do not trust each other; their keys differ.")
    retry_after, params = response.headers.get("Retry-After", ""), problem.get("params")
    return UpstreamProblem(
        detail,
        status=response.status,
        code=code,
        retry_after=int(retry_after) if retry_after.isdigit() else None,
        content_range=response.headers.get("Content-Range", ""),
        members=_members_of(problem),
        params={name: str(value) for name, value in params.items()} if isinstance(params, dict) else {},
    )


def _members_of(problem: Mapping[str, Any]) -> dict[str, int | str]:
    numbers = {name: value for name in MEMBERS if type(value := problem.get(name)) is int and value >= 0}
    return numbers | {name: value for name in TEXT_MEMBERS if isinstance(value := problem.get(name), str)}
