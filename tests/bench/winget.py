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
typed; the whole id and the code of an installed program are looked up. Each figure is the median of {ROUNDS} rounds,
with {HELLO} in each. Until the first search was answered, which reads all of a catalog: {", ".join(cold)}."""
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

    def search(title: str, most: float | None = None, of: str = "", status: int = 200, **body: object) -> Row:
        call = Call("POST", f"{account.base_url}/winget/manifestSearch", HEADERS, orjson.dumps(body))
        return Row(f"winget: search of {packages:,}, {title}", [call], 0.2, most, of, status)

    def exactly(field: str, keyword: str) -> dict[str, object]:
        return {"PackageMatchField": field, "RequestMatch": {"KeyWord": keyword, "MatchType": "Exact"}}

    typed = {"KeyWord": part, "MatchType": "Substring"}
    rows = [
        search("11 hits", 43 if largest else None, "1 ms", Query=typed),
        search("the whole id", Filters=[exactly("PackageIdentifier", name)]),
        search(
            "no such code", status=204, Inclusions=[exactly("ProductCode", "{01234567-89AB-CDEF-0123-456789ABCDEF}")]
        ),
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
