"""Redirects after a sign-in or a change of the language."""

from common.auth.internal_tokens import Caller
from gateway.dashboard.page_request import safe_next_url
from tests.support.factories import make_tenant
from tests.support.tables import each

CALLER = Caller(make_tenant(tenant_id="acme"), base_url="https://packages.example.com/acme")
UNSAFE = [
    "",
    "dashboard",
    "//evil.example",
    "https://evil.example/acme/dashboard",
    "/\\evil.example",
    "\\\\evil.example",
    "/acme/dashboard//evil.example",
    "/acme/dashboard\r\nSet-Cookie: a=b",
    "/acme/dashboard\t",
    "/acme/dashboard/../../other/dashboard",
    "/acme/dashboard/..",
    "/acme/dashboard/..%2f..%2fother",
    "/acme/dashboard/%2e%2e/%2E%2e/other/dashboard",
    "/acme/dashboards",
    "/other/dashboard",
    "/acme/logout",
    "javascript:alert(1)",
    "/acme/dashboard/" + "a" * 3000,
]
PAGES = ["/acme/dashboard", "/acme/dashboard/packages?text=a%20b&page=2", "/acme/docs", "/acme/dashboard/packages/A.B"]


@each("url", UNSAFE)
def test_an_unsafe_address_becomes_the_overview(url: str) -> None:
    assert safe_next_url(url, CALLER) == "/acme/dashboard"


@each("url", PAGES)
def test_a_page_of_the_tenant_is_kept(url: str) -> None:
    assert safe_next_url(url, CALLER) == url
