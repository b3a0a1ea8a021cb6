"""The costs of winget requests through the gateway: a manifest, and searches of several catalogs."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import parse_qs

import orjson

from tests.bench.callers.load import Call, send_once
from tests.bench.callers.seeding import catalog, package_id
from tests.bench.parts.requests import HELLO, ROUNDS, Row, add_result, client_form, columns_of, measure_row
from tests.bench.report import Limit, PartResult, Section, ratio_line
from tests.bench.scale import Run
from tests.bench.servers.processes import Account, Bench, run_services

LARGEST, SMALL = 10_000, 100  # packages: the size with a budget, and the size of a tiny run
CODE = "{01234567-89AB-CDEF-0123-456789ABCDEF}"
HEADERS = (("Content-Type", "application/json"), ("Version", "1.12.0"))
MACHINES, PROGRAMS = 5, 200  # machines that request upgrades, and the installed programs of each
DEAREST = 50  # searches
ORDINARY = "text not asked for before"
PARTS = 8  # of a search, at most two of them `Wildcard`
WILDCARDS = [("Wildcard", "*e*0*"), ("Wildcard", "*p*k*")]
_DEAREST = {
    "seven parts match nearly all": [*(("Substring", letter) for letter in "ecang"), *WILDCARDS],
    "many match each part, few match two": [("Substring", digit) for digit in "12345678"],
}


async def measure(run: Run) -> PartResult:
    """Measure each request on each catalog with newly started services."""
    result, rows, cold = PartResult(), [], []
    columns: Sequence[str] = ()
    for packages in [packages for packages in run.scale.catalogs if packages <= LARGEST]:
        async with run_services(run.stores) as bench:
            account = await catalog(run, bench, packages)
            cold.append(f"{packages:,}: {await first_search(account):.1f} s")
            table = _rows(account, packages)
            if packages == run.scale.packages:
                table += await _upgrades(bench, account)
                await _personal_address(run, bench, account, result)
            rows += [add_result(result, row, await measure_row(run, bench, row)) for row in table]
            if packages == max(size for size in run.scale.catalogs if size <= LARGEST):
                await _most_expensive(run, bench, account, packages, result)
            columns = columns_of(bench)
    text = f"""Microseconds of processor time a request, as for the other requests; one version of each package is in
the channel that winget is shown. A search that finds 11 packages looks for a part of their ids among all that can be
typed; whole ids and codes of installed programs are looked up, and what was asked for just now is remembered. Each
figure is the median of {ROUNDS} rounds, with {HELLO} in each. For `winget upgrade`, {MACHINES} machines with client
tokens send one search for each of {PROGRAMS} installed programs, and nothing is found. The dearest searches that
anybody may send have eight parts. Nearly all packages match seven of them, and none matches the last; or many packages
match each part, and few match two. Until the first search was answered, which reads all of a catalog:
{", ".join(cold)}."""
    result.sections.append(Section("winget", text, columns, rows))
    return result


async def first_search(account: Account) -> float:
    """Return the seconds until a newly started service answers a search. The gateway may time out earlier."""
    began, call = time.monotonic(), Call("POST", f"{account.base_url}/winget/manifestSearch", HEADERS, b"{}")
    while (await send_once(call)).status != 200:  # noqa: ASYNC110  another process makes it ready
        await asyncio.sleep(0.1)
    return time.monotonic() - began


def _rows(account: Account, packages: int) -> list[Row]:
    name = package_id(packages // 2)
    part = name[-6:-1]  # finds ten consecutive packages, or a tenth of all packages
    manifests = [_manifest(account, package_id(number)) for number in range(min(packages, 1000))]
    largest = packages == LARGEST

    def call(**body: object) -> Call:
        return search(account, **body)

    def typed(keyword: str) -> Call:
        return call(Query={"KeyWord": keyword, "MatchType": "Substring"})

    numbers = range(min(packages, 1000))
    of = f"winget: search of {packages:,}"
    anew = [typed(package_id(number)[-6:]) for number in numbers]
    whole = [call(Filters=[_match("PackageIdentifier", package_id(number))]) for number in numbers]
    rows = [
        Row(f"{of}, 11 hits", [typed(part)], 0.2),
        Row(f"{of}, {ORDINARY}", anew, 0.2, 30 if largest else None, "1 ms", anew=True),
        Row(f"{of}, an id not asked for before", whole, 0.2, anew=True),
        Row(f"{of}, no such code", [call(Inclusions=[_match("ProductCode", CODE)])], 0.2, status=204),
    ]
    if largest or packages < SMALL:
        rows += [
            Row(
                "winget: a manifest that was asked for just now", manifests[:1], 0.5, 2.6 if largest else None, "60 µs"
            ),
            Row("winget: a manifest", manifests, 0.5, anew=True),
        ]
    return rows


def search(account: Account, *headers: tuple[str, str], **body: object) -> Call:
    return Call("POST", f"{account.base_url}/winget/manifestSearch", (*HEADERS, *headers), orjson.dumps(body))


def _match(field: str, keyword: str, kind: str = "Exact") -> dict[str, object]:
    return {"PackageMatchField": field, "RequestMatch": {"KeyWord": keyword, "MatchType": kind}}


async def _upgrades(bench: Bench, account: Account) -> list[Row]:
    """`winget upgrade` on machines with the same programs: on the first machine, and soon after on the others."""
    headers = [await token_header(bench, account, f"upgrade-{number}") for number in range(MACHINES)]

    def calls(header: tuple[str, str]) -> list[Call]:
        return [search(account, header, Inclusions=program(number)) for number in range(PROGRAMS)]

    first, *others = map(calls, headers)
    title = f"winget: upgrade of {PROGRAMS} programs, each search"
    repeated = [call for machine in others for call in machine]
    return [
        Row(title, first, 0.2, status=204, anew=True),
        Row("… of machines with the same programs", repeated, 0.2, status=204, anew=True),
    ]


async def _personal_address(run: Run, bench: Bench, account: Account, result: PartResult) -> None:
    """Compare a search at a personal source address with the same search with a header, in the same run."""
    header = await token_header(bench, account, "personal")
    address = f"{account.base_url}/source/{header[1].split(chr(39))[3]}"
    calls = {
        "with a header": search(account, header, Inclusions=program(0)),
        "at a personal address": search(replace(account, base_url=address), Inclusions=program(0)),
    }
    of_header, of_address = [
        await measure_row(run, bench, Row(f"winget: search {how}", [call], 1.0, status=204))
        for how, call in calls.items()
    ]
    limit = Limit("with a header", sum(of_header.costs.values()))
    result.lines.append(ratio_line("winget: search at a personal address", of_address.costs, "µs", limit, 1.05))


async def token_header(bench: Bench, account: Account, name: str) -> tuple[str, str]:
    """Add a client to the tenant. Returns the header that its winget sends."""
    form = parse_qs((await client_form(bench, account, name)).decode())
    return "Windows-Package-Manager", f"{{'Token': '{form['auth_token'][0]}'}}"


def program(number: int, normalized_name: str = "") -> list[dict[str, object]]:
    """The inclusions of the client's search for one installed program."""
    return [
        _match("PackageFamilyName", f"Installed.Program{number}_8wekyb3d8bbwe"),
        _match("ProductCode", f"{{{number:08X}-89AB-CDEF-0123-456789ABCDEF}}"),
        _match("NormalizedPackageNameAndPublisher", normalized_name or f"installedprogram{number}"),
    ]


async def _most_expensive(run: Run, bench: Bench, account: Account, packages: int, result: PartResult) -> None:
    """Compare the most expensive searches with an ordinary one of the same run."""
    title = f"winget: search of {packages:,}, {ORDINARY}"
    ordinary = Limit(
        "an ordinary one", sum(cost for name, cost in result.costs.items() if name.startswith(f"{title}: "))
    )
    for kind, parts in _DEAREST.items():
        calls = [
            _search_named(account, [*parts, ("Substring", f"~{number}")] if len(parts) < PARTS else parts, number)
            for number in range(min(packages, DEAREST))
        ]
        row = Row(f"winget: dearest search of {packages:,}, {kind}", calls, 0.2, status=204, connections=4, anew=True)
        measured = await measure_row(run, bench, row)
        result.lines.append(ratio_line(row.title, measured.costs, "µs", ordinary, 10))


def _search_named(account: Account, parts: Sequence[tuple[str, str]], number: int) -> Call:
    """A search for names; `number` makes it another one."""
    filters = [_match("PackageName", text, kind) for kind, text in parts]
    return search(account, Filters=filters, MaximumResults=1 + number)


def _manifest(account: Account, name: str) -> Call:
    return Call("GET", f"{account.base_url}/winget/packageManifests/{name}", HEADERS)
