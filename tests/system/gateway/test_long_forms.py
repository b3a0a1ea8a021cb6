"""A gateway holds forms with large logos in memory, so it accepts few of them at once."""

import asyncio
from urllib.parse import urlsplit

import pytest
from aiohttp import FormData

from common.http.bodies import FORM_LIMIT
from tests.support.system.services import Api, Services
from tests.support.wait import until

LONG, SHORT = bytes(FORM_LIMIT), bytes(1000)


async def status_of_form(api: Api, logo: bytes) -> int:
    """The status of `add_package` with these bytes as an invalid logo."""
    form = FormData({"package_id": "Acme.Editor", "package_name": "Editor", "package_publisher": "Acme"})
    form.add_field("Logo", logo, filename="logo.png")
    return (await api.call("POST", "add_package", data=form)).status


async def begin_form(api: Api) -> asyncio.StreamWriter:
    """A connection that has sent the headers of a long form without its body."""
    address = urlsplit(api.base_url)
    _, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(
        f"POST {address.path}/add_package HTTP/1.1\r\nHost: x\r\nAuthorization: {api.headers['Authorization']}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {FORM_LIMIT + 1}\r\n\r\n".encode()
    )
    await writer.drain()
    return writer


async def test_a_tenant_may_send_one_long_form_at_a_time(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    tenant, other = await services.tenant(), await services.tenant()
    writer = await begin_form(tenant)
    with monkeypatch.context() as patched:
        patched.setattr("gateway.forwarding.proxy.LONG_FORM_TIMEOUT", 0.01)

        async def is_refused() -> bool:
            return await status_of_form(tenant, LONG) == 503

        await until(is_refused)
        assert await status_of_form(tenant, SHORT) == 400
        assert await status_of_form(other, LONG) == 400
    writer.transport.abort()
    assert await status_of_form(tenant, LONG) == 400
