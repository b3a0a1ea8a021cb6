"""Changes of a tenant's policy, as `edit_settings` takes them, and the texts that auth_service stores."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from cryptography.x509 import Name
from pydantic import ValidationError

from catalog_service.releases.policy import MAX_RINGS, Gates, Policy, plain_subject
from common.auth.package_patterns import parse_patterns
from common.errors import InvalidField
from common.tenants import unknown_ring

NAMES = ("rings", "gates", "retention")
SIGNATURE_VALUES = "Input should be 'signed', an object with `publisher` and `packages`, or a list of such objects"


def edited(policy: Policy, fields: Mapping[str, str]) -> Policy:
    """Return the policy with other rings, gates or retention, see `NAMES`. Raises InvalidField.

    The gates of a removed ring are removed, unless the edit has gates, too.
    """
    rings, gates, retention = policy.rings, policy.gates, policy.retention
    if "rings" in fields:
        rings = _rings(fields["rings"])
        gates = {ring: gates[ring] for ring in rings if ring in gates}
    if "gates" in fields:
        gates = _parsed("gates", fields["gates"] or "{}").gates
    if "retention" in fields:
        retention = _parsed("retention", fields["retention"] or "[]").retention
    changed = Policy(rings=rings, gates=gates, retention=retention)
    _check_gates(changed)
    _check_patterns("retention", (rule.packages for rule in retention))
    in_order = {ring: gates[ring] for ring in changed.effective_rings if gates.get(ring, Gates()) != Gates()}
    return changed.model_copy(update={"gates": in_order})


def texts(policy: Policy) -> Mapping[str, Any]:
    """Return the policy as the tenant's document has it: rings, and canonical JSON or ""."""
    parts = policy.model_dump(mode="json", exclude_defaults=True)
    return {
        "rings": list(policy.effective_rings) if policy.is_controlled else [],
        **{name: json.dumps(parts[name], separators=(",", ":")) if parts.get(name) else "" for name in NAMES[1:]},
    }


def _rings(text: str) -> tuple[str, ...]:
    rings = tuple(ring.strip() for ring in text.split(",")) if text.strip() else ()
    if len(rings) > MAX_RINGS:
        raise InvalidField("rings", f"holds more than {MAX_RINGS} items", reason="too_many_items", most=MAX_RINGS)
    for position, ring in enumerate(rings):
        if ring.casefold() in {other.casefold() for other in rings[:position]}:
            raise InvalidField("rings", f"has the ring {ring!r} twice", reason="ring_twice", ring=ring)
        try:
            Policy(rings=(ring,))
        except ValidationError:
            message = f"{ring!r} is no name of 1 to 32 letters, digits, spaces, dots, hyphens and underscores"
            raise InvalidField("rings", message, reason="not_a_ring", ring=ring) from None
    return rings


def _parsed(name: str, text: str) -> Policy:
    """Return a policy with this part only, given in JSON."""
    try:
        return Policy.model_validate({name: orjson.loads(text)})
    except orjson.JSONDecodeError as error:
        message = f"is no JSON: line {error.lineno}, column {error.colno}"
        raise InvalidField(name, message, reason="not_json", line=error.lineno, column=error.colno) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"][1:3])) or name  # such as pilot.signature, or 0.packages
        if first["type"] == "extra_forbidden":
            raise InvalidField(name, f"{place} is unknown", reason="unknown_policy_part", place=place) from None
        expected = SIGNATURE_VALUES if place.endswith(".signature") else first["msg"]
        message = f"{place} has a value that is not allowed: {expected}"
        raise InvalidField(name, message, reason="bad_policy_value", place=place) from None


def _check_gates(policy: Policy) -> None:
    for ring, gates in policy.gates.items():
        if ring not in policy.effective_rings:
            raise unknown_ring("gates", policy.effective_rings)
        _check_patterns("gates", (rule.packages for rule in gates.signature_rules))
        for rule in gates.signature_rules:
            if rule.publisher and not _is_subject(plain_subject(rule.publisher)):
                message = f"{rule.publisher!r} is no subject of a certificate, such as CN=Acme,O=Acme,C=DE"
                raise InvalidField("gates", message, reason="not_a_publisher", publisher=rule.publisher)


def _is_subject(text: str) -> bool:
    """Whether a text is a subject as upload_service returns it, so that texts can be compared."""
    try:
        return Name.from_rfc4514_string(text).rfc4514_string() == text
    except ValueError:
        return False


def _check_patterns(name: str, patterns: Iterable[str]) -> None:
    for pattern in patterns:
        parse_patterns(name, [pattern])
