"""The documents name every operation and setting; the commands of `make` work on a new machine."""

import os
import re
import shutil
import signal
import subprocess
import tomllib
from pathlib import Path

import pytest

from auth_service.settings import AuthSettings
from auth_service.users import throttle_store as throttle
from catalog_service.settings import CatalogSettings
from client_registry.settings import RegistrySettings
from common.auth import internal_tokens
from common.service_client import client
from common.settings import FIXED, ServiceSettings
from gateway.forwarding import audit
from gateway.operations import OPERATIONS, Operation
from gateway.settings import GatewaySettings
from tests.support.role_matrix import DOCUMENT, with_matrix
from tests.support.tables import each
from upload_service.settings import UploadSettings

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "deploy" / "docs"
INTERFACE = (DOCS / "interface.md").read_text(encoding="utf-8")
CONFIGURATION = (DOCS / "configuration.md").read_text(encoding="utf-8")
PAGES = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/kubernetes/README.md"),
    *sorted(str(page.relative_to(ROOT)) for page in [*ROOT.glob("*/README.md"), *DOCS.glob("*.md")]),
)
KINDS = (AuthSettings, CatalogSettings, RegistrySettings, GatewaySettings, UploadSettings)
SETTINGS = sorted({name.upper() for kind in KINDS for name in kind.model_fields.keys() - FIXED})
OPERATIONS_GUIDE = "deploy/docs/operations.md"
COMPANY_LOGIN = "deploy/docs/company-login.md"
DAY = 24 * 3600  # seconds
# Sentences with numbers of the product.
LIMITS = [
    ("SECURITY.md", f"{throttle.NETWORK_FAILURE_LIMIT} failed sign-ins at a place in {throttle.WINDOW // 60} minutes"),
    ("SECURITY.md", f"{throttle.USER_FAILURE_LIMIT} failures of one user in {throttle.WINDOW // 60} minutes"),
    ("SECURITY.md", f"the last {throttle.KNOWN_NETWORKS} places where the user signed in within"),
    ("SECURITY.md", f"Redis keeps these addresses for {throttle.KNOWN_FOR // DAY} days"),
    ("SECURITY.md", f"operation, tenant and caller, valid for {internal_tokens.LIFETIME} seconds"),
    ("SECURITY.md", f"lists {audit.MAX_REFUSALS} refused writes a minute of each user and API token"),
    (
        OPERATIONS_GUIDE,
        f"{client.STREAMS:,}; one address, or one IPv6 /64 network, has at most {client.STREAMS_OF_NETWORK}",
    ),
    (COMPANY_LOGIN, f"begin {throttle.BEGUN_LIMIT:,} sign-ins in {throttle.BEGUN_WINDOW // 60} minutes"),
]
# The pages of the sign-in and the assets are for browsers only.
SIGN_IN = {"sign_in", "sign_in/oidc", "sign_in/oidc/callback"}
NAMED = [row for row in OPERATIONS if row.name not in SIGN_IN and "assets" not in row.parts]


@each("row", NAMED, ids=lambda row: f"{row.method} {row.path}")
def test_the_documents_name_every_operation(row: Operation) -> None:
    assert f"`{row.method} {row.path}`" in INTERFACE


def test_the_document_of_access_has_the_current_matrix_of_roles() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_matrix(text) == text


@each("setting", SETTINGS)
def test_the_documents_name_every_setting(setting: str) -> None:
    assert f"`{setting}`" in CONFIGURATION


@each("kind", KINDS)
def test_the_documents_have_the_default_of_each_number(kind: type[ServiceSettings]) -> None:
    rows = [line for line in CONFIGURATION.splitlines() if line.startswith("| `")]
    numbers = {name: field.default for name, field in kind.model_fields.items() if type(field.default) is int}
    wrong = [
        name
        for name, default in numbers.items()
        if not any(row.startswith(f"| `{name.upper()}` | `{default}` |") for row in rows)
    ]
    assert wrong == []


@each(("page", "sentence"), LIMITS)
def test_the_limits_of_the_documents_are_those_of_the_product(page: str, sentence: str) -> None:
    assert sentence in " ".join((ROOT / page).read_text(encoding="utf-8").split())


@each("kind", [CatalogSettings, UploadSettings])
def test_the_documents_name_the_default_address_of_rabbitmq(kind: type[CatalogSettings] | type[UploadSettings]) -> None:
    assert f"`{kind.model_fields['rabbitmq_url'].default}`" in CONFIGURATION


@each("page", PAGES)
def test_links_lead_to_existing_pages_and_headings(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"]\(([^()\s]+)\)", text):
        file, _, heading = link.partition("#")
        if not file.startswith("https:"):
            target = (ROOT / page).parent / file if file else ROOT / page
            assert target.exists(), link
            assert not heading or heading in headings(target), link


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


@each("page", [*PAGES, "CHANGELOG.md", "deploy/compose.yaml"])
def test_operator_commands_in_compose_have_no_deps(page: str) -> None:
    commands = re.findall(r"\brun --rm .*?operator\b", (ROOT / page).read_text(encoding="utf-8"))
    assert set(commands) <= {"run --rm --no-deps operator", "run --rm --no-deps -T operator"}  # -T: with an input


@each("page", [*PAGES, *sorted(f"deploy/{file.name}" for file in (ROOT / "deploy").glob("compose*.yaml"))])
def test_no_compose_command_leaves_out_the_overlays(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"docker compose (?:-p \w+ )?-f.*|.*--remove-orphans.*", text) == []


def test_every_line_that_adds_the_winget_source_trusts_it() -> None:
    pages = [ROOT / page for page in PAGES] + sorted((ROOT / "gateway" / "dashboard" / "templates").rglob("*.html"))
    lines = [line for page in pages for line in page.read_text(encoding="utf-8").splitlines()]
    adding = [line for line in lines if "winget source add " in line]

    assert len(adding) >= 3
    assert [line for line in adding if "--trust-level trusted" not in line] == []


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    lines = [line.lstrip("# ") for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


class Machine:
    """A simulated Debian: shell scripts as commands, some installed packages, and we are root."""

    def __init__(self, folder: Path) -> None:
        self.policy = folder / "policy-rc.d"
        self.commands = folder / "bin"
        self.commands.mkdir()
        self.script = folder / "install-packages"
        text = (ROOT / "deploy" / "install-packages").read_text()
        assert "/usr/sbin/policy-rc.d" in text
        self.script.write_text(text.replace("/usr/sbin/policy-rc.d", str(self.policy)))
        self.has()
        self.command("id", "echo 0")
        self.command("apt-get", f'echo "apt-get $* $(test -e {self.policy} && echo quietly)" >&2')

    def command(self, name: str, does: str) -> None:
        (self.commands / name).write_text(f"#!/bin/sh\n{does}\n")
        (self.commands / name).chmod(0o755)

    def has(self, *packages: str) -> None:
        cases = "".join(f"{name}) echo 'install ok installed';; " for name in packages)
        self.command("dpkg-query", f'case "$4" in {cases} *) exit 1;; esac')

    def install(self, *names: str) -> "subprocess.Popen[str]":
        environment = {"PATH": f"{self.commands}:{os.environ['PATH']}"}
        command = ["sh", str(self.script), *names]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def planned(*arguments: str) -> str:
    """The commands that `make` would run."""
    make = shutil.which("make")
    assert make
    return subprocess.run([make, "-n", *arguments], cwd=ROOT, capture_output=True, check=True, text=True).stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_missing_packages_are_installed_without_starting_services(machine: Machine) -> None:
    machine.has("there")
    with machine.install("there", "absent") as process:
        errors = process.communicate()[1]
    assert "apt-get install -y -qq --no-install-recommends absent quietly" in errors
    assert process.returncode == 0
    assert not machine.policy.exists()


@pytest.mark.parametrize(("installed", "expected"), [("libcurl4", ""), ("libcurl4t64", ""), ("other", "libcurl4")])
def test_a_package_is_recognised_by_either_name_and_the_first_is_installed(
    machine: Machine, installed: str, expected: str
) -> None:
    machine.has(installed)
    with machine.install("libcurl4|libcurl4t64") as process:
        errors = process.communicate()[1]
    assert errors.endswith(f"--no-install-recommends {expected} quietly\n") if expected else not errors
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_installation_leaves_no_policy_behind(machine: Machine, number: signal.Signals) -> None:
    machine.command("apt-get", f"test ! -e {machine.policy} || kill -{number} $PPID")
    with machine.install("absent") as process:
        process.communicate()
    assert process.returncode == 128 + number
    assert not machine.policy.exists()


def test_an_environment_without_pip_is_recreated(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert f"-m venv {tmp_path}" in planned("run", f"VENV={tmp_path}")


@each("variable", ["TEST_MONGO_URL", "TEST_REDIS_URL", "TEST_RABBITMQ_URL"])
def test_external_servers_are_used_by_a_single_test_process(variable: str) -> None:
    unset = ("TEST_MONGO_URL=", "TEST_REDIS_URL=", "TEST_RABBITMQ_URL=")
    assert "--numprocesses" in planned("test", *unset)
    assert "--numprocesses" not in planned("test", *unset, f"{variable}=somewhere")


@each("lock", ["requirements.lock", "requirements-test.lock"])
def test_build_requirements_are_locked(lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requires = project["build-system"]["requires"]
    assert project["project"]["optional-dependencies"]["build"] == requires
    for requirement in requires:
        assert f"\n{requirement.partition('>=')[0]}==" in (ROOT / lock).read_text()


def test_the_package_is_built_with_locked_requirements() -> None:
    builds = [line for line in (ROOT / "Makefile").read_text().splitlines() if "--editable" in line]
    assert builds
    assert all("--no-build-isolation" in line for line in builds)


def test_the_newest_release_of_the_changes_is_the_version_of_the_package() -> None:
    releases = re.findall(r"^## (\d\S*) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
