"""A provider that is away, slow, or answers as it should not."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web

from tests.service.auth_service.oidc.conftest import Company
from tests.support.services.auth import PASSWORD
from tests.support.tables import each
from tests.support.wait import until

DISCOVERY = "/.well-known/openid-configuration"


async def _forget(company: Company, **options: object) -> None:
    """Make the service fetch the metadata again."""
    await company.providers.store.put(company.idp.provider(company.caller.tenant_id, roles_claim="r", **options))


def _document(request: web.Request, **more: str) -> web.Response:
    issuer = f"https://{request.host}"
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    return web.json_response({"issuer": issuer, **dict.fromkeys(names, f"{issuer}/jwks"), **more})


REPLIES: dict[str, Callable[[web.Request], web.StreamResponse]] = {
    "HTML": lambda _: web.Response(text="<html>", content_type="text/html"),
    "a list": lambda _: web.json_response([]),
    "a redirect": lambda _: web.Response(status=302, headers={"Location": "https://169.254.169.254/"}),
    "an error": lambda _: web.Response(status=500),
    "not found": lambda _: web.json_response({}, status=404),
    "too much": lambda request: _document(request, padding="a" * (64 << 10)),
    "a compressed bomb": lambda _: web.Response(
        body=b"\x1f\x8b\x08" + b"\0" * 64, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"}
    ),
    "no addresses": lambda request: web.json_response({"issuer": f"https://{request.host}"}),
    "plain http": lambda request: web.json_response(
        {
            "issuer": f"https://{request.host}",
            **dict.fromkeys(("authorization_endpoint", "token_endpoint", "jwks_uri"), "http://a.example.com/"),
        }
    ),
}


@each("reply", REPLIES)
async def test_a_bad_answer_of_the_provider_is_named_as_such(company: Company, reply: str) -> None:
    company.idp.replies[DISCOVERY] = REPLIES[reply]
    company.idp.calls.clear()
    await _forget(company)
    answer = await company.auth.call(company.caller, "POST", "begin_sign_in", json={})
    assert (answer.status, answer.body["code"]) == (503, "identity_provider_unavailable")
    assert answer.body["params"]["reason"] == "provider_answer", answer.body
    assert company.idp.calls == [DISCOVERY]


async def test_an_endless_answer_is_not_read(company: Company) -> None:
    sent = 0

    class Endless(web.StreamResponse):
        async def prepare(self, request: web.BaseRequest) -> aiohttp.abc.AbstractStreamWriter | None:
            nonlocal sent
            writer = await super().prepare(request)
            try:
                while True:
                    await self.write(b" " * 65536)
                    sent += 65536
            except ConnectionError:
                return writer

    company.idp.replies[DISCOVERY] = lambda _: Endless()
    await _forget(company)
    answer = await company.auth.call(company.caller, "POST", "begin_sign_in", json={})
    assert answer.body["params"]["reason"] == "provider_answer"
    assert sent < 64 << 20


async def test_a_discovery_document_of_another_issuer_is_refused(company: Company) -> None:
    company.idp.document = {"issuer": f"{company.idp.issuer}/"}
    await _forget(company)
    answer = await company.auth.call(company.caller, "POST", "begin_sign_in", json={})
    assert answer.body["params"]["reason"] == "provider_issuer"


@pytest.mark.parametrize("endpoint", ["jwks_uri", "token_endpoint"])
async def test_an_endpoint_at_a_private_address_is_not_called(company: Company, endpoint: str) -> None:
    company.idp.document = {endpoint: "https://10.1.2.3/internal"}
    await _forget(company)
    answer = await company.auth.call(company.caller, "POST", "begin_sign_in", json={})
    if endpoint == "token_endpoint":
        answer = await company.finish(company.idp.sign_in(answer.body["url"]), answer.body["browser"])
    assert answer.body["params"]["reason"] == "provider_private", answer.body


@each("host", ["127.0.0.1", "localhost", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "127.0.0.1.nip.invalid"])
async def test_a_private_address_needs_permission(company: Company, host: str) -> None:
    company.idp.issuer = f"https://{host}:{urlsplit(company.idp.issuer).port}"
    company.idp.calls.clear()
    await _forget(company, allowed_networks=("10.0.0.0/8",))
    answer = await company.auth.call(company.caller, "POST", "begin_sign_in", json={})
    expected = "provider_name" if host.endswith("invalid") else "provider_private"
    assert (answer.status, answer.body["params"]["reason"]) == (503, expected)
    assert company.idp.calls == []


async def test_an_address_is_checked_when_it_is_connected_to(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    async def rebind(_: object, host: str, port: int = 0, family: int = 0) -> list[dict[str, object]]:
        address = {"hostname": host, "host": "169.254.169.254", "port": port, "family": 2, "proto": 0, "flags": 0}
        return [address, {**address, "host": "127.0.0.1"}]

    monkeypatch.setattr("common.http.outbound.ThreadedResolver.resolve", rebind)
    company.idp.issuer = company.idp.issuer.replace("127.0.0.1", "login.example.com")
    company.idp.calls.clear()
    await _forget(company, allowed_networks=())
    answer = await company.auth.call(company.caller, "POST", "begin_sign_in", json={})
    assert answer.body["params"]["reason"] == "provider_private"
    assert company.idp.calls == []


@each("host", ["64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "2002:a00:1::1", "::7f00:1", "::ffff:0:7f00:1", "fec0::1"])
async def test_ipv6_addresses_of_private_hosts_are_private(
    company: Company, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(_: object, name: str, port: int = 0, family: int = 0) -> list[dict[str, object]]:
        return [{"hostname": name, "host": host, "port": port, "family": 10, "proto": 0, "flags": 0}]

    monkeypatch.setattr("common.http.outbound.ThreadedResolver.resolve", resolve)
    for name in ("login.example.com", f"[{host}]"):
        company.idp.issuer = f"https://{name}"
        await _forget(company)
        answer = await company.auth.call(company.caller, "POST", "begin_sign_in", json={})
        assert answer.body["params"]["reason"] == "provider_private", name


async def test_an_unknown_certificate_is_refused(company: Company) -> None:
    await _forget(company, ca_certificate="")
    answer = await company.auth.call(company.caller, "POST", "begin_sign_in", json={})
    assert answer.body["params"]["reason"] == "provider_certificate"


async def test_a_provider_that_hangs_keeps_no_password_out(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    company.idp.hangs = True
    await _forget(company)
    with monkeypatch.context() as patched:
        patched.setattr("auth_service.oidc.client.TIMEOUT", aiohttp.ClientTimeout(total=0.2))
        answer = await company.auth.call(company.caller, "POST", "begin_sign_in", json={})
    assert (answer.status, answer.body["params"]["reason"]) == (503, "provider_timeout")
    assert (await company.auth.login(company.caller, "admin", PASSWORD)).status == 200
    company.idp.hangs = False
    assert (await company.auth.call(company.caller, "POST", "begin_sign_in", json={})).status == 200


async def test_a_tenant_without_a_provider_has_no_company_login(company: Company) -> None:
    other = await company.auth.tenant()
    answer = await company.auth.call(other, "POST", "begin_sign_in", json={})
    assert (answer.status, answer.body["code"]) == (404, "no_identity_provider")


async def test_a_provider_that_hangs_takes_few_slots(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("auth_service.oidc.client.TIMEOUT", aiohttp.ClientTimeout(total=60))
    monkeypatch.setattr("auth_service.oidc.client.WAIT_TIMEOUT", 0.01)
    company.idp.hangs = True
    company.idp.calls.clear()
    await _forget(company)
    begin = partial(company.auth.call, company.caller, "POST", "begin_sign_in", json={})
    calls = [asyncio.create_task(begin()) for _ in range(20)]

    async def are_refused() -> bool:
        return sum(call.done() for call in calls) == 16

    await until(are_refused)
    company.idp.stopped.set()
    answers = await asyncio.gather(*calls)
    assert Counter(answer.body.get("code") for answer in answers) == {None: 4, "overloaded": 16}
    assert company.idp.calls == [DISCOVERY, "/jwks"]
