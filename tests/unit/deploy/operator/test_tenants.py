"""The addresses that allowed networks exclude."""

from deploy.operator.tenants import locked_out


def test_callers_outside_of_the_networks_are_named() -> None:
    callers = {"127.0.0.1", "10.1.2.3", "::ffff:10.9.9.9", "2001:db8::1", "pkgrepo"}
    assert locked_out(("10.0.0.0/8",), callers) == ["127.0.0.1", "2001:db8::1"]


def test_no_networks_exclude_nobody() -> None:
    assert locked_out((), {"127.0.0.1"}) == []
