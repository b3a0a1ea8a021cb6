"""Calls one replica of upload_service directly, as the gateway does."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from aiohttp import ClientSession, UnixConnector

from common.auth.internal_tokens import INTERNAL_TOKEN, Caller, sign
from tests.support.api import Answer, ServiceApi
from tests.support.factories import KEY
from tests.support.processes.cluster import Cluster
from tests.support.processes.replica import Replica
from tests.support.services.upload import UploadApi

SERVICE = "upload_service"


@asynccontextmanager
async def connect_to_replica(cluster: Cluster, replica: Replica, *, address: str = "") -> AsyncIterator[UploadApi]:
    """Connect to the replica's socket, or to `address` (`host:port`) of a proxy in front of it."""
    connector = None if address else UnixConnector(replica.address.removeprefix("unix:"))
    async with ClientSession(connector=connector) as session:
        api = ServiceApi(session, f"http://{address or 'localhost'}", SERVICE)
        yield UploadApi(api, cluster.stores.installers)


@dataclass(frozen=True)
class SkewedClockApi(ServiceApi):
    """Calls a service with tokens of a clock that is `ahead` seconds fast."""

    ahead: float = 0

    async def call(self, caller: Caller, method: str, operation: str, *segments: str, **request: Any) -> Answer:
        with patch("common.auth.internal_tokens.time.time", return_value=time.time() + self.ahead):
            token = sign(KEY, caller, service=self.service, operation=operation)
        headers = {**request.pop("headers", {}), INTERNAL_TOKEN: token}
        return await super().call(caller, method, operation, *segments, headers=headers, **request)
