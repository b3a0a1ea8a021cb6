"""A fleet as winget sends it: a new TLS 1.2 connection for each search, to `pkgrepo up --tls` and to Caddy."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.callers.load import Call, SteadyAnswers
from tests.bench.callers.machines import send_as_machines, winget_context
from tests.bench.callers.seeding import catalog
from tests.bench.parts.fleet import RATE, searches_of_machines
from tests.bench.parts.winget import token_header
from tests.bench.report import Limit, Line, PartResult, Section, absolute_line, number, ratio_line
from tests.bench.scale import Run
from tests.bench.servers.processes import measure_costs
from tests.bench.servers.tls_fronts import BareFront, Front, caddy_program, run_bare, run_caddy, run_up

HELLO = "a bare TLS hello"
RSA_BITS = 2048
MOST = 3.0  # times the bare TLS hello
SLOWEST = 100.0  # ms
SUSTAINED = 0.95  # of the rate; a machine that waited for an answer sends later


async def measure(run: Run) -> PartResult:
    """Send the searches of all machines through each front, beside the same load on the bare handler."""
    result, rows = PartResult(), list[Sequence[str]]()
    with TemporaryDirectory(prefix="pkgrepo-") as name:
        folders = {each: Path(name, each) for each in ("bare", "rsa", "up", "caddy")}
        for folder in folders.values():
            folder.mkdir()
        async with run_bare(folders["bare"]) as bare:
            rows.append(await _through("`pkgrepo up --tls`", run_up(run, folders["up"]), run, bare, result))
            if program := caddy_program():
                rows.append(await _through("Caddy", run_caddy(run, folders["caddy"], program), run, bare, result))
            curve, _ = await _hello(bare, run)
        async with run_bare(folders["rsa"], rsa_bits=RSA_BITS) as bare:
            rsa, _ = await _hello(bare, run)
    result.lines.append(ratio_line(f"{HELLO}, RSA {RSA_BITS}", {"bare": rsa}, "µs", Limit("P-256", curve)))
    machines, programs, crowd = run.scale.upgrade
    text = f"""{machines} machines run `winget upgrade` at once. Each sends one search for each of {programs} programs,
one after another, {RATE:.0f} a second together, and opens a new TLS 1.2 connection for each. The certificates have
P-256 keys. Then {crowd} machines behind one address send four searches each, all starting in the same moment; a
connection that is refused, reset or not answered is lost. A response time begins before the connection is opened.
Microseconds of processor time are for each search, stores and callers aside. The bare handler gets the same load in the
same minute. The callers use the same cores as the servers. Caddy is measured if it is installed."""
    columns = (
        "front",
        "searches a second",
        "lost",
        "p50, ms",
        "p99, ms",
        "µs a search",
        HELLO,
        "a crowd: lost",
        "p99, ms",
    )
    result.sections.append(Section("A fleet over TLS", text, columns, rows))
    return result


async def _through(
    title: str, running: AbstractAsyncContextManager[Front], run: Run, bare: BareFront, result: PartResult
) -> Sequence[str]:
    """Measure one front, and add its lines to the result. Returns its row of the section."""
    machines, programs, crowd = run.scale.upgrade
    packages = run.scale.packages
    async with running as front:
        account = await catalog(run, front.bench, packages)
        names = [f"{front.port}-{number}" for number in range(max(machines, crowd))]
        headers = [await token_header(front.bench, account, name) for name in names]
        searches = searches_of_machines(account, packages, headers, programs)
        context = winget_context(front.authority)
        await send_as_machines(front.port, context, searches[:1])  # It reads the catalog: the cost of a start.
        sending = send_as_machines(front.port, context, searches[:machines], rate=RATE / machines)
        costs, answers = await measure_costs(front.bench.processes, sending)
        rush = await send_as_machines(front.port, context, [each[:4] for each in searches[-crowd:]])
    hello, bare_answers = await _hello(bare, run)
    each = {name: cost / len(answers.seconds) * 1e6 for name, cost in costs.items()}
    result.costs |= {f"fleet over TLS, {title}: {name}": cost for name, cost in each.items()}
    result.lines += [
        ratio_line(f"fleet over TLS, {title}: a search", each, "µs", Limit(HELLO, hello), MOST),
        _p99_line(f"… p99 at {RATE:.0f} searches a second", answers, bare_answers),
        absolute_line(
            f"… {crowd} machines behind one address", rush.errors, "lost connections", 0, cost=f"{rush.errors} lost"
        ),
    ]
    cells = [f"{len(answers.seconds) / answers.elapsed:,.0f}", str(answers.errors)]
    cells += [number(answers.percentile(percent)) for percent in (50, 99)]
    cells += [number(sum(each.values())), number(hello), str(rush.errors), number(rush.percentile(99))]
    return (title, *cells)


async def _hello(bare: BareFront, run: Run) -> tuple[float, SteadyAnswers]:
    """The bare handler's CPU microseconds for an answer on a new connection, and its answers to the same load."""
    machines, programs, _ = run.scale.upgrade
    request = Call("GET", f"https://localhost:{bare.port}/hello").encoded()
    sending = send_as_machines(
        bare.port, winget_context(bare.certificate), [[request] * programs] * machines, rate=RATE / machines
    )
    spent, answers = await measure_costs({"bare": bare.process}, sending)
    return spent["bare"] / len(answers.seconds) * 1e6, answers


def _p99_line(title: str, answers: SteadyAnswers, bare: SteadyAnswers) -> Line:
    p99, rate = answers.percentile(99), len(answers.seconds) / answers.elapsed
    is_met = p99 <= SLOWEST and rate >= SUSTAINED * RATE and not answers.errors
    cost = f"{number(p99)} ms ({rate:,.0f} a second, {answers.errors} lost)"
    return Line(title, cost, f"{HELLO}: {number(bare.percentile(99))} ms", None, f"≤ {SLOWEST:g} ms, sustained", is_met)
