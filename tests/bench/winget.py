"""What winget's questions cost through the gateway: a manifest, and searches of catalogs of several sizes."""

import asyncio
import time
from collections.abc import Sequence

import orjson

from tests.bench.load import Call, ask
from tests.bench.processes import Account, running
from tests.bench.report import Found, Section
from tests.bench.requests import HELLO, ROUNDS, Row, columns_of, measure_row, told
from tests.bench.scale import Run
from tests.bench.seeding import catalog, package_id

LARGEST, SMALL = 10_000, 100  # packages: there is a budget for the one, and a run of the other means nothing
CODE = "{01234567-89AB-CDEF-0123-456789ABCDEF}"
HEADERS = (("Content-Type", "application/json"), ("Version", "1.12.0"))


async def measure(run: Run) -> Found:
    """Measure each question to each catalog, with services that have been asked for none before."""
    found, rows, cold = Found(), [], []
    columns: Sequence[str] = ()
    for packages in [packages for packages in run.scale.catalogs if packages <= LARGEST]:
        async with running(run.stores) as bench:
            account = await catalog(run, bench, packages)
            cold.append(f"{packages:,}: {await _first(account):.1f} s")
            rows += [told(found, row, await measure_row(run, bench, row)) for row in _rows(account, packages)]
            columns = columns_of(bench)
    text = f"""Microseconds of processor time a request, as for the other requests; one version of each package is in
the channel that winget is shown. A search that finds 11 packages looks for a part of their ids among all that can be
typed; whole ids and codes of installed programs are looked up, and what was asked for just now is remembered. Each
figure is the median of {ROUNDS} rounds, with {HELLO} in each. Until the first search was answered, which reads all of a
catalog: {", ".join(cold)}."""
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
        return Call("POST", f"{account.base_url}/winget/manifestSearch", HEADERS, orjson.dumps(body))

    def exactly(field: str, keyword: str) -> dict[str, object]:
        return {"PackageMatchField": field, "RequestMatch": {"KeyWord": keyword, "MatchType": "Exact"}}

    def typed(keyword: str) -> Call:
        return call(Query={"KeyWord": keyword, "MatchType": "Substring"})

    numbers = range(min(packages, 1000))
    of = f"winget: search of {packages:,}"
    anew = [typed(package_id(number)[-6:]) for number in numbers]
    whole = [call(Filters=[exactly("PackageIdentifier", package_id(number))]) for number in numbers]
    rows = [
        Row(f"{of}, 11 hits", [typed(part)], 0.2),
        Row(f"{of}, text not asked for before", anew, 0.2, 43 if largest else None, "1 ms", anew=True),
        Row(f"{of}, an id not asked for before", whole, 0.2, anew=True),
        Row(f"{of}, no such code", [call(Inclusions=[exactly("ProductCode", CODE)])], 0.2, status=204),
    ]
    if largest or packages < SMALL:
        rows += [
            Row(
                "winget: a manifest that was asked for just now", manifests[:1], 0.5, 2.6 if largest else None, "60 µs"
            ),
            Row("winget: a manifest", manifests, 0.5, anew=True),
        ]
    return rows


def _manifest(account: Account, name: str) -> Call:
    return Call("GET", f"{account.base_url}/winget/packageManifests/{name}", HEADERS)
