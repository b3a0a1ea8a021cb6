"""`pkgrepo release` with API tokens: its output, its exit status, and the server's refusals."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from signal import SIGINT, Signals
from typing import Any

import pytest

from tests.support.processes.publish_command import TIMEOUT, CommandResult, run_publish
from tests.support.system.publishing import add_package, package_id, publish
from tests.support.system.releases import add_user, release_of, set_policy
from tests.support.system.services import PASSWORD, Api

RINGS = "pilot,everyone"


@pytest.fixture
async def package(tenant: Api) -> str:
    """A package of a tenant whose versions need an approval before the last ring."""
    await set_policy(tenant, RINGS, {"everyone": {"approvals": 1}})
    name = package_id()
    await add_package(tenant, name)
    return name


@pytest.fixture
async def uid(tenant: Api, package: str) -> str:
    return (await publish(tenant, package, "2.0")).uid


async def token_of(creator: Api, role: str) -> str:
    """A new API token with a role."""
    answer = await creator.call("POST", "add_token", data={"name": f"{role}-token", "role": role})
    assert answer.status == 201, answer.body
    return str(answer.body["token"])


async def run(api: Api, *arguments: str, token: str = "") -> CommandResult:
    """Run `pkgrepo release` as the administrator, or with an API token."""
    environment = {"PKGREPO_TOKEN": token, "PKGREPO_USER": "", "PKGREPO_PASSWORD": ""} if token else {}
    return await run_publish(api, *arguments, "--patience", "5", command="release", **environment)


async def test_a_token_approves_and_promotes_what_another_published(tenant: Api, uid: str) -> None:
    token = await token_of(await add_user(tenant, "eve"), "approver")
    approved = await run(tenant, "approve", uid, token=token)
    promoted = await run(tenant, "promote", uid, token=token)
    assert (approved.status, promoted.status) == (0, 0), approved.log + promoted.log
    release = await release_of(tenant, uid)
    assert (release["stage"], release["next_ring"]) == ("everyone", "")
    assert "active, in everyone" in promoted.output


async def test_a_version_that_was_edited_since_it_was_seen_is_not_approved(tenant: Api, uid: str) -> None:
    token, seen = (
        await token_of(await add_user(tenant, "eve"), "approver"),
        (await release_of(tenant, uid))["edited_at"],
    )
    edit = await tenant.call("PATCH", "edit_package_version", uid, data={"switch_Silent": "/other"})
    assert edit.status == 200
    refused = await run(tenant, "approve", uid, "--edited-at", seen, token=token)
    assert (refused.status, "switch_Silent" in refused.log) == (1, True)
    edited_at = (await release_of(tenant, uid))["edited_at"]
    assert f"edited at {edited_at}" in (await run(tenant, "show", uid)).output
    approved = await run(tenant, "approve", uid, "--edited-at", edited_at, token=token)
    assert approved.status == 0, approved.log


async def test_a_promotion_that_waits_names_the_gate_and_exits_with_4(tenant: Api, uid: str) -> None:
    result = await run(tenant, "promote", uid)
    assert result.status == 4
    assert "The gate approval before the ring 'everyone' has not passed" in result.log
    assert (await release_of(tenant, uid))["stage"] == "pilot"


async def test_a_token_of_a_publisher_may_pin_but_not_approve(tenant: Api, uid: str) -> None:
    token = await token_of(tenant, "publisher")
    refused, pinned = await run(tenant, "approve", uid, token=token), await run(tenant, "pin", uid, token=token)
    assert (refused.status, pinned.status) == (1, 0)
    assert "You need the permission release:approve." in refused.log
    assert (await release_of(tenant, uid))["pinned"]
    assert (await run(tenant, "unpin", uid, token=token)).status == 0
    assert not (await release_of(tenant, uid))["pinned"]


async def test_the_list_has_one_line_for_each_version_in_flight(tenant: Api, package: str, uid: str) -> None:
    lines = (await run(tenant, "list")).output.splitlines()
    assert lines == [f"{uid} {package} 2.0 (x64, stable): active, in pilot; next everyone: approval waiting"]
    assert (await run(tenant, "list", "--package", "Other.App")).output == ""
    document: list[dict[str, Any]] = json.loads((await run(tenant, "list", "--all", "--json")).output)
    assert [row["uid"] for row in document] == [uid]


@pytest.mark.full
async def test_show_prints_the_gates_of_each_ring(tenant: Api, uid: str) -> None:
    result = await run(tenant, "show", uid)
    assert "pilot: offered since" in result.output
    assert "everyone: not offered\n  approval waiting: 0 of 1 approved." in result.output


@pytest.mark.full
async def test_a_stopped_version_says_why_and_goes_on(tenant: Api, uid: str) -> None:
    assert "paused, in pilot" in (await run(tenant, "pause", uid)).output
    assert "held (It fails.)" in (await run(tenant, "hold", uid, "--reason", "It fails.")).output
    assert "active, in pilot" in (await run(tenant, "resume", uid)).output
    assert (await run(tenant, "hold", uid)).status == 2


@pytest.mark.full
async def test_a_roll_back_prints_what_each_ring_gets(tenant: Api, package: str) -> None:
    older = await publish(tenant, package, "1.0")
    assert (await run(tenant, "promote", older.uid, "--ring", "pilot")).status == 0
    newer = await publish(tenant, package, "2.0")
    result = await run(tenant, "roll-back", newer.uid, "--reason", "It fails.")
    assert result.status == 0, result.log
    assert "pilot: 1.0\neveryone: no version" in result.output


async def test_an_unknown_version_is_a_refusal(tenant: Api) -> None:
    result = await run(tenant, "show", "../get_users")
    assert (result.status, result.output) == (1, "")


@asynccontextmanager
async def on_terminal(api: Api, *arguments: str) -> AsyncIterator[tuple[Process, int]]:
    """Run `pkgrepo release` where somebody can answer. Gives its process, and the terminal, once it asks."""
    terminal, stdin = os.openpty()
    environment = {"PKGREPO_URL": api.base_url, "PKGREPO_USER": "admin", "PKGREPO_PASSWORD": PASSWORD}
    command = [sys.executable, "-m", "deploy.cli.main", "release", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=stdin, stdout=DEVNULL, stderr=PIPE, env={**os.environ, **environment}
    )
    assert process.stderr
    try:
        async with asyncio.timeout(TIMEOUT):
            assert b"everyone gets no version." in await process.stderr.readuntil(b"Go on? [y/N]:")
        yield process, terminal
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        os.close(stdin)
        os.close(terminal)


@pytest.mark.parametrize(
    ("answer", "exit_status", "status"),
    [(b"y\n", 0, "held"), (b"\n", 1, "active"), (b"\x04", 1, "active"), (SIGINT, 130, "active")],
)
async def test_a_stop_on_a_terminal_is_made_only_after_a_yes(
    tenant: Api, uid: str, answer: bytes | Signals, exit_status: int, status: str
) -> None:
    async with on_terminal(tenant, "hold", uid, "--reason", "It fails.") as (process, terminal):
        if isinstance(answer, bytes):
            os.write(terminal, answer)
        else:
            process.send_signal(answer)
        async with asyncio.timeout(20):
            await process.communicate()
        assert process.returncode == exit_status
    assert (await release_of(tenant, uid))["status"] == status
