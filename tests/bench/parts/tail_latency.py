"""The 99th percentile of response times: alone, with two catalog pollers, and during sign-ins."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import urlencode

from tests.bench.callers.load import Call, SteadyAnswers, repeat_steadily
from tests.bench.callers.polling import polling
from tests.bench.callers.seeding import catalog
from tests.bench.parts.requests import FORM, client_form
from tests.bench.report import PartResult, Section, absolute_line, number
from tests.bench.scale import Run
from tests.bench.servers.processes import PASSWORD, Account, run_services
from tests.bench.servers.watched_gateway import Lateness

RATE = 100.0  # requests a second of each kind
ALLOWED = {"catalogs": {"client_version": 10.0}, "sign-ins": {"client_version": 5.0, "test": 5.0}}  # ms
WORDS = {"nothing": "alone", "catalogs": "beside two catalog pollers", "sign-ins": "while 4 clients log in"}


@dataclass(frozen=True)
class Situation:
    """Response times and the lateness of the gateway's event loop under one background load."""

    beside: str
    taken: Mapping[str, SteadyAnswers]
    lateness: Lateness


async def measure(run: Run) -> PartResult:
    """Send requests at a steady rate, in three situations."""
    notes = run.stores.folder / "lateness"
    windows = {}
    async with run_services(run.stores, gateway=("tests.bench.servers.watched_gateway", str(notes))) as bench:
        account = await catalog(run, bench, run.scale.packages)
        form = await client_form(bench, account, "tails")
        calls = {
            "client_version": Call("POST", f"{account.base_url}/client_version", (FORM,), form),
            "test": Call("GET", f"{account.base_url}/test", (account.bearer,)),
            "bare handler": run.reference.hello,
        }
        for name, (call, callers) in _background_load(account, form).items():
            async with AsyncExitStack() as stack:
                if call:
                    log = run.stores.folder / f"polling-{name}.log"
                    await stack.enter_async_context(polling(call, callers, log))
                    await asyncio.sleep(min(2.0, run.scale.watched / 4))  # until the load has started
                began = time.monotonic()
                sending = (repeat_steadily(each, RATE, run.scale.watched) for each in calls.values())
                taken = dict(zip(calls, await asyncio.gather(*sending), strict=True))
                windows[name] = taken, began, time.monotonic()
    return _result_of(
        [Situation(name, taken, Lateness.between(notes, began, end)) for name, (taken, began, end) in windows.items()]
    )


def _background_load(account: Account, form: bytes) -> Mapping[str, tuple[Call | None, int]]:
    """The repeated background requests, each with its number of connections."""
    sign_in = urlencode({"username": "admin", "password": PASSWORD}).encode()
    return {
        "nothing": (None, 0),
        "catalogs": (Call("POST", f"{account.base_url}/get_packages", (FORM,), form), 2),
        "sign-ins": (Call("POST", f"{account.base_url}/login", (FORM,), sign_in), 4),
    }


def _result_of(situations: list[Situation]) -> PartResult:
    result, rows = PartResult(), []
    for each in situations:
        bare = each.taken["bare handler"].percentile(99)
        for name, most in ALLOWED.get(each.beside, {}).items():
            title = f"p99 of `{name}` {WORDS[each.beside]}"
            limit = f"bare handler meanwhile: {number(bare)} ms"
            result.lines.append(absolute_line(title, each.taken[name].percentile(99), "ms", most, beside=limit))
        times = [f"{number(taken.percentile(50))} / {number(taken.percentile(99))}" for taken in each.taken.values()]
        late = each.lateness
        loop = f"{number(late.p50)} / {number(late.p99)} / {number(late.largest)}"
        rows.append((WORDS[each.beside], *times, loop, f"{late.worked:.0%}", f"{late.waited:.0%}", number(late.pause)))
    text = f"""Milliseconds until an answer, p50 / p99, of {RATE:g} requests a second of each kind at the
same time, each counted from when it was due. `late` is how much later than asked for the gateway's own loop
woke up, p50 / p99 / the most, looked at every 5 ms; then, in its latest hundredth, the share of that in
which the loop's thread worked, and in which it could have and had no core: what other processes took.
`garbage` is the longest collection of it."""
    columns = ("beside", "`client_version`", "`test`", "bare handler", "late", "worked", "had no core", "garbage")
    result.sections.append(Section("Tails", text, columns, rows))
    return result
