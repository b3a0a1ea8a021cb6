"""What winget's questions cost through the gateway: a manifest, and searches of catalogs of several sizes."""

import asyncio
import time
from collections.abc import Sequence
from urllib.parse import parse_qs

import orjson

from tests.bench.callers.load import Call, ask
from tests.bench.callers.seeding import catalog, package_id
from tests.bench.parts.requests import HELLO, ROUNDS, Row, client_form, columns_of, measure_row, told
from tests.bench.report import Found, Limit, Section, against
from tests.bench.scale import Run
from tests.bench.servers.processes import Account, Bench, running

LARGEST, SMALL = 10_000, 100  # packages: there is a budget for the one, and a run of the other means nothing
CODE = "{01234567-89AB-CDEF-0123-456789ABCDEF}"
HEADERS = (("Content-Type", "application/json"), ("Version", "1.12.0"))
MACHINES, PROGRAMS = 5, 200  # of a fleet that asks for upgrades, and the installed programs of each machine
DEAREST = 50  # searches
ORDINARY = "text not asked for before"


async def measure(run: Run) -> Found:
    """Measure each question to each catalog, with services that have been asked for none before."""
    found, rows, cold = Found(), [], []
    columns: Sequence[str] = ()
    for packages in [packages for packages in run.scale.catalogs if packages <= LARGEST]:
        async with running(run.stores) as bench:
            account = await catalog(run, bench, packages)
            cold.append(f"{packages:,}: {await _first(account):.1f} s")
            table = _rows(account, packages)
            if packages == run.scale.packages:
                table += await _upgrades(bench, account)
            rows += [told(found, row, await measure_row(run, bench, row)) for row in table]
            if packages == max(size for size in run.scale.catalogs if size <= LARGEST):
                await _dearest(run, bench, account, packages, found)
            columns = columns_of(bench)
    text = f"""Microseconds of processor time a request, as for the other requests; one version of each package is in
the channel that winget is shown. A search that finds 11 packages looks for a part of their ids among all that can be
typed; whole ids and codes of installed programs are looked up, and what was asked for just now is remembered. Each
figure is the median of {ROUNDS} rounds, with {HELLO} in each. For `winget upgrade`, {MACHINES} machines with client
tokens send one search for each of {PROGRAMS} installed programs, and nothing is found. The dearest search that anybody
may send has eight parts, two of them `Wildcard`: nearly all packages match seven of them, none matches the last. Until
the first search was answered, which reads all of a catalog: {", ".join(cold)}."""
    found.sections.append(Section("winget", text, columns, rows))
    return found


async def _first(account: Account) -> float:
    """Seconds until a service that has just started answers a search; the gateway may give up before that."""
    began, call = time.monotonic(), Call("POST", f"{account.base_url}/winget/manifestSearch", HEADERS, b"{}")
    while (await ask(call)).status != 200:  # noqa: ASYNC110  another process makes it ready
        await asyncio.sleep(0.1)
    return time.monotonic() - began


def _rows(account: Account, packages: int) -> list[Row]:
    name = package_id(packages // 2)
    part = name[-6:-1]  # of ten packages that follow one another, and one of a tenth of their number
    manifests = [_manifest(account, package_id(number)) for number in range(min(packages, 1000))]
    largest = packages == LARGEST

    def call(**body: object) -> Call:
        return _search(account, **body)

    def typed(keyword: str) -> Call:
        return call(Query={"KeyWord": keyword, "MatchType": "Substring"})

    numbers = range(min(packages, 1000))
    of = f"winget: search of {packages:,}"
    anew = [typed(package_id(number)[-6:]) for number in numbers]
    whole = [call(Filters=[_match("PackageIdentifier", package_id(number))]) for number in numbers]
    rows = [
        Row(f"{of}, 11 hits", [typed(part)], 0.2),
        Row(f"{of}, {ORDINARY}", anew, 0.2, 43 if largest else None, "1 ms", anew=True),
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


def _search(account: Account, *headers: tuple[str, str], **body: object) -> Call:
    return Call("POST", f"{account.base_url}/winget/manifestSearch", (*HEADERS, *headers), orjson.dumps(body))


def _match(field: str, keyword: str, kind: str = "Exact") -> dict[str, object]:
    return {"PackageMatchField": field, "RequestMatch": {"KeyWord": keyword, "MatchType": kind}}


async def _upgrades(bench: Bench, account: Account) -> list[Row]:
    """`winget upgrade` on machines with the same programs: the first of them, and the others soon after it."""
    forms = [await client_form(bench, account, f"upgrade-{number}") for number in range(MACHINES)]
    tokens = [parse_qs(form.decode())["auth_token"][0] for form in forms]

    def calls(token: str) -> list[Call]:
        header = "Windows-Package-Manager", f"{{'Token': '{token}'}}"
        return [_search(account, header, Inclusions=_program(number)) for number in range(PROGRAMS)]

    first, *others = map(calls, tokens)
    title = f"winget: upgrade of {PROGRAMS} programs, each search"
    repeated = [call for machine in others for call in machine]
    return [
        Row(title, first, 0.2, status=204, anew=True),
        Row("… of machines with the same programs", repeated, 0.2, status=204, anew=True),
    ]


def _program(number: int) -> list[dict[str, object]]:
    """The search that the client sends for one installed program."""
    return [
        _match("PackageFamilyName", f"Installed.Program{number}_8wekyb3d8bbwe"),
        _match("ProductCode", f"{{{number:08X}-89AB-CDEF-0123-456789ABCDEF}}"),
        _match("NormalizedPackageNameAndPublisher", f"installedprogram{number}"),
    ]


async def _dearest(run: Run, bench: Bench, account: Account, packages: int, found: Found) -> None:
    """Measure the dearest search against an ordinary one of the same run."""
    parts = [_match("PackageName", letter, "Substring") for letter in "ecang"]
    parts += [_match("PackageName", pattern, "Wildcard") for pattern in ("*e*0*", "*p*k*")]
    calls = [
        _search(account, Filters=[*parts, _match("PackageName", f"~{number}", "Substring")])
        for number in range(min(packages, DEAREST))
    ]
    row = Row(f"winget: dearest search of {packages:,}", calls, 0.2, status=204, connections=4, anew=True)
    measured = await measure_row(run, bench, row)
    title = f"winget: search of {packages:,}, {ORDINARY}"
    ordinary = sum(cost for name, cost in found.costs.items() if name.startswith(f"{title}: "))
    found.lines.append(against(row.title, measured.costs, "µs", Limit("an ordinary one", ordinary), 10))


def _manifest(account: Account, name: str) -> Call:
    return Call("GET", f"{account.base_url}/winget/packageManifests/{name}", HEADERS)
