"""The start of `pkgrepo`: what it imports, its commands, its version, and options that it refuses."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from errno import EACCES
from importlib import import_module
from pathlib import Path
from typing import Annotated
from unittest.mock import Mock, patch

import pytest
import typer
from pymongo.errors import (
    AutoReconnect,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    ServerSelectionTimeoutError,
)
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisUnreachable
from redis.exceptions import TimeoutError as RedisTimeout
from typer.testing import CliRunner

from common.settings import BadSetting
from common.telemetry import software_version
from deploy.backup.records import AUDIT, BackupProblem
from deploy.cli import backup as cli_backup
from deploy.cli.main import COMMANDS, FAILURES, app, main
from deploy.cli.options import with_stores
from deploy.cluster.secrets import SETTINGS
from deploy.operator import stores as operator_stores
from deploy.operator import tenants as operator_tenants
from deploy.operator.status import PORTS
from deploy.operator.stores import StoreAddresses
from deploy.operator.tenants import Operator
from tests.support.tables import each
from tests.support.winget.manifests import make_manifest

ROOT = Path(__file__).parents[4]
PRODUCT = ("common", "deploy", "gateway", "auth_service", "catalog_service", "upload_service", "client_registry")
DRIVERS = ("motor", "pymongo", "redis")
LIBRARIES = ("aiohttp", "pydantic", "uvloop", *DRIVERS)


def imported(arguments: list[str]) -> set[str]:
    """The modules that a command imports."""
    run = f"import sys; sys.argv = ['pkgrepo', *{arguments}]; from deploy.cli.main import main; main()"
    command = [sys.executable, "-X", "importtime", "-c", run]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return {line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")}


@each(("option", "more"), [("--help", set()), ("--version", {"common", "common.telemetry"})])
def test_help_and_version_import_no_service_and_no_driver(option: str, more: set[str]) -> None:
    names = imported([option])
    ours = {name for name in names if name.partition(".")[0] in PRODUCT}
    assert ours == {"deploy", "deploy.cli", "deploy.cli.main", *more}
    assert names.isdisjoint(LIBRARIES)


@each(
    ("arguments", "own", "others"),
    [
        (("status", "--data", "."), "operator.status", ("gateway", "auth_service", "common.settings", *DRIVERS)),
        (("publish", "--help"), "publish.publisher", ("common.http.server", "common.mongo", "common.redis", "uvloop")),
    ],
)
def test_a_command_imports_no_driver_and_no_server(
    arguments: tuple[str, ...], own: str, others: tuple[str, ...]
) -> None:
    names = imported([*arguments])
    assert f"deploy.{own}" in names
    assert names.isdisjoint(others)


@each("name", sorted(COMMANDS))
def test_the_list_of_commands_has_the_help_of_each_command(name: str) -> None:
    module, attribute, text = COMMANDS[name]
    command = getattr(import_module(f"deploy.cli.{module}"), attribute)
    if not isinstance(command, typer.Typer):
        assert re.sub(r"\s+", " ", command.__doc__).startswith(text)


@each(("module", "name"), sorted(FAILURES.items()))
def test_an_expected_failure_ends_with_one_line(module: str, name: str) -> None:
    error = getattr(import_module(module), name)("the reason")
    with patch("deploy.cli.main.app", side_effect=error), pytest.raises(SystemExit, match=r"^pkgrepo: the reason$"):
        main()


@each(
    ("error", "text"),
    [
        (NetworkTimeout("10.0.0.7"), "MongoDB did not answer in time"),
        (ExecutionTimeout("", 50), "MongoDB did not answer in time"),
        (ServerSelectionTimeoutError("10.0.0.7"), "MongoDB is not reached, or has no primary; check MONGO_URL"),
        (AutoReconnect("10.0.0.7"), "MongoDB is not reached"),
        (OperationFailure("", 18), "MongoDB refuses the user or the password; check MONGO_URL"),
        (OperationFailure("", 13), "MongoDB refuses the command, because the user of MONGO_URL lacks a right"),
        (OperationFailure("", 59), "MongoDB refused a command; check MONGO_URL (OperationFailure 59)"),
        (RedisTimeout("10.0.0.8"), "Redis did not answer in time"),
        (RedisUnreachable("10.0.0.8"), "Redis is not reached, or has no primary; check REDIS_URL"),
        (AuthenticationError("WRONGPASS"), "Redis refuses the user or the password; check REDIS_URL"),
    ],
    ids=str,
)
def test_the_failure_of_a_store_names_the_store_and_the_cause(error: Exception, text: str) -> None:
    with patch("deploy.cli.main.app", side_effect=error), pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value.code).startswith(f"pkgrepo: {text}")
    assert "10.0.0." not in str(ended.value.code)


def test_an_unexpected_failure_is_raised() -> None:
    with patch("deploy.cli.main.app", side_effect=ZeroDivisionError), pytest.raises(ZeroDivisionError):
        main()


def test_the_version_is_that_of_the_software() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"pkgrepo {software_version()}\n"


def test_status_knows_the_default_address_of_each_service() -> None:
    defaults = {name: settings.model_fields["listen"].default for name, settings in SETTINGS.items()}
    assert {name: f"127.0.0.1:{port}" for name, port in PORTS.items()} == defaults


@each(
    ("arguments", "reason"),
    [
        (("tenant", "create", "acme", "--max-clients", str(2**31)), "--max-clients"),
        (("tenant", "create", "acme", "--storage-quota", str(2**63)), "--storage-quota"),
        (("tenant", "edit", "acme", "--max-clients", str(2**31)), "--max-clients"),
        (("tenant", "edit", "acme", "--storage-quota", str(2**63)), "--storage-quota"),
        (("tenant", "edit", "acme", "--storage-quota", "9" * 5000), "--storage-quota"),
        (("tenant", "edit", "acme", "--max-clients", "many"), "--max-clients"),
        (("up", "--port", "65536"), "--port"),
        (("up", "--tls", "--name", "https://pkgrepo.test"), "must be a host name"),
    ],
)
def test_a_value_outside_of_the_limits_is_refused(arguments: tuple[str, ...], reason: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert reason in re.sub(r"\x1b\[[0-9;]*m", "", result.output)


@patch("deploy.cli.main.app", side_effect=PermissionError(EACCES, "Permission denied", "/backups/lock"))
def test_an_unusable_file_is_named(*_: object) -> None:
    with pytest.raises(SystemExit, match="pkgrepo: /backups/lock: Permission denied"):
        main()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--data", "data"], "--data: cannot be used with manifests"),
        (["--passphrase-file", "-"], "--passphrase-file: cannot be used with manifests"),
        ([], "give --installers or --fetch, or --keep-addresses"),
        (["--fetch", "--keep-addresses"], "give --installers or --fetch, or --keep-addresses"),
        (["--keep-addresses"], "set PKGREPO_TOKEN"),
        (["--fetch", "--allow-network", "10.0.0.1/8"], "must be a network such as 10.1.0.0/16"),
        (["--fetch"], "set PKGREPO_TOKEN"),
        (["nowhere", "--fetch"], "nowhere: does not exist"),
    ],
)
def test_options_that_do_not_fit_manifests_are_refused(options: Sequence[str], reason: str, tmp_path: Path) -> None:
    make_manifest().write(tmp_path)
    result = CliRunner().invoke(app, ["import", str(tmp_path), *options])
    assert isinstance(result.exception, BadSetting)
    assert reason in str(result.exception)


@pytest.mark.parametrize(
    "option", ["--fetch", "--keep-addresses", "--dry-run", "--json", "--ca-file=archive.tar", "--url=https://a/b"]
)
def test_options_of_manifests_are_refused_with_an_archive(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("archive.tar").touch()
    result = CliRunner().invoke(app, ["import", "archive.tar", option])
    assert isinstance(result.exception, BadSetting)
    assert str(result.exception) == f"{option.partition('=')[0]}: cannot be used with the archive of a tenant"


def test_a_file_that_is_neither_manifest_nor_archive_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MONGO_URL", "REDIS_URL"):
        monkeypatch.setenv(name, f"{name.partition('_')[0].lower().replace('mongo', 'mongodb')}://127.0.0.1:1/")
    monkeypatch.setenv("INSTALLERS", str(tmp_path))
    (tmp_path / "archive.tar").write_bytes(b"neither")
    archive = str(tmp_path / "archive.tar")
    result = CliRunner().invoke(app, ["import", archive, "--passphrase-file", "-"], input=f"{'a' * 20}\n")
    assert isinstance(result.exception, BackupProblem)
    assert "is not an archive" in str(result.exception)


def test_the_import_of_an_archive_needs_its_passphrase(tmp_path: Path) -> None:
    (tmp_path / "archive.tar").touch()
    result = CliRunner().invoke(app, ["import", str(tmp_path / "archive.tar")])
    assert isinstance(result.exception, BadSetting)
    assert "--passphrase-file: is required" in str(result.exception)


def test_texts_of_an_archive_are_escaped_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def done(work: Coroutine[object, object, object]) -> object:
        work.close()
        head = "3:\x1b]0;owned\x07"
        return Mock(tenant_id="acme", made_at=datetime.now(UTC), audit_head=head, files=[]), [AUDIT]

    monkeypatch.setattr(cli_backup, "store_addresses", Mock())
    monkeypatch.setattr(cli_backup, "open_storage", Mock())
    monkeypatch.setattr(cli_backup, "run_until_stopped", done)
    cli_backup.import_tenant(Path("acme.tar"), Mock(), None)
    assert r"its earlier head 3:\x1b]0;owned\x07" in capsys.readouterr().out


def test_a_command_has_its_stores_open_and_ends_with_its_exit_status(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, calls = Mock(), list[object]()

    @asynccontextmanager
    async def open_operator(addresses: object) -> AsyncIterator[Mock]:
        calls.append(addresses)
        yield operator
        calls.append("closed")

    def store_addresses(data: Path | None) -> Mock:
        return Mock(addresses=data)

    monkeypatch.setattr(operator_stores, "store_addresses", store_addresses)
    monkeypatch.setattr(operator_tenants, "open_operator", open_operator)

    @with_stores
    async def greet(
        where: StoreAddresses,
        opened: Operator,
        name: Annotated[str, typer.Argument()],
        loud: Annotated[bool, typer.Option("--loud")] = False,
    ) -> None:
        """Greet somebody."""
        calls.append((where.addresses, opened, name, loud))
        if loud:
            raise typer.Exit(3)

    command = typer.Typer()
    command.command()(greet)
    assert CliRunner().invoke(command, ["Ada"]).exit_code == 0
    assert calls == [None, (None, operator, "Ada", False), "closed"]
    assert CliRunner().invoke(command, ["Ada", "--loud", "--data", "here"]).exit_code == 3
    assert calls[3:5] == [Path("here"), (Path("here"), operator, "Ada", True)]
    help_text = CliRunner().invoke(command, ["--help"]).output
    assert "Greet somebody." in help_text
    assert "opened" not in help_text
