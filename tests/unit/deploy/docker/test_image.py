"""Lint of the Dockerfile and the compose files, and the health check of a container."""

import asyncio
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from aiohttp import web

from common.http.server import READINESS, add_probes, serving
from deploy.health import main

DEPLOY = Path(__file__).parents[4] / "deploy"
BIN = Path(sys.executable).parent
FILES = sorted(DEPLOY.glob("compose*.yaml"))


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    result = subprocess.run([BIN / "hadolint", DEPLOY / "Dockerfile"], capture_output=True, check=False, text=True)
    assert (result.returncode, result.stdout) == (0, "")


def test_the_compose_files_match_the_compose_specification(tmp_path: Path) -> None:
    # The tool of the schema does not know the tags of compose.
    for file in FILES:
        text = file.read_text().replace("!reset null", "{}").replace("!reset ", "").replace("!override ", "")
        (tmp_path / file.name).write_text(text)
    command = [str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", *map(str, tmp_path.iterdir())]
    result = subprocess.run(command, capture_output=True, check=False, text=True)
    assert result.returncode == 0, result.stdout


def test_the_image_runs_as_its_own_user() -> None:
    recipe = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert [line for line in recipe if line.startswith("USER")] == ["USER 10001:10001"]


def test_group_root_can_use_the_folders_of_the_image() -> None:
    """OpenShift runs a container as any user, in the group 0."""
    assert re.findall(r"install -d (.+?) /", (DEPLOY / "Dockerfile").read_text()) == ["-o 10001 -g 0 -m 770"]


def test_the_image_says_its_version_and_its_commit() -> None:
    recipe = (DEPLOY / "Dockerfile").read_text()
    version = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["version"]
    assert f'org.opencontainers.image.version="{version}"' in recipe
    assert {"ARG COMMIT", "LABEL org.opencontainers.image.revision=$COMMIT", "ENV PKGREPO_COMMIT=$COMMIT"} <= {
        line.removesuffix('=""') for line in recipe.splitlines()
    }


def test_only_named_files_are_in_the_image() -> None:
    ignored = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert "deploy/secrets" in ignored


def test_the_image_listens_on_the_ports_of_its_probes() -> None:
    ports_of_image = re.findall(
        r"(?<!_)(LISTEN|MANAGEMENT_LISTEN)=0\.0\.0\.0:(\d+)", (DEPLOY / "Dockerfile").read_text()
    )
    manifest = (DEPLOY / "kubernetes" / "base" / "every-service.yaml").read_text()
    ports = re.findall(r"\{name: (\w+), containerPort: (\d+)\}", manifest)
    names = {"LISTEN": "http", "MANAGEMENT_LISTEN": "management"}
    assert [(names[name], port) for name, port in ports_of_image] == ports


@pytest.mark.parametrize(("probe", "code"), [("livez", 0), ("readyz", 1)])
async def test_a_service_that_is_not_ready_is_alive(probe: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    app = web.Application()
    add_probes(app)
    async with serving(app, "127.0.0.1:0") as address:
        app[READINESS].stopping = True
        monkeypatch.setenv("MANAGEMENT_LISTEN", address.removeprefix("http://"))
        monkeypatch.setattr(sys, "argv", ["deploy.health", probe])
        assert await asyncio.to_thread(main) == code
