"""Lint of the Dockerfile and the compose files."""

import re
import subprocess
import sys
from pathlib import Path

DEPLOY = Path(__file__).parents[3] / "deploy"
BIN = Path(sys.executable).parent
FILES = sorted(DEPLOY.glob("compose*.yaml"))


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    said = subprocess.run([BIN / "hadolint", DEPLOY / "Dockerfile"], capture_output=True, check=False, text=True)
    assert (said.returncode, said.stdout) == (0, "")


def test_the_compose_files_match_the_compose_specification(tmp_path: Path) -> None:
    # The schema's own program does not know compose's tag for what a file before it said, which is an empty list.
    for file in FILES:
        (tmp_path / file.name).write_text(file.read_text().replace("!reset ", ""))
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", *map(str, tmp_path.iterdir())]
    said = subprocess.run(command, capture_output=True, check=False, text=True)
    assert said.returncode == 0, said.stdout


def test_the_image_runs_as_a_user_of_its_own() -> None:
    recipe = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert [line for line in recipe if line.startswith("USER")] == ["USER 10001:10001"]


def test_only_named_files_get_into_the_image() -> None:
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert "deploy/secrets" in ignored


def test_the_probes_of_a_container_are_where_its_manifest_asks() -> None:
    told = re.findall(r"(?<!_)(LISTEN|MANAGEMENT_LISTEN)=0\.0\.0\.0:(\d+)", (DEPLOY / "Dockerfile").read_text())
    manifest = (DEPLOY / "kubernetes" / "base" / "every-service.yaml").read_text()
    ports = re.findall(r"\{name: (\w+), containerPort: (\d+)\}", manifest)
    names = {"LISTEN": "http", "MANAGEMENT_LISTEN": "management"}
    assert [(names[name], port) for name, port in told] == ports
