"""The duration of rejected sign-ins. It must not reveal the reason."""

import random
import time
from statistics import median

from auth_service.users.throttle_store import RedisFailureCounts
from common.auth.internal_tokens import Caller
from common.redis import open_redis
from tests.bench.report import PartResult, Section
from tests.bench.scale import Run
from tests.support.services.auth import PASSWORD, Auth, from_other_address, serving_auth

ALLOWED = 0.1  # allowed difference between the longest and shortest median, relative to the shortest
WRONG = "not this password"


async def _measure(run: Run) -> dict[str, list[float]]:
    """The seconds of sign-ins by reason. Each round has one of each kind, in random order."""
    async with (
        serving_auth(run.stores.mongo_url, run.stores.redis_url) as auth,
        open_redis(run.stores.redis_url) as redis,
    ):
        caller, other_tenant = await auth.tenant("admin", "ada", "deleted"), await auth.tenant()
        await auth.call(caller, "DELETE", "delete_user", "deleted")
        cases = {
            "unknown user": (caller, "nobody", PASSWORD),
            "deleted user": (caller, "deleted", PASSWORD),
            "wrong password": (caller, "ada", WRONG),
            "right password, wrong tenant": (other_tenant, "ada", PASSWORD),
        }
        seconds: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(run.scale.sign_ins):
            for name in random.sample(list(cases), len(cases)):
                tenant_caller, username, password = cases[name]
                await RedisFailureCounts(redis).forget(f"user:{tenant_caller.tenant_id}:{username}")
                seconds[name].append(await time_rejection(auth, from_other_address(tenant_caller), username, password))
        return seconds


async def time_rejection(auth: Auth, caller: Caller, username: str, password: str) -> float:
    """The seconds until a sign-in is rejected."""
    began = time.perf_counter()
    answer = await auth.login(caller, username, password)
    took = time.perf_counter() - began
    if answer.status != 401:
        raise RuntimeError(f"{username} was answered with {answer.status}")
    return took


async def measure(run: Run) -> PartResult:
    """Measure the medians, and the difference between the longest and the shortest."""
    medians = {name: median(each) * 1000 for name, each in (await _measure(run)).items()}
    ratio = max(medians.values()) / min(medians.values()) - 1
    text = f"""Median of {run.scale.sign_ins} each, in turn, in an order that changes: its time may not tell
what is wrong with a sign-in. The longest is {ratio:.1%} longer than the shortest; {ALLOWED:.0%} are
allowed."""
    rows = [(name, f"{milliseconds:.1f}") for name, milliseconds in medians.items()]
    return PartResult(sections=[Section("A refused sign-in", text, ("what is wrong", "ms"), rows)])
