"""The cookie that binds a sign-in with a provider to its browser."""

from gateway.dashboard.pages.sign_in import _provider_cookie
from tests.support.factories import make_caller, make_tenant
from tests.support.tables import each


@each(("scheme", "prefix"), [("https", "__Host-"), ("http", "")])
def test_no_other_host_can_set_the_cookie_over_https(scheme: str, prefix: str) -> None:
    caller = make_caller(make_tenant(tenant_id="acme"), base_url=f"{scheme}://packages.example.com/acme")
    assert _provider_cookie(caller) == f"{prefix}sign_in-acme"
