"""Access to the pages of the dashboard, and their writes."""

import io

import pytest

from catalog_service.model.enumerations import Switch
from gateway.dashboard.routes import PAGES
from gateway.operations import OPERATIONS, Access
from tests.support.system.gateways import at_gateway, run_gateway
from tests.support.system.pages import fetch_csrf_token, sign_in, write
from tests.support.system.publishing import upload
from tests.support.system.seed import LONG_PASSWORD, UNKNOWN, segments, title
from tests.support.system.services import Api, Services

SIGNED_IN = {Access.ADMINISTRATOR, Access.SESSION}
NO_ADMINISTRATORS = [row for row in OPERATIONS if row.access not in SIGNED_IN]
WRITES = [row for row in OPERATIONS if row.access in SIGNED_IN and row.method != "GET"]
PAGE = "text/html; charset=utf-8"
PACKAGE = {
    "package_id": "Acme.App",
    "package_name": "App",
    "package_publisher": "Acme",
    "package_description": "An app",
}


@pytest.mark.parametrize("path", [[], ["packages"], ["packages", "A.B"], ["operations", "get_packages"], ["nowhere"]])
async def test_a_page_requires_a_session(either: Api, path: list[str]) -> None:
    prefix = either.path
    for headers in ({}, {"Cookie": f"session-{either.tenant_id}=forged"}, either.headers):
        answer = await either.anonymous().call("GET", "dashboard", *path, headers=headers)
        if path[:1] == ["operations"]:
            assert (answer.status, answer.body["code"]) == (401, "not_authenticated")
        else:
            target = "/".join([f"{prefix}/dashboard", *path])
            assert (answer.status, answer.headers["Location"]) == (307, f"{prefix}/sign_in?next={target}")


async def test_a_user_named_like_one_of_the_company_login_is_asked_for_the_password(tenant: Api) -> None:
    form = {"username": "company-it", "password": LONG_PASSWORD, "role": "viewer"}
    assert (await tenant.call("POST", "add_user", data=form)).status == 201
    cookie = await sign_in(tenant, username="company-it", password=LONG_PASSWORD)
    page = await tenant.anonymous().call("GET", "dashboard", headers=cookie)
    assert b'name="password"' in page.body


async def test_htmx_gets_a_redirect_header_to_the_sign_in_page(either: Api) -> None:
    answer = await either.anonymous().call("GET", "dashboard", headers={"HX-Request": "true"})
    assert (answer.status, "Location" in answer.headers) == (401, False)
    assert answer.headers["HX-Redirect"].startswith(f"{either.path}/sign_in?next=/")


async def test_a_write_requires_the_csrf_token_of_its_session(tenant: Api) -> None:
    cookie, another = await sign_in(tenant), await sign_in(tenant)
    for token in ("", "forged", "\u00e9", await fetch_csrf_token(tenant, another)):
        for row in WRITES:
            answer = await write(tenant, cookie, token, *segments(row, UNKNOWN), method=row.method)
            assert (answer.status, answer.body["code"]) == (403, "forbidden"), title(row)
    answer = await tenant.anonymous().call(
        "POST", "dashboard", "sign_out", headers=cookie, data={"csrf_token": "forged"}
    )
    assert answer.status == 403
    assert (await tenant.anonymous().call("GET", "dashboard", headers=cookie)).status == 200


async def test_pages_may_call_only_operations_of_administrators(tenant: Api) -> None:
    cookie = await sign_in(tenant)
    token = await fetch_csrf_token(tenant, cookie)
    for row in NO_ADMINISTRATORS:
        answer = await write(tenant, cookie, token, *segments(row, UNKNOWN), method=row.method)
        assert (answer.status, answer.body["code"]) == (404, "operation_not_found"), title(row)


async def test_the_audit_log_records_the_operation_of_a_page(tenant: Api) -> None:
    cookie = await sign_in(tenant)
    answer = await write(tenant, cookie, await fetch_csrf_token(tenant, cookie), "add_package", **PACKAGE)
    assert (answer.status, answer.body) == (200, {"Message": "Package was added successfully!"})
    (entry,) = (await tenant.call("GET", "get_audit_log", params={"operation": "add_package"})).body
    assert (entry["user"], entry["status"], entry["target"]) == ("admin", 200, {"package_id": "Acme.App"})


async def test_a_full_storage_has_a_status_that_scripts_can_read(services: Services) -> None:
    tenant = await services.tenant(storage_quota=10)
    cookie = await sign_in(tenant)
    headers = {
        **cookie,
        "X-CSRF-Token": await fetch_csrf_token(tenant, cookie),
        "X-File-ID": "a-transfer",
        "Content-Range": "bytes 0-10/11",
    }
    way = ("dashboard", "operations", "upload_package_version")
    answer = await tenant.anonymous().call("POST", *way, headers=headers, data={"chunk": io.BytesIO(b"0123456789a")})
    assert (answer.status, answer.body["code"]) == (413, "storage_exceeded")


async def test_a_problem_has_the_language_of_the_page(tenant: Api) -> None:
    cookie = await sign_in(tenant)
    token, long = await fetch_csrf_token(tenant, cookie), {**PACKAGE, "package_name": "x" * 257}
    assert (await write(tenant, cookie, token, "add_package", **PACKAGE)).status == 200
    for language, exists, too_long in (
        ("de", "Ein Paket mit dieser ID", "package_name: ist länger als 256 Zeichen"),
        ("en", "A package with", "package_name: is longer than 256 characters"),
    ):
        chosen = {"Cookie": f"{cookie['Cookie']}; language={language}"}
        answer = await write(tenant, chosen, token, "add_package", **PACKAGE)
        assert (answer.status, answer.body["detail"].startswith(exists)) == (401, True)
        answer = await write(tenant, chosen, token, "add_package", **long)
        assert (answer.status, answer.body["detail"]) == (400, too_long)


async def test_a_script_without_session_gets_a_localized_problem(tenant: Api) -> None:
    answer = await write(tenant, {"Accept-Language": "de"}, "", "add_package", **PACKAGE)
    assert (answer.status, answer.body["code"]) == (401, "not_authenticated")
    assert answer.body["detail"] == "Ihre Sitzung ist beendet. Melden Sie sich neu an."


async def test_the_form_of_a_version_has_every_switch(tenant: Api) -> None:
    name = await upload(tenant, b"of no known kind")
    way, by_hand = ("dashboard", "publish", name), {"by_hand": "1"}
    page = await tenant.anonymous().call("GET", *way, headers=await sign_in(tenant), params=by_hand)
    assert [switch for switch in Switch if f'name="switch_{switch}"' not in str(page.body)] == []


async def test_an_address_allows_only_its_own_methods(tenant: Api) -> None:
    cookie, reads = await sign_in(tenant), "GET, HEAD"
    pages = [page.path.replace("{", "").replace("}", "") for page in PAGES]
    allowed = dict.fromkeys((*pages, "assets/a/dashboard.css", "language/de"), reads)
    for path, methods in {**allowed, "live": "GET", "sign_out": "POST"}.items():
        for method in {"GET", "HEAD", "POST", "PATCH", "DELETE"} - set(methods.split(", ")):
            answer = await tenant.anonymous().call(method, "dashboard", *path.split("/"), headers=cookie)
            assert (answer.status, answer.headers.get("Allow")) == (405, methods), (method, path)


@pytest.mark.parametrize("path", [["nowhere"], ["packages", ""]])
async def test_an_unknown_address_gets_an_error_page(tenant: Api, path: list[str]) -> None:
    answer = await tenant.anonymous().call("GET", "dashboard", *path, headers=await sign_in(tenant))
    assert (answer.status, answer.headers["Content-Type"]) == (404, PAGE)


async def test_a_redirect_to_the_sign_in_page_drops_the_form(either: Api) -> None:
    answer = await either.anonymous().call("POST", "dashboard", "sign_out", data={"csrf_token": "an older session's"})
    assert answer.status == 303
    assert answer.headers["Location"].startswith(f"{either.path}/sign_in?next=/")


async def test_browsers_cache_assets_by_version(tenant: Api) -> None:
    page = await tenant.anonymous().call("GET", "sign_in")
    version = str(page.body).partition("/dashboard/assets/")[2].partition("/")[0]
    for requested, directive in ((version, "immutable"), ("older", "max-age=3600")):
        answer = await tenant.anonymous().call("GET", "dashboard", "assets", requested, "dashboard.css")
        assert (answer.status, directive in answer.headers["Cache-Control"]) == (200, True)
    assert (await tenant.anonymous().call("GET", "dashboard", "assets", version, "no.css")).status == 404


async def test_pages_report_an_unavailable_session_store(services: Services, tenant: Api) -> None:
    cookie = await sign_in(tenant)
    async with run_gateway(services, "redis://127.0.0.1:1") as address:
        alone = at_gateway(tenant.anonymous(), address)
        for page in ("dashboard", "docs"):
            answer = await alone.call("GET", page, headers=cookie)
            assert (answer.status, answer.headers["Content-Type"]) == (500, PAGE), page
            assert b"A required service is unavailable" in answer.body, page
