"""A large installer through the gateway and back: is it the same, and what does it cost, next to what it must?"""

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
from tests.bench.limits import GB, WHOLE, limits
from tests.bench.report import Found, Limit, Section, against, number, shared, within
from tests.bench.scale import Run
from tests.bench.servers.processes import MIB, Account, Bench, Process, costs, running
from tests.bench.servers.reference import Nginx

PACKAGE = "Bench"
FIELDS = {"file_architect": "x64", "file_type": "EXE", "file_scope": "machine"}
GROWTH = 40  # MB
DOWNLOADS = 3
LIMITS = 256  # MiB that they are measured with, at most
SENT = 8 * MIB  # bytes that nginx hands on at once


@dataclass(frozen=True)
class Upload:
    """One way to send a file: how, and how many times the plain receiver's cost it may have."""

    title: str
    send: Callable[[Bench, Account, Path], Awaitable[str]]
    most: float
    of: str


async def measure(run: Run) -> Found:
    """Send an installer in three ways, and fetch it in two."""
    found, rows = Found(), []
    installer, size = run.stores.folder / "installer", run.scale.installer
    expected = make_installer(installer, size)
    async with running(run.stores) as bench:
        account = await _account(bench)
        before = {name: process.memory for name, process in bench.processes.items()}
        for upload in UPLOADS:
            floor = await asyncio.to_thread(limits, run.stores.folder, min(size, LIMITS))
            spent, uid = await costs(bench.processes, upload.send(bench, account, installer))
            if await _hash(bench, account, uid) != expected:
                found.failures.append(f"transfer: {upload.title}: what came back is not what was sent")
            each = per_gb(spent, size * MIB)
            limit = Limit(WHOLE, floor[WHOLE])
            found.lines.append(against(upload.title, each, "s/GB", limit, upload.most, of=upload.of))
            share = Limit("nginx handing it on", await _handed_on(run.beside.nginx, size)) if run.beside.nginx else None
            gateways = {"gateway": each["gateway"]}
            found.lines.append(against("… the gateway's share", gateways, "s/GB", share, 1.0, of="0.78 s/GB"))
            rows.append((upload.title, shared(each, "s/GB"), *map(number, floor.values())))
            found.costs |= {f"{upload.title}: {name}": cost for name, cost in each.items()}
        grown = {name: (process.largest_memory - before[name]) / 1e6 for name, process in bench.processes.items()}
        largest = max(grown, key=lambda name: grown[name])
        found.lines.append(within(f"memory while uploading: {largest} grows by", grown[largest], "MB", GROWTH))
        await _down(run, bench, found, await _url(bench, account, uid), installer.stat().st_size)
    grew = ", ".join(f"{name} {number(amount)}" for name, amount in grown.items())
    text = f"""Seconds of processor time for 10⁹ bytes, an installer of {size:,} MiB; what came back is
compared with what was sent by its SHA-256. Beside each, in the same minute, what this machine needs for the
parts that nobody can leave out."""
    columns = ("sent", "cost", *floor)
    found.sections.append(Section("Transfers", text, columns, rows, f"Grew by at most, MB: {grew}."))
    return found


async def _down(run: Run, bench: Bench, found: Found, url: URL, size: int) -> None:
    """Through the gateway, and from upload_service's own door, as `DOWNLOAD_URL` lets machines do."""
    replica, address = await bench.replica("upload_service")
    own = url.with_port(URL(address).port)
    through = await _downloads(bench.processes, str(url), size)
    direct = await _downloads({"upload_service": replica}, str(own), size)
    found.costs |= {f"down: {name}": cost for name, cost in through.items()}
    alone, onward = None, None
    if nginx := run.beside.nginx:
        nginx.serve(size)
        there = {"nginx": nginx.process}
        files = {name: f"{nginx.addresses[name]}/catalog" for name in ("sendfile", "onward")}
        alone = Limit("nginx, `sendfile`", sum((await _downloads(there, files["sendfile"], size)).values()))
        onward = Limit("nginx before nginx", sum((await _downloads(there, files["onward"], size)).values()))
    found.lines += [
        against("down, from upload_service", direct, "s/GB", alone, 1.11, of="0.9 of its MB/s"),
        against("down, through the gateway", through, "s/GB", alone, 1.67, of="0.6 of its MB/s"),
        against("… beside nginx that hands on, too", through, "s/GB", onward),
    ]


async def _downloads(processes: Mapping[str, Process], url: str, size: int) -> dict[str, float]:
    await send([Call("GET", url)], 1)  # A file that nobody has read yet costs more.
    spent, taken = await costs(processes, send([Call("GET", url)], DOWNLOADS, connections=1))
    assert taken.size == size, taken.size
    return per_gb(spent, size * DOWNLOADS)


async def _handed_on(nginx: Nginx, size: int) -> float:
    """What nginx alone needs to hand on what is sent to it."""
    call = Call("POST", f"{nginx.addresses['sink']}/sink", body=os.urandom(SENT))
    times = max(1, size * MIB // SENT)
    spent, _ = await costs({"nginx": nginx.process}, send([call], times, connections=1))
    return per_gb(spent, SENT * times)["nginx"]


def per_gb(spent: Mapping[str, float], size: int) -> dict[str, float]:
    return {name: cost / size * GB for name, cost in spent.items()}


def make_installer(path: Path, size: int) -> str:
    """Write `size` MiB of which no two are alike; their SHA-256."""
    random, digest = os.urandom(MIB), hashlib.sha256()
    with path.open("wb") as file:
        for position in range(size):
            block = position.to_bytes(8, "big") + random[8:]
            digest.update(block)
            file.write(block)
    return digest.hexdigest()


async def _account(bench: Bench) -> Account:
    """The tenant, with the package that all versions belong to."""
    account = await bench.account("bench-transfer")
    form = {"package_id": PACKAGE, "package_name": PACKAGE, "package_publisher": PACKAGE}
    url, headers = f"{account.base_url}/add_package", dict([account.bearer])
    async with bench.session.post(url, data=form, headers=headers, raise_for_status=False):
        return account  # A 401 says that it is there already.


async def _in_chunks(bench: Bench, account: Account, installer: Path, chunk: int) -> str:
    """Send the file in chunks of so many MiB and make it a version; the version's UID."""
    total, body, headers = installer.stat().st_size, {}, dict([account.bearer])
    with installer.open("rb") as file:
        for start in range(0, total, chunk * MIB):
            content = file.read(chunk * MIB)
            form = FormData()
            form.add_field("chunk", io.BytesIO(content), filename="chunk")
            headers |= {
                "X-File-ID": f"bench-{chunk}",
                "Content-Range": f"bytes {start}-{start + len(content) - 1}/{total}",
            }
            url = f"{account.base_url}/upload_package_version"
            async with bench.session.post(url, data=form, headers=headers) as answer:
                body = await answer.json()
    fields = {**FIELDS, "package_version": f"{chunk} MiB", "server_filename": body["server_filename"]}
    return await _version(bench, account, FormData(fields))


async def _in_one_call(bench: Bench, account: Account, installer: Path) -> str:
    """Send the file with the version's fields; the version's UID."""
    with installer.open("rb") as file:
        form = FormData({**FIELDS, "package_version": "one call"})
        form.add_field("file", file, filename="setup.exe")
        return await _version(bench, account, form)


async def _version(bench: Bench, account: Account, form: FormData) -> str:
    url = f"{account.base_url}/add_package_version/{PACKAGE}"
    async with bench.session.post(url, data=form, headers=dict([account.bearer])) as answer:
        return str((await answer.json())["UID"])


async def _url(bench: Bench, account: Account, uid: str) -> URL:
    url = f"{account.base_url}/get_specific_package_version/{uid}"
    async with bench.session.get(url, headers=dict([account.bearer])) as answer:
        return URL((await answer.json())["INSTALLER_URL"], encoded=True)


async def _hash(bench: Bench, account: Account, uid: str) -> str:
    """The SHA-256 of what comes when a version's installer is fetched."""
    digest = hashlib.sha256()
    async with bench.session.get(await _url(bench, account, uid)) as answer:
        async for block in answer.content.iter_any():
            digest.update(block)
    return digest.hexdigest()


UPLOADS = (
    Upload("up, 8 MiB chunks", partial(_in_chunks, chunk=8), 2.3, "2.2 s/GB"),
    Upload("up, 1 MiB chunks", partial(_in_chunks, chunk=1), 2.6, "2.5 s/GB"),
    Upload("up, one call", _in_one_call, 2.3, "2.2 s/GB"),
)
