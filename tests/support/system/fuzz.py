"""Runs schemathesis with the OpenAPI document against the running product.

The tests always send the same requests. `python -m tests.support.system.fuzz 300` runs for 300 seconds with a random
seed. It prints the seed, so a failure can be repeated.

No generated request ends the session in use. `logout` ends only the session in its form, `change_password` keeps the
caller's session, and `edit_settings` rejects networks without the caller. `fuzz_hooks` prevents the deletion of the
user, and lets requests withdraw a version that no other operation needs. A caller with a Bearer token needs no client
token.
"""

import asyncio
import json
import os
import secrets
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlsplit

import yaml
from aiohttp import FormData

from tests.support.servers import start as servers
from tests.support.services.catalog import picture
from tests.support.system.publishing import add_package, publish
from tests.support.system.seed import SeedData, seed_tenant
from tests.support.system.services import PASSWORD, Api, Services, all_services
from tests.support.winget.client import CONTRACTS

ROOT = Path(__file__).parents[3]
DOCUMENT = ROOT / "gateway" / "openapi.yaml"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
DETERMINISTIC = ("--generation-deterministic",)  # It ignores a seed.
# The names and ids that the document's examples use.
EXAMPLE_USER = {"username": "alice", "password": "correct horse battery staple"}
EXAMPLE_CHANGE = "old_password: correct horse battery staple"
EXAMPLE_PACKAGE = "Mozilla.Firefox"
EXAMPLE_VERSIONS = ("3f2b8e5c-7a43-4d19-b7c8-2f4b9a1d6e70", "a9c1d0e4-5b6f-4e27-8d3a-1c0b9f8e7d6c")
EXAMPLE_CLIENT = {
    "client_id": "6c9f2a17-0f3c-4b8a-9d55-7e1b2c3d4e5f",
    "auth_token": "0d9a4f1e-2a5c-4c63-9a0e-8a2f3d1b7c55",
}
QUOTA = 1 << 20  # bytes: small enough to be exceeded
MAX_CLIENTS = 25  # clients: few enough to run out of
SESSION_USER = "admin"
WITHDRAWALS = ("hold_version", "roll_back_version")
PROVIDER_LOGOUT = "POST sign_in"  # Only an identity provider can sign its token.


@dataclass(frozen=True)
class Outcome:
    """The result of a run. `report` is its output, `statuses` counts the statuses of each operation."""

    exit_code: int
    report: str
    operations: int
    cases: int
    statuses: Mapping[str, Counter[int]]

    def never_succeeded(self) -> set[str]:
        """The documented operations that returned only errors, although a valid request can be generated."""
        failed = {name for name in _documented() if not any(status < 400 for status in self.statuses[name])}
        return failed - {PROVIDER_LOGOUT}

    def untested(self) -> set[str]:
        """The documented operations without a request."""
        return set(_documented()) - {name for name, counts in self.statuses.items() if counts}

    def failed_answers(self) -> int:
        """The number of server errors."""
        return sum(number for counts in self.statuses.values() for status, number in counts.items() if status >= 500)

    def __str__(self) -> str:
        answers = sum(self.statuses.values(), Counter())
        return f"{self.operations} operations, {self.cases} cases, answers {dict(sorted(answers.items()))}"


async def limited_tenant(services: Services) -> Api:
    """A tenant with low limits."""
    return await services.tenant(storage_quota=QUOTA, max_clients=MAX_CLIENTS)


async def fuzz(api: Api, *options: str, served_at: Api | None = None) -> Outcome:
    """Run schemathesis on a tenant with seed data and the examples of the document, perhaps at another gateway."""
    seed_data = await seed_tenant(api)
    client = (await api.call("POST", "add_client", data={"client_name": "example"})).body
    withdrawn = await publish(api, seed_data.parts["package_id"], "0.8")
    document = await _document_with_existing_examples(api, client)
    icon = await _example_icon(api)
    replaced = await _replaced_values(seed_data, client["client_id"], withdrawn.uid)
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        (Path(folder) / "openapi.yaml").write_text(document, encoding="utf-8")
        (Path(folder) / "schemathesis.toml").write_text(_configuration(seed_data, icon), encoding="utf-8")
        outcome = await _run(served_at or api, Path(folder), replaced, *options)
    assert (await api.call("GET", "test")).status == 200, "the session ended during the run"
    return outcome


async def _document_with_existing_examples(api: Api, client: Mapping[str, str]) -> str:
    """The document, with ids of existing objects in its examples."""
    assert (await api.call("POST", "add_user", data=EXAMPLE_USER)).status == 201
    await add_package(api, EXAMPLE_PACKAGE)
    versions = [await publish(api, EXAMPLE_PACKAGE, f"0.{number}") for number in range(len(EXAMPLE_VERSIONS))]
    document = DOCUMENT.read_text(encoding="utf-8").replace(EXAMPLE_CHANGE, f"old_password: {PASSWORD}")
    for example, version in zip(EXAMPLE_VERSIONS, versions, strict=True):
        document = document.replace(example, version.uid)
    for name, example in EXAMPLE_CLIENT.items():
        document = document.replace(example, client[name])
    return document


async def _example_icon(api: Api) -> str:
    """Add a logo to the example's package. Returns its signed address."""
    form = FormData()
    form.add_field("Logo", picture(), filename="logo.png")
    assert (await api.call("PATCH", "edit_package", EXAMPLE_PACKAGE, data=form)).status == 200
    # As the administrator: the versions have not entered the ring of anonymous callers.
    path = ("winget", "packageManifests", EXAMPLE_PACKAGE)
    versions = (await api.call("GET", *path, headers={"Version": CONTRACTS[-1]})).body["Data"]["Versions"]
    address: str = versions[0]["DefaultLocale"]["Icons"][0]["IconUrl"]
    return address


async def _replaced_values(seed_data: SeedData, client_id: str, withdrawn: str) -> dict[str, dict[str, str]]:
    """The values that must not be deleted or stopped and what is sent instead, by operation.

    Withdrawals are of the version `withdrawn`, so the others can be promoted, paused and downloaded.
    """
    package = seed_data.parts["package_id"]
    seeded, examples = [await _version_uids(seed_data.api, name) for name in (package, EXAMPLE_PACKAGE)]
    protected = {
        "delete_user": [SESSION_USER],
        "edit_user": [SESSION_USER],
        "delete_package": [package, EXAMPLE_PACKAGE],
        "delete_package_version": seeded,
        "delete_client": [seed_data.parts["client_id"]],
        "rotate_client_token": [seed_data.parts["client_id"], client_id],
    }
    return {
        **{operation: dict.fromkeys(values, "another") for operation, values in protected.items()},
        **{operation: dict.fromkeys(seeded + examples, withdrawn) for operation in WITHDRAWALS},
        "pause_version": dict.fromkeys(examples, withdrawn),
    }


async def _version_uids(api: Api, package_id: str) -> list[str]:
    return [version["UID"] for version in (await api.call("GET", "get_package_versions", package_id)).body]


async def _run(api: Api, folder: Path, replaced: Mapping[str, Mapping[str, str]], *options: str) -> Outcome:
    command = [sys.executable, "-m", "schemathesis.cli", "--no-color", "--config-file", "schemathesis.toml", "run"]
    command += ["openapi.yaml", "--url", api.base_url, "--header", f"Authorization: {api.headers['Authorization']}"]
    command += ["--checks", ",".join(CHECKS), "--report", "json,har", "--report-dir", "reports", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FUZZ_REPLACED": json.dumps(replaced)}
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment, stdout=PIPE, stderr=STDOUT)
    output, _ = await process.communicate()
    reports = {path.name.partition("-")[0]: path for path in folder.glob("reports/*.json")}
    assert reports.keys() == {"json", "har"}, output.decode()
    report, traffic = (json.loads(reports[kind].read_text(encoding="utf-8")) for kind in ("json", "har"))
    return Outcome(
        process.returncode or 0,
        output.decode(),
        report["operations"]["tested"],
        report["test_cases"]["generated"],
        _statuses(api, traffic),
    )


def _configuration(seed_data: SeedData, icon: str) -> str:
    """The configuration: half of the values are of existing objects, so operations return more than 404."""
    link = {name: values[0] for name, values in parse_qs(urlsplit(seed_data.link).query).items()}
    known = {
        **{f"path.{name}": value for name, value in seed_data.parts.items() if name not in {"username", "asset"}},
        "query.signature": link["signature"],
        "header.X-File-ID": seed_data.transfer,
        "header.If-Match": "*",  # A random tag is never that of a version.
        "body.group": seed_data.form["group"],
        "body.client_id": seed_data.parts["client_id"],
        "body.auth_token": seed_data.parts["auth_token"],
        "body.server_filename": seed_data.form["server_filename"],
        "body.installer_url": "https://downloads.example.com/setup.exe",
    }
    # A signed address is valid only as a whole.
    address = ("path.server_filename", "path.file_name", "query.expires")
    values: dict[str, str | int] = {**known, "query.expires": int(link["expires"])}
    logo = {
        "path.package_id": EXAMPLE_PACKAGE,
        "path.file_name": urlsplit(icon).path.rpartition("/")[2],
        "query.expires": int(parse_qs(urlsplit(icon).query)["expires"][0]),
        "query.signature": parse_qs(urlsplit(icon).query)["signature"][0],
    }
    lines = [
        'hooks = "tests.support.system.fuzz_hooks"',
        "continue-on-failure = true",
        "max-redirects = 0",
        'generation.database = "none"',
        "cache.enabled = false",
        *(f"dictionaries.'{name}'.values = [{value!r}]" for name, value in values.items()),
        *(f"dictionaries.'icon.{name}'.values = [{value!r}]" for name, value in logo.items()),
        *(f"parameters.'{name}' = {{ dictionary = '{name}', probability = 0.5 }}" for name in known),
        "[[operations]]",
        "include-operation-id = 'download'",
        *(f"parameters.'{name}' = {{ dictionary = '{name}' }}" for name in address),
        "[[operations]]",
        "include-operation-id = 'icon'",
        *(f"parameters.'{name}' = {{ dictionary = 'icon.{name}' }}" for name in logo),
    ]
    return "\n".join(lines)


def _documented() -> Iterator[str]:
    for path, item in yaml.safe_load(DOCUMENT.read_text(encoding="utf-8"))["paths"].items():
        yield from (f"{method.upper()} {path.split('/')[1]}" for method in item)


def _statuses(api: Api, traffic: Mapping[str, object]) -> dict[str, Counter[int]]:
    statuses: dict[str, Counter[int]] = defaultdict(Counter)
    for entry in traffic["log"]["entries"]:  # type: ignore[index]  # as the archive's format says
        path = entry["request"]["url"].removeprefix(api.base_url)
        operation = path.strip("/").partition("/")[0].partition("?")[0]
        statuses[f"{entry['request']['method']} {operation}"][entry["response"]["status"]] += 1
    return statuses


async def _main(seconds: int) -> int:
    seed = str(secrets.randbelow(2**32))
    async with servers.mongo() as mongo, servers.redis() as redis, servers.rabbitmq() as rabbitmq:
        with TemporaryDirectory(prefix="pkgrepo-") as folder:
            async with all_services(Path(folder), mongo, redis, rabbitmq) as services:
                outcome = await fuzz(await limited_tenant(services), "--max-time", str(seconds), "--seed", seed)
    sys.stdout.write(f"{outcome.report}\n{outcome}\n")
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(int(sys.argv[1]))))
