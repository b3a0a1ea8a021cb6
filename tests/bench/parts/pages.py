"""The costs of the dashboard's pages for a signed-in browser."""

from collections.abc import Sequence

from gateway.dashboard.routes import PAGES
from tests.bench.callers.load import Call
from tests.bench.callers.seeding import catalog, clients, package_id
from tests.bench.parts.requests import Row, add_result, columns_of, measure_row
from tests.bench.parts.transfer import upload_chunk
from tests.bench.report import PartResult, Section
from tests.bench.scale import Run
from tests.bench.servers.processes import Account, Bench, run_services
from tests.support.samples.msi_samples import MACHINE_MSI

MOST = 2000  # times a bare handler's cost, made from 50 ms
BROWSERS = 4  # at once


async def measure(run: Run) -> PartResult:
    """Measure every page of a small and a large tenant."""
    result = PartResult()
    packages, machines, entries = run.scale.large
    async with run_services(run.stores) as bench:
        small, large = [await catalog(run, bench, number) for number in (run.scale.packages, packages)]
        await clients(run, large, machines, entries)
        rows = [
            add_result(result, row, await measure_row(run, bench, row))
            for row in [*await _rows(bench, small), *await _rows(bench, large, of_large=True)]
        ]
        columns = columns_of(bench)
    text = f"""Microseconds of processor time a page, as for the requests; the tenant has
{run.scale.packages:,} packages of three versions and a logo, the large one {packages:,}, {machines:,} clients
and {entries:,} entries of the blacklist. The budget is that of the former."""
    result.sections.append(Section("The dashboard's pages", text, columns, rows))
    return result


async def _rows(bench: Bench, account: Account, *, of_large: bool = False) -> Sequence[Row]:
    token = account.bearer[1].removeprefix("Bearer ")
    cookie, name = ("Cookie", f"session-{account.tenant_id}={token}"), package_id(0)
    address = f"{account.base_url}/get_package_versions/{name}"
    async with bench.session.get(address, headers=dict([account.bearer])) as answer:
        version_uid = (await answer.json())[0]["UID"]
    server_filename = await upload_chunk(bench, account, "a-page", MACHINE_MSI)
    values = {"package_id": name, "version_uid": version_uid, "server_filename": server_filename}
    return [
        Row(
            f"page: {row.path or 'overview'}{', large tenant' if of_large else ''}",
            [Call("GET", f"{account.base_url}/dashboard/{row.path.format(**values)}".rstrip("/"), (cookie,))],
            0.02,
            None if of_large else MOST,
            "" if of_large else "50 ms",
            connections=BROWSERS,
        )
        for row in PAGES
    ]
