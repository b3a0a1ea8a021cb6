"""`pkgrepo release` on a terminal shows the effect of a step, and asks."""

import sys
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


@pytest.mark.parametrize(
    ("is_terminal", "yes", "asks"), [(True, False, True), (True, True, False), (False, False, False)]
)
async def test_a_step_is_asked_for_on_a_terminal_without_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool, yes: bool, asks: bool
) -> None:
    questions: list[str] = []
    monkeypatch.setattr(sys.stdin, "isatty", lambda: is_terminal)
    monkeypatch.setattr(typer, "confirm", lambda text, **_: questions.append(text))
    server = Server()
    await _confirm_effect(cast("RetryingClient", server), "1", "hold_version", {"reason": "bad"}, yes=yes)
    assert (questions, server.requests) == ((["Go on?"], ("POST", "hold_version", "1")) if asks else ([], ()))
    shown = capsys.readouterr().err
    assert (shown == "pilot gets 2.0.\neveryone gets no version.\n") is asks
