"""How long a sign-in takes, by what is wrong with it: the time may not tell which.

python -m tests.bench.sign_in [rounds]
"""

import asyncio
import random
import sys
import time
from statistics import median

from rich.console import Console
from rich.table import Table

from auth_service.throttle_store import RedisFailures
from common.caller import Caller
from common.redis import open_redis
from common.telemetry import configure_logs
from tests import servers
from tests.service.auth_fixtures import PASSWORD, Auth, elsewhere, serving_auth

ALLOWED = 0.1  # of the shortest median, that the longest may be longer
WRONG = "not this password"


async def measure(rounds: int) -> dict[str, list[float]]:
    """Seconds of each sign-in, by what is wrong; one of each kind a round, in an order that changes."""
    async with (
        servers.mongo() as mongo_url,
        servers.redis() as redis_url,
        serving_auth(mongo_url, redis_url) as auth,
        open_redis(redis_url) as redis,
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
        for _ in range(rounds):
            for name in random.sample(list(cases), len(cases)):
                there, username, password = cases[name]
                await RedisFailures(redis).forget(f"user:{there.tenant_id}:{username}")
                seconds[name].append(await refusal(auth, elsewhere(there), username, password))
        return seconds


async def refusal(auth: Auth, caller: Caller, username: str, password: str) -> float:
    """Seconds until a sign-in is refused."""
    began = time.perf_counter()
    answer = await auth.login(caller, username, password)
    took = time.perf_counter() - began
    if answer.status != 401:
        raise RuntimeError(f"{username} was answered with {answer.status}")
    return took


def main() -> None:
    configure_logs("error")
    seconds = asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
    medians = {name: median(each) for name, each in seconds.items()}
    table = Table("what is wrong", "median ms")
    for name, found in medians.items():
        table.add_row(name, f"{found * 1000:.2f}")
    Console().print(table)
    ratio = max(medians.values()) / min(medians.values()) - 1
    Console().print(f"The longest is {ratio:.1%} longer than the shortest; {ALLOWED:.0%} are allowed.")
    sys.exit(ratio > ALLOWED)


if __name__ == "__main__":
    main()
