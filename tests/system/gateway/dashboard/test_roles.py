"""The pages for users of each role: what they link to, what they send, and what the server refuses."""

import re
from collections.abc import Mapping

import pytest

from common.auth.roles import PERMISSIONS, USER_ROLES, Permission, Role
from gateway.dashboard.pages.administration import ROLES
from gateway.dashboard.routes import PAGES, Page
from gateway.operations import OPERATIONS, Access
from tests.support.api import Answer
from tests.support.system.pages import fetch_csrf_token, sign_in, write
from tests.support.system.releases import add_releases
from tests.support.system.seed import LONG_PASSWORD, UNKNOWN, SeedData, seed_tenant, segments, title
from tests.support.system.services import Services
from tests.support.tables import each, every_cell

NAVIGATION = re.compile(r'<li><a href="[^"]*/dashboard/([a-z_]+)"')
LINK = re.compile(r'href="[^"?]*/dashboard/([a-z_]+)')
SENT = re.compile(r'\s(?:hx-(?P<method>post|patch|delete)|data-deletes)="[^"]*/operations/(?P<name>\w+)')
OPERATION_PERMISSIONS = {(row.method, row.name): row.permission for row in OPERATIONS}
GUARDED = [row for row in OPERATIONS if row.access is Access.ADMINISTRATOR and row.permission is not Permission.NONE]
ENGLISH = {"Accept-Language": "en"}


@pytest.fixture(scope="module")
async def seed_data(services: Services) -> SeedData:
    """A tenant with rings, with a version that waits for an approval and a held one."""
    seed_data = await seed_tenant(await services.tenant())
    await add_releases(seed_data.api, seed_data.parts["package_id"])
    return seed_data


@pytest.fixture(scope="module")
async def cookies(seed_data: SeedData) -> Mapping[Role, dict[str, str]]:
    """A browser's session of a user of each role."""
    for role in USER_ROLES:
        form = {"username": f"the-{role}", "password": LONG_PASSWORD, "role": role}
        assert (await seed_data.api.call("POST", "add_user", data=form)).status == 201
    return {
        role: await sign_in(seed_data.api, username=f"the-{role}", password=LONG_PASSWORD) | ENGLISH
        for role in USER_ROLES
    }


@pytest.fixture(scope="module")
async def pages(seed_data: SeedData, cookies: Mapping[Role, dict[str, str]]) -> Mapping[Role, Mapping[Page, Answer]]:
    """Each page as a user of each role gets it."""
    api = seed_data.api.anonymous()
    paths = {
        page: [seed_data.parts.get(part.strip("{}"), part) for part in page.path.split("/") if part] for page in PAGES
    }
    return {
        role: {page: await api.call("GET", "dashboard", *path, headers=cookies[role]) for page, path in paths.items()}
        for role in USER_ROLES
    }


def test_the_dashboard_has_a_name_for_every_role() -> None:
    assert list(ROLES) == list(Role)


@each("role", USER_ROLES)
def test_a_page_is_open_to_the_roles_with_its_permission(
    pages: Mapping[Role, Mapping[Page, Answer]], role: Role
) -> None:
    for page, answer in pages[role].items():
        is_open = page.permission in PERMISSIONS[role]
        assert answer.status == (200 if is_open else 403), page.path
        assert b"<h1" in answer.body, page.path
        assert is_open or f"You need the permission {page.permission}." in str(answer.body)


@each("role", USER_ROLES)
def test_a_page_has_only_the_forms_and_links_of_the_role(
    pages: Mapping[Role, Mapping[Page, Answer]], role: Role
) -> None:
    expected_links = {
        page.path for page in PAGES if page.permission in PERMISSIONS[role] and page.path and "/" not in page.path
    }
    sent: set[tuple[str, str]] = set()
    for page, answer in pages[role].items():
        body = str(answer.body)
        assert set(NAVIGATION.findall(body)) == expected_links - {"account", "check", "retention", "rollout"}, page.path
        sends = {((match["method"] or "delete").upper(), match["name"]) for match in SENT.finditer(body)}
        sent |= sends
        assert {row for row in sends if OPERATION_PERMISSIONS[row] not in PERMISSIONS[role]} == set(), page.path
        assert set(LINK.findall(body)) & {row.path for row in PAGES} <= expected_links, page.path
    audited = {(row.method, row.name) for row in OPERATIONS if row.audited and row.permission in PERMISSIONS[role]}
    by_scripts = {("POST", "add_package_version"), ("DELETE", "upload_package_version"), ("POST", "publish_client")}
    with_a_provider = {("DELETE", "delete_company_login")}
    assert audited - by_scripts - with_a_provider <= sent


async def test_a_write_of_a_page_is_refused_without_its_permission(
    seed_data: SeedData, cookies: Mapping[Role, dict[str, str]]
) -> None:
    with every_cell() as cell:
        for role in USER_ROLES:
            token = await fetch_csrf_token(seed_data.api, cookies[role])
            for row in GUARDED:
                if row.permission in PERMISSIONS[role]:
                    continue
                with cell(role, title(row)):
                    answer = await write(
                        seed_data.api, cookies[role], token, *segments(row, UNKNOWN), method=row.method
                    )
                    assert (answer.status, answer.body["code"]) == (403, "permission_missing")
                    assert f"You need the permission {row.permission}." in answer.body["detail"]


async def test_a_missing_permission_is_explained_in_german(
    seed_data: SeedData, cookies: Mapping[Role, dict[str, str]]
) -> None:
    headers = {**cookies[Role.VIEWER], "Accept-Language": "de"}
    answer = await seed_data.api.anonymous().call("GET", "dashboard", "users", headers=headers)
    assert answer.status == 403
    assert "Ihnen fehlt die Berechtigung users:write." in str(answer.body)


async def test_a_role_changes_in_the_dashboard_with_several_checkboxes(seed_data: SeedData) -> None:
    cookie = await sign_in(seed_data.api)
    token = await fetch_csrf_token(seed_data.api, cookie)
    form = {"username": "several", "password": LONG_PASSWORD, "role": ""}
    answer = await write(seed_data.api, cookie, token, "add_user", **form)
    assert (answer.status, answer.body["detail"]) == (400, "role: must have at least one role")
    assert (await write(seed_data.api, cookie, token, "add_user", **{**form, "role": "viewer"})).status == 201
    headers = {**cookie, "X-CSRF-Token": token}
    way = ("dashboard", "operations", "edit_user", "several")
    for chosen in ([*USER_ROLES], [Role.PUBLISHER, Role.AUDITOR]):
        checked = [("role", value) for value in ("", *chosen)]
        answer = await seed_data.api.anonymous().call("PATCH", *way, headers=headers, data=checked)
        assert answer.status == 200, answer.body
        users = {user["username"]: user["role"] for user in (await seed_data.api.call("GET", "get_users")).body}
        assert users["several"] == chosen
