"""The one door by which pages write: an operation of the interface, done for the session of the browser."""

from functools import partial

from aiohttp import web

from common.errors import Problem, UpstreamProblem
from common.http.middleware import PROBLEM_RENDERER, ProblemRenderer, problem_response
from gateway.dashboard.error_messages import localized
from gateway.dashboard.languages import language_of
from gateway.dashboard.page_request import PageRequest
from gateway.forwarding.execute import execute_operation
from gateway.operations import Access
from gateway.routing.target import NoSuchOperation, Target, find

TOKEN_HEADER = "X-CSRF-Token"  # noqa: S105  the header's name
READS = {"GET", "HEAD"}
STORAGE_EXCEEDED, TOO_LARGE = 407, 413  # No script of a browser is shown an answer with the former.


def tell_scripts(request: web.Request) -> None:
    """Let problems be told as pages' scripts understand them, in the language of the page."""
    telling: ProblemRenderer = partial(_told, language_of(request))
    request[PROBLEM_RENDERER] = telling


async def perform_in(visit: PageRequest, parts: tuple[str, ...], stamp: str | None) -> web.StreamResponse:
    """The answer of the operation that the parts of an address name.

    Raises:
        NoSuchOperation: there is none, or it is no administrator's.
        Forbidden: a write does not come from a page of this session.
        And what the operation ends in.
    """
    operation, segments = find(visit.request.method, parts)
    if operation.access is not Access.ADMINISTRATOR:
        raise NoSuchOperation
    if visit.request.method not in READS:
        visit.check_token(visit.request.headers.get(TOKEN_HEADER, ""))
    return await execute_operation(
        visit.request, visit.caller, Target(visit.caller.tenant_id, operation, segments), stamp
    )


def _told(language: str, problem: Problem) -> web.Response:
    """A problem in the words of the page's language, with a status that scripts may see."""
    status = TOO_LARGE if problem.status == STORAGE_EXCEEDED else problem.status
    told = UpstreamProblem(
        localized(problem, language),
        status=status,
        code=problem.code,
        retry_after=problem.retry_after,
    )
    told.members = problem.members
    return problem_response(told)
