"""Where a browser is led after it has signed in or chosen a language."""

from common.auth.callers import Caller
from gateway.dashboard.redirects import safe_next_url
from tests.support.factories import make_tenant
from tests.support.tables import each

CALLER = Caller(make_tenant(tenant_id="acme"), base_url="https://packages.example.com/acme")
ELSEWHERE = [
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
THERE = ["/acme/dashboard", "/acme/dashboard/packages?text=a%20b&page=2", "/acme/docs", "/acme/dashboard/packages/A.B"]


@each("wanted", ELSEWHERE)
def test_what_is_no_page_of_the_tenants_leads_to_its_overview(wanted: str) -> None:
    assert safe_next_url(wanted, CALLER) == "/acme/dashboard"


@each("wanted", THERE)
def test_a_page_of_the_tenants_is_led_back_to(wanted: str) -> None:
    assert safe_next_url(wanted, CALLER) == wanted
