"""Watchers receive the events of their tenant, within limits."""

from contextlib import ExitStack
from datetime import UTC, datetime

import pytest

from common.errors import Overloaded
from common.events import Event
from gateway.dashboard.pages.live_events import LATER, MAX_PER_USER, MAX_QUEUED, MAX_WATCHERS, SOON, EventHub, StreamEnd


def make_event(tenant_id: str = "acme") -> Event:
    return Event("1", "upload.finished", "tests", tenant_id, datetime(2026, 1, 2, tzinfo=UTC), {})


def test_watchers_receive_the_events_of_their_own_tenant_only() -> None:
    live, event = EventHub(), make_event()
    with (
        live.subscribe("acme", "ada") as first,
        live.subscribe("acme", "ada") as other,
        live.subscribe("globex", "ada") as other_tenant,
    ):
        live.publish(event)
        assert [first.get_nowait(), other.get_nowait()] == [event, event]
        assert other_tenant.empty()


def test_a_slow_watcher_is_disconnected() -> None:
    live = EventHub()
    with live.subscribe("acme", "ada") as slow, live.subscribe("acme", "ada") as other:
        for _ in range(MAX_QUEUED):
            live.publish(make_event())
        while not other.empty():
            other.get_nowait()
        live.publish(make_event())
        assert (slow.qsize(), slow.get_nowait()) == (1, StreamEnd(SOON))
        assert other.get_nowait() == make_event()


def test_the_watchers_of_a_tenant_are_limited() -> None:
    live = EventHub()
    watchers = [live.subscribe("acme", f"user {number}") for number in range(MAX_WATCHERS)]
    for watcher in watchers:
        watcher.__enter__()
    with pytest.raises(Overloaded), live.subscribe("acme", "ada"):
        pass
    with live.subscribe("globex", "ada"):
        pass
    watchers[0].__exit__(None, None, None)
    with live.subscribe("acme", "ada"):
        pass


def test_the_newest_page_of_a_user_at_the_limit_replaces_their_oldest() -> None:
    live, event = EventHub(), make_event()
    with ExitStack() as pages:
        other = pages.enter_context(live.subscribe("acme", "bela"))
        first, *rest = [pages.enter_context(live.subscribe("acme", "ada")) for _ in range(MAX_PER_USER)]
        newest = pages.enter_context(live.subscribe("acme", "ada"))
        live.publish(event)
        assert (first.qsize(), first.get_nowait()) == (1, StreamEnd(LATER))
        assert [page.get_nowait() for page in (other, *rest, newest)] == [event] * (MAX_PER_USER + 1)


def test_closing_disconnects_all_watchers_and_refuses_new_ones() -> None:
    live = EventHub()
    with live.subscribe("acme", "ada") as watcher:
        live.publish(make_event())
        live.close()
        assert (watcher.qsize(), watcher.get_nowait()) == (1, StreamEnd(SOON))
        with pytest.raises(Overloaded), live.subscribe("acme", "ada"):
            pass
