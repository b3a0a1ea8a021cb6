"""The cookies of a session, and of a sign-in with a provider."""

from gateway.dashboard.page_request import cookie_name
from tests.support.factories import make_caller, make_tenant
from tests.support.tables import each


@each(("scheme", "prefix"), [("https", "__Host-"), ("http", "")])
def test_no_other_host_can_set_the_cookie_over_https(scheme: str, prefix: str) -> None:
    caller = make_caller(make_tenant(tenant_id="acme"), base_url=f"{scheme}://packages.example.com/acme")
    assert [cookie_name(caller), cookie_name(caller, "sign_in")] == [f"{prefix}session-acme", f"{prefix}sign_in-acme"]
