"""What `make` does on a new machine, tried with stand-ins for the machine's own commands."""

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
    """A Debian of shell scripts, on which we are root and some packages are installed."""

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


def planned(*words: str) -> str:
    """What `make` would do."""
    make = shutil.which("make")
    assert make
    return subprocess.run([make, "-n", *words], cwd=ROOT, capture_output=True, check=True, text=True).stdout


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_what_is_missing_is_installed_without_starting_its_services(machine: Machine) -> None:
    machine.has("there")
    with machine.install("there", "absent") as process:
        said = process.communicate()[1]
    assert "apt-get install -y -qq --no-install-recommends absent quietly" in said
    assert process.returncode == 0
    assert not machine.policy.exists()


@pytest.mark.parametrize("there", ["libcurl4", "libcurl4t64"])
def test_a_package_is_there_under_either_name(machine: Machine, there: str) -> None:
    machine.has(there)
    with machine.install("libcurl4|libcurl4t64") as process:
        assert process.communicate() == ("", "")
    assert process.returncode == 0


def test_of_two_names_the_first_is_installed(machine: Machine) -> None:
    with machine.install("libcurl4|libcurl4t64") as process:
        assert "--no-install-recommends libcurl4 quietly" in process.communicate()[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_installation_leaves_no_policy_behind(machine: Machine, number: signal.Signals) -> None:
    machine.command("apt-get", f"test ! -e {machine.policy} || kill -{number} $PPID")
    with machine.install("absent") as process:
        process.communicate()
    assert process.returncode == 128 + number
    assert not machine.policy.exists()


def test_an_environment_without_pip_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").touch()
    assert f"-m venv {tmp_path}" in planned("run", f"VENV={tmp_path}")


@each("given", ["TEST_MONGO_URL", "TEST_REDIS_URL", "TEST_RABBITMQ_URL"])
def test_a_server_that_is_given_is_used_by_one_process_of_tests(given: str) -> None:
    unset = ("TEST_MONGO_URL=", "TEST_REDIS_URL=", "TEST_RABBITMQ_URL=")
    assert "--numprocesses" in planned("test", *unset)
    assert "--numprocesses" not in planned("test", *unset, f"{given}=somewhere")


@each("lock", ["requirements.lock", "requirements-test.lock"])
def test_what_builds_the_package_is_locked_too(lock: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requires = project["build-system"]["requires"]
    assert project["project"]["optional-dependencies"]["build"] == requires
    for requirement in requires:
        assert f"\n{requirement.partition('>=')[0]}==" in (ROOT / lock).read_text()


def test_the_package_is_built_with_what_is_locked() -> None:
    builds = [line for line in (ROOT / "Makefile").read_text().splitlines() if "--editable" in line]
    assert builds
    assert all("--no-build-isolation" in line for line in builds)
