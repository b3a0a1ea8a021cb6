"""Repeats the work of a backup while a store is slow or away. What is copied stays copied."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import stamina
import stamina.instrumentation

from common.errors import Unavailable
from common.mongo import MongoError
from deploy.backup.manifest import BackupProblem
from deploy.operator.audit import NotRecorded
from deploy.operator.store_failures import describe, is_temporary

ATTEMPTS = 8  # with pauses of about 2, 4, 8, 16, 32, 60 and 60 seconds: longer than a restart of MongoDB
Result = TypeVar("Result")

_retrying = stamina.AsyncRetryingCaller(
    attempts=ATTEMPTS, timeout=None, wait_initial=2.0, wait_max=60.0, wait_jitter=1.0
).on(lambda error: bool(_passing_cause(error)))


async def run_with_retries(work: Callable[[], Awaitable[Result]]) -> Result:
    """The result of the work, which can be repeated. Raises BackupProblem after the last attempt."""
    try:
        return await _retrying(work)
    except (MongoError, NotRecorded, Unavailable) as error:
        if cause := _passing_cause(error):
            raise BackupProblem(
                f"{cause}. Gave up after {ATTEMPTS} attempts. Run the same command again when the store answers; "
                "installers that were copied are not copied again"
            ) from error
        raise


def print_retries(print_line: Callable[[str], None]) -> None:
    """Print a line before each further attempt."""

    def on_retry(details: stamina.instrumentation.RetryDetails) -> None:
        print_line(f"{_passing_cause(details.caused_by)}. Trying again in {details.wait_for:.0f} s.")

    stamina.instrumentation.set_on_retry_hooks([on_retry])


def _passing_cause(error: BaseException | None) -> str:
    """The cause of a failure that may pass by itself, in one sentence without a full stop; "" for any other."""
    if isinstance(error, NotRecorded):
        error = error.__context__  # the failure of the audit log
    if isinstance(error, Unavailable):
        return error.detail.removesuffix(".")
    return describe(error) if isinstance(error, MongoError) and is_temporary(error) else ""
