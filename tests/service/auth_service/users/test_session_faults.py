"""Redis or MongoDB fails at each step of an operation that ends sessions; a repeated call ends them all."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from pymongo.errors import AutoReconnect

from auth_service.users.store import MongoUserStore, UserNotFound
from common.auth.internal_tokens import Caller
from common.mongo import MongoError
from common.redis import RedisError
from tests.support.api import Answer
from tests.support.services.auth import PASSWORD, Auth, from_other_address
from tests.support.step_faults import Fault, Steps
from tests.support.tables import sampled

NEW = "another password for tests"


@dataclass
class Setup:
    """A tenant with sessions of `admin` and `ada`. An operation must end the sessions of `tokens`."""

    auth: Auth
    admin: Caller
    ada: Caller
    tokens: list[str] = field(default_factory=list)

    async def sign_in(self) -> None:
        """Sign in as `ada` with the first password from a new address, if that is possible."""
        answer = await self.auth.login(from_other_address(self.admin), "ada")
        if answer.status == 200:
            self.tokens.append(answer.body["message"])

    async def living_sessions(self) -> int:
        return len([token for token in self.tokens if await self.auth.session(self.admin, token)])


Operation = Callable[[Setup], Awaitable[bool]]  # whether the operation reports success


def is_done(answer: Answer, *other_statuses: int) -> bool:
    assert answer.status in {200, 500, *other_statuses}, answer.body
    return answer.status == 200


async def delete_user(setup: Setup) -> bool:
    return is_done(await setup.auth.call(setup.admin, "DELETE", "delete_user", "ada"), 404)


async def change_password(setup: Setup) -> bool:
    form = {"old_password": PASSWORD, "new_password": NEW}
    return is_done(await setup.auth.call(setup.ada, "POST", "change_password", data=form))


async def delete_by_command(setup: Setup) -> bool:
    with suppress(RedisError, MongoError, UserNotFound):
        await setup.auth.users.delete(setup.admin.tenant_id, "ada")
        return True
    return False


async def reset_by_command(setup: Setup) -> bool:
    with suppress(RedisError, MongoError):
        await setup.auth.users.reset_password(setup.admin.tenant_id, "ada", NEW)
        return True
    return False


async def logout(setup: Setup) -> bool:
    answers = [await setup.auth.call(setup.admin, "POST", "logout", data={"token": token}) for token in setup.tokens]
    return all(is_done(answer) for answer in answers)


ENDING_ALL = [delete_user, change_password, delete_by_command, reset_by_command]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Records every command to Redis and every change of a user."""
    steps = Steps()
    steps.watch_redis(monkeypatch)
    for name in ("set_password", "delete"):
        steps.watch(monkeypatch, MongoUserStore, name, AutoReconnect("a fault of this test"))
    return steps


async def make_setup(auth: Auth) -> Setup:
    admin = await auth.tenant("admin", "ada")
    session = await auth.session(admin, await auth.token(admin, "ada"))
    assert session is not None
    setup = Setup(auth, admin, replace(from_other_address(admin), username="ada", session_id=session.session_id))
    await setup.sign_in()
    return setup


async def run(operation: Operation, setup: Setup, steps: Steps) -> bool:
    """Run the operation. `ada` signs in before and after each step, unless only existing sessions end."""
    steps.between = None if operation is logout else setup.sign_in
    return await steps.run(partial(operation, setup))


@pytest.mark.parametrize("operation", ENDING_ALL)
async def test_sessions_opened_between_the_steps_end_too(auth: Auth, steps: Steps, operation: Operation) -> None:
    setup = await make_setup(auth)

    assert await run(operation, setup, steps)

    assert len(setup.tokens) > 1
    assert await setup.living_sessions() == 0


async def living_after_a_fault(auth: Auth, steps: Steps, operation: Operation, step: int, fault: Fault) -> str:
    """The broken promises after a fault at a step and a repeated call."""
    setup = await make_setup(auth)
    steps.failing_step, steps.fault = step, fault
    if await run(operation, setup, steps) and await setup.living_sessions():
        return f"step {step}: success with a living session"
    await operation(setup)
    return f"step {step}: a living session after the repeated call" if await setup.living_sessions() else ""


@sampled(3)
@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("operation", [*ENDING_ALL, logout])
async def test_a_call_repeated_after_a_fault_at_any_step_ends_every_session(
    auth: Auth, steps: Steps, operation: Operation, fault: Fault, every: int
) -> None:
    await run(operation, await make_setup(auth), steps)
    last, first = steps.count, 1 + [*Fault].index(fault) % every  # The faults have different samples.

    wrong = [await living_after_a_fault(auth, steps, operation, step, fault) for step in range(first, last + 1, every)]

    assert [problem for problem in wrong if problem] == []


@pytest.mark.parametrize("operation", [delete_user, change_password])
async def test_nothing_changes_if_the_sessions_cannot_be_ended(
    auth: Auth, steps: Steps, operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = await make_setup(auth)
    with monkeypatch.context() as patched:
        patched.setattr("common.auth.sessions.Sessions.close_all", _fail)
        assert not await operation(setup)

    assert (await auth.login(setup.admin, "ada")).status == 200


async def _fail(*_: object, **__: object) -> None:
    raise RedisError("a fault of this test")
