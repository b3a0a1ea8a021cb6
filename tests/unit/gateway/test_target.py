"""Routing: a raw path becomes an operation, and the forwarded path has validated segments only."""

from dataclasses import replace
from itertools import product
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.auth.internal_tokens import Deployment
from common.errors import InvalidRequest, MethodNotAllowed
from gateway.operations import OPERATIONS, Operation, is_value
from gateway.routing import NoSuchOperation, Target
from tests.support.tables import each

MULTI, SINGLE = Deployment.MULTI, Deployment.SINGLE


def values_of(row: Operation) -> int:
    """The number of values in a path."""
    return sum(map(is_value, row.parts))


MOST_VALUES = max(map(values_of, OPERATIONS))
PREFIXES = {MULTI: "/acme", SINGLE: "/client/api"}

values = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/\\"), min_size=1, max_size=20
).filter(lambda text: text not in {".", ".."})


def parse(path: str, method: str = "GET", deployment: Deployment = MULTI) -> Target:
    return Target.parse(method, path, deployment, "main")


@given(st.lists(values, min_size=MOST_VALUES, max_size=MOST_VALUES))
def test_an_operation_is_found_with_any_value_in_its_path(texts: list[str]) -> None:
    for row, deployment in product(OPERATIONS, Deployment):
        remaining = iter(texts)
        segments = tuple(next(remaining) if is_value(part) else part for part in row.parts)
        path = "/".join([PREFIXES[deployment], *(quote(segment, safe="") for segment in segments)])
        target = parse(f"{path}?a=/../b", row.method, deployment)
        assert (target.operation, target.segments) == (row, segments)
        assert target.tenant_id == ("acme" if deployment is MULTI else "main")
        target.check_complete()


ALIASES = ["/client/api", "/client/api/", "/client/api/acme", "/client/api/test", "/client/api/client/api/acme/test"]
# Only the source of a tenant accepts any text as a package's id.
OUTSIDE_OF_A_SOURCE = ["/acme/../x/winget/packageManifests/a/b", "/acme/find_packages/winget/packageManifests/a"]
UNSAFE_TEXTS = ("..", "%2e", "%2E.", "a%2fb", "a%5cb", "%00", "%0a", "%ff", "%zz")
UNSAFE = [f"/acme/get_package_versions/{text}" for text in UNSAFE_TEXTS]
EMPTY = ["", "acme/test", "//acme/test", "http://x/acme/test", "*", "/acme", "/acme/", "/"]


@each(
    ("path", "deployment"),
    [
        *product(EMPTY, Deployment),
        *((path, MULTI) for path in (*ALIASES, *OUTSIDE_OF_A_SOURCE, *UNSAFE)),
        *((path, SINGLE) for path in ("/acme/test", "/client/test", "/client/api/main/test")),
    ],
)
def test_a_path_without_an_operation_names_none(path: str, deployment: Deployment) -> None:
    with pytest.raises(NoSuchOperation):
        parse(path, deployment=deployment)


@each(
    ("method", "path", "operation", "value"),
    [
        ("GET", "/acme/docs", "docs", "docs"),
        ("GET", "/acme/docs/assets/style.css", "docs/assets/{asset}", "style.css"),
        ("HEAD", "/acme/get_users", "get_users", "get_users"),
        ("GET", "/acme/get_package_versions/a%252Fb", "get_package_versions/{package_id}", "a%2Fb"),
        (
            "GET",
            "/acme/winget/packageManifests/Visual%20Studio",
            "winget/packageManifests/{package_id}",
            "Visual Studio",
        ),
    ],
)
def test_the_nearest_operation_gets_the_decoded_value(method: str, path: str, operation: str, value: str) -> None:
    target = parse(path, method)
    assert (target.operation.method, target.operation.path, target.segments[-1]) == ("GET", operation, value)
    assert (target.tenant_id, parse("/client/api/test", deployment=SINGLE).tenant_id) == ("acme", "main")


def test_another_method_gets_the_allowed_methods() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        parse("/acme/upload_package_version", "PATCH")
    assert refused.value.headers == {"Allow": "DELETE, GET, HEAD, POST"}
    with pytest.raises(MethodNotAllowed) as refused:
        parse("/acme/login", "HEAD")
    assert refused.value.headers == {"Allow": "POST"}


def test_a_path_without_a_value_is_incomplete() -> None:
    target = parse("/acme/delete_client/c1", "DELETE")
    with pytest.raises(InvalidRequest, match="The address lacks auth_token"):
        target.check_complete()


def test_only_the_single_tenant_has_a_short_source_path() -> None:
    short, long = (parse(f"{way}/information", deployment=SINGLE) for way in ("/api", "/client/api/winget"))
    assert short == long
    assert (short.tenant_id, short.segments) == ("main", ("winget", "information"))
    assert parse("/api/winget/information").tenant_id == "api"  # A tenant may have this id.
    for path in ("/api", "/api/", "/api/test", "/api/winget/information", "/api/../api/information"):
        with pytest.raises(NoSuchOperation):
            parse(path, deployment=SINGLE)


def test_a_name_of_several_parts_contains_all_of_them() -> None:
    names = {row.name for row in OPERATIONS if len(row.parts) > 1 and not is_value(row.parts[1])}
    winget = {"winget/information", "winget/manifestSearch", "winget/packageManifests"}
    sign_in = {"sign_in/oidc", "sign_in/oidc/callback", "sign_in/oidc/backchannel_logout"}
    assert names == {"docs/assets", *winget, *sign_in}


@each("typed", ["a/b", "a%2Fb", "..", "%2e%2e/x", "%ff", "100%", "a|b", "a//b"])
@each(("deployment", "source"), [(MULTI, "/acme/winget"), (SINGLE, "/client/api/winget"), (SINGLE, "/api")])
def test_an_unreadable_package_id_is_one_segment_without_a_package(
    deployment: Deployment, source: str, typed: str
) -> None:
    target = parse(f"{source}/packageManifests/{typed}", deployment=deployment)

    assert target.segments == ("winget", "packageManifests", "-")


@each("row", OPERATIONS, ids=lambda row: f"{row.method} {row.path}")
def test_the_alias_of_a_path_means_the_same_operation(row: Operation) -> None:
    path = "/".join(["acme", *("a%20b" if is_value(part) else part for part in row.parts)])
    alias = parse(f"/client/api/{path}", row.method)
    assert alias == replace(parse(f"/{path}", row.method), is_alias=True)


@each(
    ("source", "deployment"),
    [("/acme", MULTI), ("/client/api/acme", MULTI), ("/client/api", SINGLE)],
)
@each("rest", ["information", "packageManifests/Acme.App", "packageManifests/a/source/b/winget/c"])
def test_a_personal_source_address_is_the_source_without_the_token(
    source: str, deployment: Deployment, rest: str
) -> None:
    plain = parse(f"{source}/winget/{rest}", deployment=deployment)
    personal = parse(f"{source}/source/a-secret/winget/{rest}?Market=AT", deployment=deployment)
    assert personal == replace(plain, client_token="a-secret")
    assert "a-secret" not in f"{personal} {personal.segments} {personal.operation.route}"


@each("path", ["/acme/source/t/get_packages", "/acme/source/t/dashboard", "/acme/source//winget/information"])
def test_only_a_source_has_personal_addresses(path: str) -> None:
    with pytest.raises(NoSuchOperation):
        parse(path)


@each("deployment", Deployment)
@each("prefix", ["", "/acme", "/client/api", "/client/api/acme", "/winget", "/client/api/winget", "/source"])
@each("row", [row for row in OPERATIONS if not row.is_winget], ids=lambda row: f"{row.method} {row.path}")
def test_a_token_in_a_path_opens_no_other_operation(row: Operation, prefix: str, deployment: Deployment) -> None:
    """Also not of a tenant that is named like the source."""
    values = "/".join("x" if is_value(part) else part for part in row.parts)
    for path in (f"{prefix}/source/t/winget/{values}", f"{prefix}/source/t/winget/winget/{values}"):
        try:
            target = parse(path, row.method, deployment)
        except (NoSuchOperation, MethodNotAllowed):
            continue
        assert not target.client_token or target.operation.is_winget
