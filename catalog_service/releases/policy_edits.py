"""Changes of a tenant's policy, as `edit_settings` takes them, and the texts that auth_service stores."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from pydantic import ValidationError

from catalog_service.model.distinguished_names import parse_name
from catalog_service.releases.policy import MAX_RINGS, MAX_RULES, Gates, Policy, SignatureRule
from common.auth.package_patterns import parse_patterns
from common.errors import InvalidField
from common.http.forms import clean
from common.tenants import DEFAULT_RING

NAMES = ("rings", "gates", "retention")
TEXT_LIMIT = 50_000  # characters
SIGNATURE_VALUES = "Input should be 'signed', an object with `publisher` and `packages`, or a list of such objects"


def edited(policy: Policy, fields: Mapping[str, str]) -> Policy:
    """Return the policy with other rings, gates or retention, see `NAMES`. Raises InvalidField.

    The gates of a removed ring are removed, unless the edit has gates, too.
    """
    rings, gates, retention = policy.rings, policy.gates, policy.retention
    if "rings" in fields:
        rings = _rings(fields["rings"])
        gates = gates if rings else {}
    if "gates" in fields:
        gates = _parsed(Policy, "gates", _json(fields, "gates", dict)).gates
    else:
        gates = {ring: gates[ring] for ring in rings or (DEFAULT_RING,) if ring in gates}
    if "retention" in fields:
        retention = _parsed(Policy, "retention", _json(fields, "retention", list)).retention
    changed = Policy(rings=rings, gates=gates, retention=retention)
    _check_gates(changed)
    _check_patterns("retention", (rule.packages for rule in changed.retention))
    if len(changed.retention) > MAX_RULES:
        raise InvalidField("retention", f"holds more than {MAX_RULES} items", reason="too_many_items", most=MAX_RULES)
    in_order = {
        ring: changed.gates[ring] for ring in changed.effective_rings if changed.gates.get(ring, Gates()) != Gates()
    }
    return changed.model_copy(update={"gates": in_order})


def texts(policy: Policy) -> Mapping[str, Any]:
    """Return the policy as the tenant's document has it: rings, and canonical JSON or ""."""
    parts = policy.model_dump(mode="json", exclude_defaults=True)
    return {
        "rings": list(policy.effective_rings) if policy.is_controlled else [],
        **{name: json.dumps(parts[name], separators=(",", ":")) if parts.get(name) else "" for name in NAMES[1:]},
    }


def _rings(text: str) -> tuple[str, ...]:
    rings = tuple(ring.strip() for ring in clean("rings", text, limit=TEXT_LIMIT).split(",")) if text.strip() else ()
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


def _json(fields: Mapping[str, str], name: str, kind: type) -> Any:
    text = clean(name, fields[name], limit=TEXT_LIMIT, lines=True)
    try:
        value = orjson.loads(text) if text.strip() else kind()
    except orjson.JSONDecodeError as error:
        message = f"is no JSON: line {error.lineno}, column {error.colno}"
        raise InvalidField(name, message, reason="not_json", line=error.lineno, column=error.colno) from None
    if not isinstance(value, kind):
        raise InvalidField(
            name, f"must be {'an object' if kind is dict else 'a list'} in JSON", reason="not_policy_json"
        )
    return value


def _parsed(kind: type[Policy], name: str, value: Any) -> Policy:
    try:
        return kind.model_validate({name: value})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:] if part not in _UNION_PARTS) or name
        if first["type"] == "extra_forbidden":
            raise InvalidField(name, f"{place} is unknown", reason="unknown_policy_part", place=place) from None
        expected = SIGNATURE_VALUES if place.endswith(".signature") else first["msg"]
        message = f"{place} has a value that is not allowed: {expected}"
        raise InvalidField(name, message, reason="bad_policy_value", place=place) from None


# The names that pydantic gives to the alternatives of a union.
_UNION_PARTS = {"literal['','signed']", "SignatureRule", "constrained-tuple", "tuple[SignatureRule, ...]"}


def _check_gates(policy: Policy) -> None:
    for ring, gates in policy.gates.items():
        if ring not in policy.effective_rings:
            names = ", ".join(policy.effective_rings)
            message = f"{ring!r} is no ring; the rings are {names}"
            raise InvalidField("gates", message, reason="unknown_ring", ring=ring, names=names)
        rules = [*_signature_rules(gates)]
        if len(rules) > MAX_RULES:
            raise InvalidField("gates", f"holds more than {MAX_RULES} items", reason="too_many_items", most=MAX_RULES)
        _check_patterns("gates", (rule.packages for rule in rules))
        for rule in rules:
            try:
                parse_name(rule.publisher or "CN=any")
            except ValueError:
                publisher = rule.publisher
                message = f"{publisher!r} is no subject of a certificate, such as CN=Acme,O=Acme,C=DE"
                raise InvalidField("gates", message, reason="not_a_publisher", publisher=publisher) from None


def _signature_rules(gates: Gates) -> Iterator[SignatureRule]:
    if isinstance(gates.signature, SignatureRule):
        yield gates.signature
    elif isinstance(gates.signature, tuple):
        yield from gates.signature


def _check_patterns(name: str, patterns: Iterator[str]) -> None:
    for pattern in patterns:
        parse_patterns(name, [pattern])
