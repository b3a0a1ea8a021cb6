"""The commands of `make` on a new machine, with fake system commands."""

import os
import shutil
import signal
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.tables import each

ROOT = Path(__file__).parents[3]


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


@pytest.mark.parametrize("installed", ["libcurl4", "libcurl4t64"])
def test_a_package_is_recognised_by_either_name(machine: Machine, installed: str) -> None:
    machine.has(installed)
    with machine.install("libcurl4|libcurl4t64") as process:
        assert process.communicate() == ("", "")
    assert process.returncode == 0


def test_the_first_of_two_package_names_is_installed(machine: Machine) -> None:
    with machine.install("libcurl4|libcurl4t64") as process:
        assert "--no-install-recommends libcurl4 quietly" in process.communicate()[1]


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
