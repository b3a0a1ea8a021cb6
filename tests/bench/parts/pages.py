"""What the dashboard's pages cost, each as a browser that is signed in asks for it."""

import io
from collections.abc import Sequence

from gateway.dashboard.routes import PAGES
from tests.bench.callers.load import Call
from tests.bench.callers.seeding import catalog, clients, package_id
from tests.bench.parts.requests import Row, columns_of, measure_row, told
from tests.bench.report import Found, Section
from tests.bench.scale import Run
from tests.bench.servers.processes import Account, Bench, running
from tests.support.samples.msi_samples import MACHINE_MSI

MOST = 2000  # times a bare handler's cost, made from 50 ms
BROWSERS = 4  # at once


async def measure(run: Run) -> Found:
    """Measure every row of the table of pages, of the tenant that requests are made to and of a large one."""
    found = Found()
    packages, machines, entries = run.scale.large
    async with running(run.stores) as bench:
        small, large = [await catalog(run, bench, number) for number in (run.scale.packages, packages)]
        await clients(run, large, machines, entries)
        rows = [
            told(found, row, await measure_row(run, bench, row))
            for row in [*await _rows(bench, small), *await _rows(bench, large, of_large=True)]
        ]
        columns = columns_of(bench)
    text = f"""Microseconds of processor time a page, as for the requests; the tenant has
{run.scale.packages:,} packages of three versions and a logo, the large one {packages:,}, {machines:,} clients
and {entries:,} entries of the blacklist. The budget is that of the former."""
    found.sections.append(Section("The dashboard's pages", text, columns, rows))
    return found


async def _rows(bench: Bench, account: Account, *, of_large: bool = False) -> Sequence[Row]:
    token = account.bearer[1].removeprefix("Bearer ")
    cookie, name = ("Cookie", f"session-{account.tenant_id}={token}"), package_id(0)
    address = f"{account.base_url}/get_package_versions/{name}"
    async with bench.session.get(address, headers=dict([account.bearer])) as answer:
        version_uid = (await answer.json())[0]["UID"]
    values = {"package_id": name, "version_uid": version_uid, "server_filename": await _waiting(bench, account)}
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


async def _waiting(bench: Bench, account: Account) -> str:
    """The name of an upload that waits for its version."""
    size = len(MACHINE_MSI)
    headers = {
        **dict([account.bearer]),
        "X-File-ID": "a-page",
        "Content-Range": f"bytes 0-{size - 1}/{size}",
    }
    sent = {"chunk": io.BytesIO(MACHINE_MSI)}
    async with bench.session.post(f"{account.base_url}/upload_package_version", headers=headers, data=sent) as answer:
        return str((await answer.json())["server_filename"])
