"""Operations of the interface for the scripts of the pages. They use the browser's session; pages write only here."""

from aiohttp import web

from common.errors import Problem, UpstreamProblem
from common.http.middleware import PROBLEM_RENDERER, problem_response
from gateway.dashboard.error_messages import localized
from gateway.dashboard.languages import language_of
from gateway.dashboard.page_request import PageRequest
from gateway.forwarding.execute import execute_operation
from gateway.operations import Access
from gateway.routing.target import NoSuchOperation, Target, find_operation

CSRF_HEADER = "X-CSRF-Token"
READ_METHODS = ("GET", "HEAD")
STORAGE_EXCEEDED, TOO_LARGE = 407, 413  # Browsers hide a response with status 407 from scripts.


def localize_problems(request: web.Request) -> None:
    """Answer the problems of this request as JSON in the language of the page."""
    language = language_of(request)
    request[PROBLEM_RENDERER] = lambda problem: _localized_response(language, problem)


async def execute_for_session(page: PageRequest, path: tuple[str, ...]) -> web.StreamResponse:
    """Execute the operation of an address. Raises its problem.

    Raises NoSuchOperation if administrators may not use it, Forbidden for a write without the session's CSRF token.
    """
    operation, segments = find_operation(page.request.method, path)
    if operation.access not in {Access.ADMINISTRATOR, Access.SESSION}:
        raise NoSuchOperation
    if page.request.method not in READ_METHODS:
        page.verify_csrf_token(page.request.headers.get(CSRF_HEADER, ""))
    target = Target(page.caller.tenant_id, operation, segments)
    return await execute_operation(page.request, page.caller, target)


def _localized_response(language: str, problem: Problem) -> web.Response:
    status = TOO_LARGE if problem.status == STORAGE_EXCEEDED else problem.status
    detail = localized(problem, language)
    translated = UpstreamProblem(detail, status=status, code=problem.code, retry_after=problem.retry_after)
    translated.members, translated.params = problem.members, problem.params
    return problem_response(translated)
