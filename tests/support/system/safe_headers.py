"""The security headers that each response has."""

from collections.abc import Mapping

from tests.support.api import Answer

CACHE_CONTROLS = {"no-store", "private", "private, no-cache", "private, max-age=300", "public, max-age=3600"}
REVEALING = ("X-Powered-By", "Via", "X-AspNet-Version", "X-Runtime", "X-Internal-Audit", "X-Internal-Token")


def check_safe(answer: Answer) -> None:
    headers: Mapping[str, str] = {name.casefold(): value for name, value in answer.headers.items()}
    assert headers["server"] == "pkgrepo"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    is_page = headers.get("content-type", "").startswith("text/html")
    assert headers["referrer-policy"] in {"no-referrer", *({"same-origin"} if is_page else ())}  # the sign-in page
    if is_page:
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert {"camera=()", "geolocation=()", "microphone=()"} <= set(headers["permissions-policy"].split(", "))
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] in CACHE_CONTROLS
    policy = dict.fromkeys(part.strip() for part in headers["content-security-policy"].split(";"))
    assert {"default-src 'none'", "frame-ancestors 'none'"} <= policy.keys()
    assert "unsafe" not in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control")]
    assert not {name.casefold() for name in REVEALING} & headers.keys()


def check_no_injection(answer: Answer) -> None:
    """Check that no value of a request became a header; such values have the name `X-Injected`."""
    assert answer.status < 500, answer.body
    assert not [name for name in answer.headers if "injected" in name.casefold()]
