"""The costs of catalogs and searches with five rings, beside the same catalog with one ring, in catalog_service."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import orjson

from catalog_service.model.releases import Stage
from catalog_service.releases.gates import Policy
from catalog_service.store import MongoCatalogStore
from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, Kind, sign
from common.mongo import open_database
from common.tenants import ALL_RINGS, Tenant
from tests.bench.callers.load import Call, send, send_once
from tests.bench.callers.seeding import add_staged_versions, catalog, package_id
from tests.bench.parts.winget import HEADERS
from tests.bench.report import Limit, PartResult, Section, number, ratio_line
from tests.bench.scale import Run
from tests.bench.servers.processes import Account, Bench, Process, measure_costs, run_services
from tests.support.factories import KEY

ONE, FIVE = ("everyone",), ("pilot", "early", "broad", "late", "everyone")
LARGEST = 10_000  # packages
ROUNDS = 5  # of each ring count, in turns; the median of their ratios counts
BUDGET = 1.1
CONNECTIONS = 8
IN_FLIGHT = 10  # One package in so many has a version that only some rings get.
AMOUNT = 1 << 30  # bytes per measurement
_Calls = Callable[[str, tuple[str, ...]], Sequence[Call]]


async def measure(run: Run) -> PartResult:
    """Measure each request of clients of all rings, in turns on a catalog with one ring and with five."""
    packages = max(size for size in run.scale.catalogs if size <= LARGEST)
    result, rows = PartResult(), []
    async with run_services(run.stores) as bench:
        process, address = await bench.replica("catalog_service")
        tenants = {rings: (await _staged_catalog(run, bench, packages, rings)).tenant_id for rings in (ONE, FIVE)}
        sizes = {rings: await _warm(address, tenant_id, rings) for rings, tenant_id in tenants.items()}
        for title, calls, times, status in _table(run, address, packages, max(sizes.values())):
            ratios, spent = [], dict[tuple[str, ...], float]()
            for _ in range(ROUNDS):
                for rings, tenant_id in tenants.items():
                    spent[rings] = await _cost(process, calls(tenant_id, rings), times, status)
                ratios.append((spent[FIVE] / spent[ONE], dict(spent)))
            _, costs = sorted(ratios, key=lambda pair: pair[0])[ROUNDS // 2]
            limit = Limit("one ring", costs[ONE])
            line = ratio_line(f"five rings: {title}", {"catalog_service": costs[FIVE]}, "µs", limit, BUDGET)
            result.lines.append(line)
            rows.append((title, number(costs[ONE]), number(costs[FIVE]), number(median(ratio for ratio, _ in ratios))))
    text = f"""Microseconds of processor time a request in catalog_service, which is asked without a gateway, for
{packages:,} packages of four versions. The newest version of one package in {IN_FLIGHT} is in flight: with five rings,
it has entered as many of them as the number of the package says. Clients of all rings ask in turns. Each figure is the
median of {ROUNDS} rounds. With one ring, all versions are in it."""
    result.sections.append(Section("Rings", text, ("request", "one ring", "five rings", "ratio"), rows))
    return result


async def _staged_catalog(run: Run, bench: Bench, packages: int, rings: tuple[str, ...]) -> Account:
    """A tenant whose newest versions of some packages have entered the first rings, or all if there is one ring."""
    account = await catalog(run, bench, packages, name=f"rings-{len(rings)}")
    async with open_database(run.stores.mongo_url, "catalog") as database:
        stages = [Stage(rings[:entered]) for entered in range(len(rings))] if len(rings) > 1 else [Stage((ALL_RINGS,))]
        await add_staged_versions(database, account.tenant_id, range(0, packages, IN_FLIGHT), stages)
        policies = MongoCatalogStore(database, uploads_age=1).policies
        await policies.edit(account.tenant_id, lambda _: Policy(rings=rings))
    return account


async def _warm(address: str, tenant_id: str, rings: tuple[str, ...]) -> int:
    """Let the service read the catalog and the index. Returns the largest size of a catalog in bytes."""
    catalogs = [call for encoding in ("", "gzip") for call in _catalogs(address, encoding)(tenant_id, rings)]
    sizes = [(await send_once(call)).size for call in catalogs]
    await send_once(_searches(address, [{}])(tenant_id, rings)[0])
    return max(sizes)


def _table(run: Run, address: str, packages: int, size: int) -> Sequence[tuple[str, _Calls, int, int]]:
    """The requests: title, calls, number, and status."""
    few = max(len(FIVE), min(run.scale.requests // 50, AMOUNT // size))
    many = max(len(FIVE), run.scale.requests // 10)
    texts = [{"Query": {"KeyWord": package_id(each)[-6:], "MatchType": "Substring"}} for each in range(0, packages, 7)]
    ids = [{"Filters": [_exactly("PackageIdentifier", package_id(each))]} for each in range(0, packages, 7)]
    codes = [{"Inclusions": [_exactly("ProductCode", f"{{{each:08X}-89AB}}")]} for each in range(100)]
    return [
        ("`get_packages`", _catalogs(address, ""), few, 200),
        ("`get_packages`, gzip", _catalogs(address, "gzip"), few, 200),
        ("search of a text", _searches(address, texts), many, 200),
        ("search of all", _searches(address, [{}]), few, 200),
        ("search of an id", _searches(address, ids), many, 200),
        ("search of a code that nothing has", _searches(address, codes), many, 204),
    ]


def _exactly(field: str, value: str) -> Mapping[str, object]:
    return {"PackageMatchField": field, "RequestMatch": {"KeyWord": value, "MatchType": "Exact"}}


def _token(tenant_id: str, ring: str, operation: str) -> tuple[str, str]:
    """The header of a client of a ring; it is valid for less than a minute."""
    caller = Caller(Tenant(tenant_id), Kind.CLIENT, client_id="bench", ring=ring, base_url="http://127.0.0.1")
    return INTERNAL_TOKEN, sign(KEY, caller, service="catalog_service", operation=operation)


def _catalogs(address: str, encoding: str) -> _Calls:
    def calls(tenant_id: str, rings: tuple[str, ...]) -> Sequence[Call]:
        encodings = ("Accept-Encoding", encoding or "identity")
        hidden = ("X-Internal-Hidden", "")
        url = f"{address}/{tenant_id}/get_packages"
        return [Call("POST", url, (_token(tenant_id, ring, "get_packages"), encodings, hidden)) for ring in rings]

    return calls


def _searches(address: str, bodies: Sequence[Mapping[str, object]]) -> _Calls:
    def calls(tenant_id: str, rings: tuple[str, ...]) -> Sequence[Call]:
        url = f"{address}/{tenant_id}/winget/manifestSearch"
        tokens = [_token(tenant_id, ring, "winget/manifestSearch") for ring in rings]
        return [
            Call("POST", url, (*HEADERS, tokens[each % len(tokens)], ("X-Internal-Hidden", "")), orjson.dumps(body))
            for each, body in enumerate(body for body in bodies for _ in rings)
        ]

    return calls


async def _cost(process: Process, calls: Sequence[Call], times: int, status: int) -> float:
    """The CPU microseconds of one answer."""
    await send(calls, max(len(FIVE), times // 20), connections=CONNECTIONS, status=status)
    spent, _ = await measure_costs({"": process}, send(calls, times, connections=CONNECTIONS, status=status))
    return spent[""] / times * 1e6
