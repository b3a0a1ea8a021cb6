"""Audit entries wait at the gateway until the audit log has them."""

import asyncio
from typing import cast

import pytest

from common.auth.internal_tokens import Caller
from common.concurrency.background import repeating
from common.errors import Unavailable
from common.service_client.client import ServiceClient
from gateway.forwarding import audit
from gateway.forwarding.audit import AuditRecorder, Entry
from tests.support.factories import make_caller


class AuditLog:
    """Accepts all entries that it does not refuse, and responds after the test allows it."""

    def __init__(self) -> None:
        self.refused = {"first", "second"}
        self.requested = asyncio.Event()
        self.answers = asyncio.Event()
        self.taken: list[str] = []

    async def json(self, _: Caller, __: str, entry: Entry) -> None:
        self.requested.set()
        await self.answers.wait()
        if entry["id"] in self.refused:
            raise Unavailable("Nobody is there.")
        self.taken.append(entry["id"])


async def test_an_audit_entry_survives_a_gateway_that_ends_while_sending() -> None:
    audit_log = AuditLog()
    recorder = AuditRecorder(cast("ServiceClient", audit_log))
    audit_log.answers.set()
    for name in ("first", "second"):
        await recorder._record(make_caller(), {"id": name})
    audit_log.answers.clear()
    audit_log.requested.clear()
    async with repeating("audit", recorder.retry_pending, recorder.pause):
        await audit_log.requested.wait()
        assert recorder.pending_count == 2
    audit_log.refused.clear()
    audit_log.answers.set()
    await recorder.close()
    assert audit_log.taken == ["first", "second"]
    assert recorder.pending_count == 0


async def test_a_failed_entry_does_not_delay_the_others() -> None:
    audit_log = AuditLog()
    recorder = AuditRecorder(cast("ServiceClient", audit_log))
    audit_log.answers.set()
    for name in ("first", "second"):
        await recorder._record(make_caller(), {"id": name})
    audit_log.refused.remove("second")
    await recorder.retry_pending()
    assert (audit_log.taken, recorder.pending_count) == (["second"], 1)


async def test_a_gateway_stops_while_the_audit_log_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit, "CLOSE_TIMEOUT", 0.01)
    audit_log = AuditLog()
    recorder = AuditRecorder(cast("ServiceClient", audit_log))
    audit_log.answers.set()
    await recorder._record(make_caller(), {"id": "first"})
    audit_log.answers.clear()
    async with asyncio.timeout(60):
        await recorder.close()
    assert recorder.pending_count == 1
