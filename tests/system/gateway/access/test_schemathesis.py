"""Requests that schemathesis makes from the OpenAPI document are answered as the document says."""

import pytest

from tests.support.system.fuzz import DETERMINISTIC, fuzz, limited_tenant
from tests.support.system.gateways import single_gateway
from tests.support.system.services import Services

VALID = ("--mode", "positive", "--phases", "examples,fuzzing", "--max-examples", "5")
INVALID = ("--mode", "negative", "--phases", "coverage,fuzzing", "--max-examples", "1")
OF_PACKAGES = ("--include-tag", "Packages", "--include-tag", "Package versions")
# These reads use up the few examples, and no other operation uses their answers.
NO_READS = ("--exclude-operation-id", "find_versions", "--exclude-operation-id", "check_version")
SEQUENCES = ("--mode", "positive", "--phases", "stateful", "--max-examples", "20", *OF_PACKAGES, *NO_READS)

# A few examples have no new package id, no existing package and no file without a version; `test_walk` has the
# successes of these operations.
SELDOM_SUCCESSFUL = {"POST add_package", "DELETE delete_package", "POST add_blacklist_entry", "DELETE delete_upload"}
# `test_company_login` has those that need an identity provider.
SELDOM_SUCCESSFUL |= {"PATCH edit_company_login", "POST test_company_login", "DELETE delete_company_login"}
SELDOM_SUCCESSFUL |= {"POST enroll_client"}  # The requests have a session, which is no API token.

pytestmark = pytest.mark.full


async def test_valid_requests_succeed_as_documented(services: Services) -> None:
    outcome = await fuzz(await limited_tenant(services), *DETERMINISTIC, *VALID)
    assert outcome.exit_code == 0, outcome.report
    assert (outcome.never_succeeded() - SELDOM_SUCCESSFUL, outcome.failed_answers()) == (set(), 0), outcome


async def test_invalid_requests_are_refused_as_documented(services: Services) -> None:
    outcome = await fuzz(await limited_tenant(services), *DETERMINISTIC, *INVALID)
    assert outcome.exit_code == 0, outcome.report
    assert (outcome.untested(), outcome.failed_answers()) == (set(), 0), outcome


async def test_requests_built_from_answers_are_answered_as_documented(services: Services, redis_url: str) -> None:
    """At a single-tenant gateway."""
    tenant = await limited_tenant(services)
    async with single_gateway(services, redis_url, tenant) as single:
        outcome = await fuzz(tenant, *DETERMINISTIC, *SEQUENCES, served_at=single)
    assert outcome.exit_code == 0, outcome.report
    assert outcome.failed_answers() == 0, outcome
    assert not outcome.never_succeeded() & {"POST add_package_version", "GET get_package_versions"}
