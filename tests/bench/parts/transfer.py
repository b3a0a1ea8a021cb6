"""Upload and download of a large installer through the gateway: correctness, and cost relative to the minimum."""

import asyncio
import hashlib
import io
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import FormData
from yarl import URL

from tests.bench.callers.load import Call, send
from tests.bench.limits import GB, WHOLE, measure_limits
from tests.bench.report import Limit, PartResult, Section, absolute_line, cost_by_process, number, ratio_line
from tests.bench.scale import Run
from tests.bench.servers.processes import MIB, Account, Bench, Process, measure_costs, run_services
from tests.bench.servers.reference import Nginx

PACKAGE = "Bench"
FIELDS = {"file_architect": "x64", "file_type": "EXE", "file_scope": "machine"}
GROWTH = 40  # MB
CHUNK_COST = 2.5  # ms
SMALL_CHUNKS, ONE_CALL = "up, 1 MiB chunks", "up, one call"
DOWNLOADS = 3
LIMITS = 256  # MiB for the reference costs, at most
SENT = 8 * MIB  # bytes of one request through nginx


@dataclass(frozen=True)
class Upload:
    """One way to upload a file, with its budget as a multiple of a plain receiver's cost, and that of mongod."""

    title: str
    send: Callable[[Bench, Account, Path], Awaitable[str]]
    most: float | None
    mongod: float | None = None  # budget in s/GB


async def measure(run: Run) -> PartResult:
    """Upload an installer in three ways, and download it in two."""
    result, rows = PartResult(), []
    installer, size = run.stores.folder / "installer", run.scale.installer
    mongod = {"mongod": Process(run.stores.mongod.pid)}
    totals: dict[str, float] = {}  # s/GB
    expected = make_installer(installer, size)
    async with run_services(run.stores) as bench:
        account = await account_with_package(bench)
        before = {name: process.memory for name, process in bench.processes.items()}
        for upload in UPLOADS:
            floor = await asyncio.to_thread(measure_limits, run.stores.folder, min(size, LIMITS))
            sending = measure_costs(bench.processes, upload.send(bench, account, installer))
            stored, (spent, uid) = await measure_costs(mongod, sending)
            if await download_hash(bench, account, uid) != expected:
                result.failures.append(f"transfer: {upload.title}: what came back is not what was sent")
            each = per_gb(spent, size * MIB)
            limit = Limit(WHOLE, floor[WHOLE])
            totals[upload.title] = sum(each.values())
            result.lines.append(ratio_line(upload.title, each, "s/GB", limit, upload.most))
            share = (
                Limit("nginx handing it on", await _nginx_proxy_cost(run.reference.nginx, size))
                if run.reference.nginx
                else None
            )
            gateways = {"gateway": each["gateway"]}
            result.lines.append(ratio_line("… the gateway's share", gateways, "s/GB", share, 1.0, of="0.78 s/GB"))
            cost = per_gb(stored, size * MIB)["mongod"]
            result.lines.append(absolute_line("… mongod", cost, "s/GB", upload.mongod))
            rows.append((upload.title, cost_by_process(each, "s/GB"), *map(number, floor.values())))
            result.costs |= {f"{upload.title}: {name}": cost for name, cost in each.items()}
        beyond = (totals[SMALL_CHUNKS] - totals[ONE_CALL]) / GB * MIB * 1000
        beside = f"the bytes, in one call: {number(totals[ONE_CALL])} s/GB"
        result.lines.append(
            absolute_line("a chunk of 1 MiB, beyond the bytes", beyond, "ms", CHUNK_COST, beside=beside)
        )
        grown = {name: (process.largest_memory - before[name]) / 1e6 for name, process in bench.processes.items()}
        largest = max(grown, key=lambda name: grown[name])
        result.lines.append(absolute_line(f"memory while uploading: {largest} grows by", grown[largest], "MB", GROWTH))
        await _measure_downloads(run, bench, result, await installer_url(bench, account, uid), installer.stat().st_size)
    grew = ", ".join(f"{name} {number(amount)}" for name, amount in grown.items())
    text = f"""Seconds of processor time for 10⁹ bytes, an installer of {size:,} MiB; what came back is
compared with what was sent by its SHA-256. Beside each, in the same minute, what this machine needs for the
parts that nobody can leave out."""
    columns = ("sent", "cost", *floor)
    result.sections.append(Section("Transfers", text, columns, rows, f"Grew by at most, MB: {grew}."))
    return result


async def _measure_downloads(run: Run, bench: Bench, result: PartResult, url: URL, size: int) -> None:
    """Measure downloads through the gateway, and directly from upload_service as with `DOWNLOAD_URL`."""
    replica, address = await bench.replica("upload_service")
    own = url.with_port(URL(address).port)
    through = await download_costs(bench.processes, str(url), size)
    direct = await download_costs({"upload_service": replica}, str(own), size)
    result.costs |= {f"down: {name}": cost for name, cost in through.items()}
    alone, onward = None, None
    if nginx := run.reference.nginx:
        nginx.serve(size)
        process = {"nginx": nginx.process}
        files = {name: f"{nginx.addresses[name]}/catalog" for name in ("sendfile", "onward")}
        alone = Limit("nginx, `sendfile`", sum((await download_costs(process, files["sendfile"], size)).values()))
        onward = Limit("nginx before nginx", sum((await download_costs(process, files["onward"], size)).values()))
    result.lines += [
        ratio_line("down, from upload_service", direct, "s/GB", alone, 1.11, of="0.9 of its MB/s"),
        ratio_line("down, through the gateway", through, "s/GB", alone, 1.67, of="0.6 of its MB/s"),
        ratio_line("… beside nginx that hands on, too", through, "s/GB", onward),
    ]


async def download_costs(processes: Mapping[str, Process], url: str, size: int) -> dict[str, float]:
    """The CPU seconds per GB of each process for downloads of `size` bytes."""
    await send([Call("GET", url)], 1)  # The first read of a file costs more.
    spent, taken = await measure_costs(processes, send([Call("GET", url)], DOWNLOADS, connections=1))
    assert taken.size == size, taken.size
    return per_gb(spent, size * DOWNLOADS)


async def _nginx_proxy_cost(nginx: Nginx, size: int) -> float:
    """The cost of nginx as a proxy for uploads."""
    call = Call("POST", f"{nginx.addresses['sink']}/sink", body=os.urandom(SENT))
    times = max(1, size * MIB // SENT)
    spent, _ = await measure_costs({"nginx": nginx.process}, send([call], times, connections=1))
    return per_gb(spent, SENT * times)["nginx"]


def per_gb(spent: Mapping[str, float], size: int) -> dict[str, float]:
    return {name: cost / size * GB for name, cost in spent.items()}


def make_installer(path: Path, size: int) -> str:
    """Write a file of `size` different MiB. Returns its SHA-256."""
    random, digest = os.urandom(MIB), hashlib.sha256()
    with path.open("wb") as file:
        for position in range(size):
            block = position.to_bytes(8, "big") + random[8:]
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


async def account_with_package(bench: Bench) -> Account:
    """The tenant with the package of all versions."""
    account = await bench.account("bench-transfer")
    form = {"package_id": PACKAGE, "package_name": PACKAGE, "package_publisher": PACKAGE}
    url, headers = f"{account.base_url}/add_package", dict([account.bearer])
    async with bench.session.post(url, data=form, headers=headers, raise_for_status=False):
        return account  # A 401 means that it exists already.


async def _in_chunks(bench: Bench, account: Account, installer: Path, chunk: int) -> str:
    """Upload the file in chunks of `size` MiB, and add a version. Returns its UID."""
    total, server_filename = installer.stat().st_size, ""
    with installer.open("rb") as file:
        for start in range(0, total, chunk * MIB):
            content = file.read(chunk * MIB)
            server_filename = await upload_chunk(bench, account, f"bench-{chunk}", content, start, total)
    fields = {**FIELDS, "package_version": f"{chunk} MiB", "server_filename": server_filename}
    return await _version(bench, account, FormData(fields))


async def upload_chunk(
    bench: Bench, account: Account, file_id: str, content: bytes, start: int = 0, total: int = 0
) -> str:
    """Upload a chunk, by default a whole file. Returns the server filename, which is empty before the last chunk."""
    end = start + len(content)
    headers = dict(
        [account.bearer, ("X-File-ID", file_id), ("Content-Range", f"bytes {start}-{end - 1}/{total or end}")]
    )
    form = {"chunk": io.BytesIO(content)}
    async with bench.session.post(f"{account.base_url}/upload_package_version", data=form, headers=headers) as answer:
        return str((await answer.json()).get("server_filename", ""))


async def upload_in_one_call(bench: Bench, account: Account, installer: Path, version: str = "one call") -> str:
    """Upload the file with the version's form. Returns the version's UID."""
    with installer.open("rb") as file:
        form = FormData({**FIELDS, "package_version": version})
        form.add_field("file", file, filename="setup.exe")
        return await _version(bench, account, form)


async def _version(bench: Bench, account: Account, form: FormData) -> str:
    url = f"{account.base_url}/add_package_version/{PACKAGE}"
    async with bench.session.post(url, data=form, headers=dict([account.bearer])) as answer:
        return str((await answer.json())["UID"])


async def installer_url(bench: Bench, account: Account, uid: str) -> URL:
    """The download address of a version."""
    url = f"{account.base_url}/get_specific_package_version/{uid}"
    async with bench.session.get(url, headers=dict([account.bearer])) as answer:
        return URL((await answer.json())["INSTALLER_URL"], encoded=True)


async def download_hash(bench: Bench, account: Account, uid: str) -> str:
    """Download a version's installer. Returns its SHA-256."""
    digest = hashlib.sha256()
    async with bench.session.get(await installer_url(bench, account, uid)) as answer:
        async for block in answer.content.iter_any():
            digest.update(block)
    return digest.hexdigest()


UPLOADS = (
    Upload("up, 8 MiB chunks", partial(_in_chunks, chunk=8), 2.5),
    Upload(SMALL_CHUNKS, partial(_in_chunks, chunk=1), None, mongod=0.6),
    Upload(ONE_CALL, upload_in_one_call, 2.7),
)
