"""`pkgrepo release` on a terminal shows the effect of a step, and asks."""

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, cast

import pytest
import typer

from deploy.cli.publish import _confirm_effect
from deploy.publish.client import RetryingClient


class Server:
    """Answers a preview."""

    requests: tuple[str, ...] = ()

    async def request(self, *path: str, **_: Any) -> object:
        self.requests += path
        return {"offered": {"pilot": "2.0", "everyone": ""}}


EFFECT = "pilot gets 2.0.\neveryone gets no version.\nGo on? [y/N]: "


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal in place of standard input; what is written to it is typed."""
    keyboard, other = os.openpty()
    with os.fdopen(other, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield keyboard
    os.close(keyboard)


@pytest.mark.parametrize(("typed", "goes_on"), [(b"y\n", True), (b"Yes\n", True), (b"n\n", False), (b"\n", False)])
async def test_a_step_is_asked_for_on_a_terminal(
    capsys: pytest.CaptureFixture[str], terminal: int, typed: bytes, goes_on: bool
) -> None:
    server = Server()
    os.write(terminal, typed)
    with nullcontext() if goes_on else pytest.raises(typer.Abort):
        await _confirm_effect(cast("RetryingClient", server), "1", "hold_version", {"reason": "bad"}, yes=False)
    assert server.requests == ("POST", "hold_version", "1")
    assert capsys.readouterr().err == EFFECT


@pytest.mark.parametrize(("is_terminal", "yes"), [(True, True), (False, False)])
async def test_nothing_is_asked_with_yes_or_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool, yes: bool
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: is_terminal)
    server = Server()
    await _confirm_effect(cast("RetryingClient", server), "1", "hold_version", {"reason": "bad"}, yes=yes)
    assert (server.requests, capsys.readouterr().err) == ((), "")
