"""The steps of a version: pure functions from a version to its next state."""

from catalog_service.model.releases import Reason
from catalog_service.releases.gates import Facts
from catalog_service.releases.transitions import advance, resume, roll_back
from tests.support.samples.release_samples import make_checks, make_policy, make_release


def test_a_resumed_version_waits_for_its_scan_again_after_a_roll_back() -> None:
    version = advance(make_policy({"pilot": {"scan": True}}), Facts(make_release(), make_checks("clean")))
    assert (version.rings, version.is_withheld) == (("pilot",), False)
    version = resume(Facts(roll_back(version, "bob", Reason.given("crashes"))), "bob")
    assert (version.rings, version.is_withheld) == ((), True)
