"""The costs of common requests, as multiples of the cost of a bare aiohttp handler."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from catalog_service.store import MongoCatalogStore
from common.mongo import open_database
from tests.bench.callers.load import Call, Timings, send, send_once
from tests.bench.callers.seeding import catalog, package_id
from tests.bench.limits import password_hash
from tests.bench.report import Limit, Line, PartResult, Section, absolute_line, number, ratio_line
from tests.bench.scale import Run
from tests.bench.servers.processes import PASSWORD, Account, Bench, measure_costs, run_services

FORM = ("Content-Type", "application/x-www-form-urlencoded")
ROUNDS = 3  # of each figure; the median of their ratios counts
CONNECTIONS = 32
HELLO = "bare handler"
VERSIONS = "`get_package_versions`"
SESSION, API_TOKEN = "`test`", "`test`, API token"


@dataclass(frozen=True)
class Row:
    """A request: its share of the run's requests, and its budget as a multiple of a bare handler's cost."""

    title: str
    calls: Sequence[Call]
    share: float
    most: float | None = None
    of: str = ""
    status: int = 200
    connections: int = CONNECTIONS
    anew: bool = False  # Each of its calls is sent only once.


@dataclass(frozen=True)
class Measurement:
    """CPU microseconds per request by process and of the bare handler, and the response times."""

    costs: Mapping[str, float]
    hello: float
    taken: Timings

    @property
    def ratio(self) -> float:
        return sum(self.costs.values()) / self.hello


async def measure(run: Run) -> PartResult:
    """Measure every request, each between two measurements of the bare handler."""
    async with run_services(run.stores) as bench:
        account = await catalog(run, bench, run.scale.packages)
        result, rows, totals = PartResult(), [], dict[str, float]()
        for row in await _rows(run, bench, account):
            measured = await measure_row(run, bench, row)
            rows.append(add_result(result, row, measured))
            totals[row.title] = sum(measured.costs.values())
            if row.title == VERSIONS:
                result.lines.append(await _without_database(run, account, measured))
        more = totals[API_TOKEN] - totals[SESSION]
        result.lines.append(absolute_line("`test`, API token: more than with a session", more, "µs", 10.0))
        result.lines.append(await _login(run, bench, account))
        columns = columns_of(bench)
    text = f"""Microseconds of processor time a request, all services as processes of their own, stores
aside; a tenant with {run.scale.packages:,} packages of three versions and a logo of 3 KB;
{CONNECTIONS} connections that each send the next request when they have an answer, so that the
times are those of a queue. Each figure is the median of {ROUNDS} rounds, with a bare aiohttp handler that
says `hello` measured in each."""
    result.sections.append(Section("Requests", text, columns, rows))
    return result


def columns_of(bench: Bench) -> Sequence[str]:
    """The columns of the rows of `add_result`."""
    return ("request", "p50, ms", "p99, ms", *bench.processes, HELLO, "ratio")


def add_result(result: PartResult, row: Row, measured: Measurement) -> Sequence[str]:
    """Add a measurement to the table and the costs. Returns its row of the section."""
    result.lines.append(ratio_line(row.title, measured.costs, "µs", Limit(HELLO, measured.hello), row.most, of=row.of))
    result.costs |= {f"{row.title}: {name}": cost for name, cost in measured.costs.items()}
    cells = (
        *(f"{measured.taken.percentile(percent):.1f}" for percent in (50, 99)),
        *map(number, measured.costs.values()),
    )
    return (row.title, *cells, number(measured.hello), number(measured.ratio))


async def _rows(run: Run, bench: Bench, account: Account) -> Sequence[Row]:
    """The requests of an administrator and a client."""
    clients = [await client_form(bench, account, f"pc-{number}") for number in range(run.scale.clients)]

    def calls(method: str, operation: str, *headers: tuple[str, str], body: bytes = b"") -> Sequence[Call]:
        return [Call(method, f"{account.base_url}/{operation}", headers, body)]

    known = calls("POST", "get_packages", FORM, body=clients[0])
    tag = "If-None-Match", (await send_once(known[0])).headers["etag"]
    anew = [Call("POST", f"{account.base_url}/client_version", (FORM,), body) for body in clients[1:]]
    versions = [
        Call("GET", f"{account.base_url}/get_package_versions/{package_id(number)}", (account.bearer,))
        for number in range(run.scale.packages)
    ]
    return [
        Row("`client_version` of a client that is asked about anew", anew, 1, anew=True),
        Row(SESSION, calls("GET", "test", account.bearer), 1, 2.2, "50 µs"),
        Row(API_TOKEN, calls("GET", "test", await api_token(bench, account)), 1, 2.2, "50 µs"),
        Row("`client_version`, client token", [anew[0]], 1, 2.4, "55 µs"),
        Row("`get_packages`, known (304)", [replace(known[0], headers=(FORM, tag))], 0.5, 2.2, "50 µs", status=304),
        Row(VERSIONS, versions, 1, anew=True),
        Row("… of a package that was asked about just now", versions[:1], 0.5, 4.3, "the aim, 100 µs"),
        Row("`server_information`", calls("GET", "server_information", account.bearer), 0.1),
    ]


async def api_token(bench: Bench, account: Account) -> tuple[str, str]:
    """Add an API token that is restricted to packages and networks. Returns its header."""
    form = {"name": "ci", "role": "publisher", "package_ids": "Acme.*,App.*", "networks": "127.0.0.0/8,192.0.2.0/24"}
    headers = dict([account.bearer])
    async with bench.session.post(f"{account.base_url}/add_token", data=form, headers=headers) as answer:
        return "Authorization", f"Bearer {(await answer.json())['token']}"


async def client_form(bench: Bench, account: Account, name: str) -> bytes:
    """Add a client to the tenant. Returns its form."""
    headers = dict([account.bearer])
    async with bench.session.post(
        f"{account.base_url}/add_client", data={"client_name": name}, headers=headers
    ) as answer:
        return urlencode({"auth_token": (await answer.json())["auth_token"], "client": "1"}).encode()


async def measure_row(run: Run, bench: Bench, row: Row) -> Measurement:
    """The round with the median ratio."""
    times = max(10, round(run.scale.requests * row.share / ROUNDS))
    if row.anew:
        return await _round(run, bench, row, len(row.calls))
    await send(row.calls, max(5, times // 10), connections=row.connections, status=row.status)
    rounds = [await _round(run, bench, row, times) for _ in range(ROUNDS)]
    return sorted(rounds, key=lambda measured: measured.ratio)[ROUNDS // 2]


async def _round(run: Run, bench: Bench, row: Row, times: int) -> Measurement:
    sending = send(row.calls, times, connections=row.connections, status=row.status)
    spent, taken = await measure_costs(bench.processes, sending)
    hello = await run.reference.cost_of_hello(run.scale.requests // ROUNDS)
    return Measurement({name: cost / times * 1e6 for name, cost in spent.items()}, hello, taken)


async def _without_database(run: Run, account: Account, measured: Measurement) -> Line:
    """The cost without the driver's two database queries, which are measured in this process."""
    times = max(10, run.scale.requests // 20)
    async with open_database(run.stores.mongo_url, "catalog") as database:
        store = MongoCatalogStore(database, uploads_age=1)
        before = time.process_time()
        for _ in range(times):
            await store.versions.package_uid(account.tenant_id, package_id(0))
            await store.versions.of_package(account.tenant_id, package_id(0))
        driver = (time.process_time() - before) / times * 1e6
    less = {**measured.costs, "catalog_service": max(0.0, measured.costs["catalog_service"] - driver)}
    title = f"… without the driver of the database, {number(driver)} µs"
    return ratio_line(title, less, "µs", Limit(HELLO, measured.hello), 20, of="450 µs")


async def _login(run: Run, bench: Bench, account: Account) -> Line:
    times = max(4, run.scale.requests // 100)
    form = urlencode({"username": "admin", "password": PASSWORD}).encode()
    signing_in = send([Call("POST", f"{account.base_url}/login", (FORM,), form)], times, connections=4)
    spent, _ = await measure_costs(bench.processes, signing_in)
    alone = Limit("argon2id alone", await password_hash(max(2, times // 5)))
    each = {name: cost / times * 1000 for name, cost in spent.items()}
    return ratio_line("`login`", each, "ms", alone, 1.6, of="38 ms, half of the peer's 77")
