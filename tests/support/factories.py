"""Factories of tenants and callers. A test states only the values that matter to it."""

from typing import Any
from uuid import uuid4

from common.auth.internal_tokens import Caller, Kind
from common.auth.signing import Keys
from common.tenants import Tenant

KEY = "a-key-for-tests-long-enough-to-be-one"  # not a secret: only servers of a test run use it
KEYS = Keys(KEY)
UNKNOWN_ID = "7d0c5a3e-2b1f-4f68-9c1d-5e8a4b3c2d1f"  # the same in each process, so test ids are equal


def make_tenant(**settings: Any) -> Tenant:
    """A tenant with a unique id, so tests can share databases."""
    return Tenant(**{"tenant_id": f"t{uuid4().hex[:12]}", **settings})


def make_caller(tenant: Tenant | None = None, **names: Any) -> Caller:
    """An administrator, by default of a new tenant."""
    return Caller(
        **{
            "tenant": tenant or make_tenant(),
            "kind": Kind.ADMINISTRATOR,
            "username": "admin",
            "base_url": "http://127.0.0.1/acme",
            **names,
        }
    )
