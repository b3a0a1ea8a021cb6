"""How long a sign-in takes, by what is wrong with it: the time may not tell which."""

import random
import time
from statistics import median

from auth_service.login.throttle_store import RedisFailureCounts
from common.auth.callers import Caller
from common.redis import open_redis
from tests.bench.report import Found, Section
from tests.bench.scale import Run
from tests.support.services.auth import PASSWORD, Auth, from_other_address, serving_auth

ALLOWED = 0.1  # of the shortest median, that the longest may be longer
WRONG = "not this password"


async def _measured(run: Run) -> dict[str, list[float]]:
    """Seconds of each sign-in, by what is wrong; one of each kind a round, in an order that changes."""
    async with (
        serving_auth(run.stores.mongo_url, run.stores.redis_url) as auth,
        open_redis(run.stores.redis_url) as redis,
    ):
        caller, stranger = await auth.tenant("admin", "ada", "deleted"), await auth.tenant()
        await auth.call(caller, "DELETE", "delete_user", "deleted")
        cases = {
            "unknown user": (caller, "nobody", PASSWORD),
            "deleted user": (caller, "deleted", PASSWORD),
            "wrong password": (caller, "ada", WRONG),
            "right password, wrong tenant": (stranger, "ada", PASSWORD),
        }
        seconds: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(run.scale.sign_ins):
            for name in random.sample(list(cases), len(cases)):
                there, username, password = cases[name]
                await RedisFailureCounts(redis).forget(f"user:{there.tenant_id}:{username}")
                seconds[name].append(await refusal(auth, from_other_address(there), username, password))
        return seconds


async def refusal(auth: Auth, caller: Caller, username: str, password: str) -> float:
    """Seconds until a sign-in is refused."""
    began = time.perf_counter()
    answer = await auth.login(caller, username, password)
    took = time.perf_counter() - began
    if answer.status != 401:
        raise RuntimeError(f"{username} was answered with {answer.status}")
    return took


async def measure(run: Run) -> Found:
    """The median of each, and by how much the longest is longer than the shortest."""
    medians = {name: median(each) * 1000 for name, each in (await _measured(run)).items()}
    ratio = max(medians.values()) / min(medians.values()) - 1
    text = f"""Median of {run.scale.sign_ins} each, in turn, in an order that changes: its time may not tell
what is wrong with a sign-in. The longest is {ratio:.1%} longer than the shortest; {ALLOWED:.0%} are
allowed."""
    rows = [(name, f"{found:.1f}") for name, found in medians.items()]
    return Found(sections=[Section("A refused sign-in", text, ("what is wrong", "ms"), rows)])
