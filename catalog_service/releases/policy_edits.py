"""Changes of a tenant's policy, as `edit_settings` takes them, and the policy as `server_information` shows it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from cryptography.x509 import Name
from pydantic import ValidationError

from catalog_service.releases.gates import MAX_RINGS, Gates, Policy, RingRule, plain_subject
from common.auth.roles import parse_patterns
from common.errors import InvalidField
from common.http.forms import Form, clean
from common.tenants import DEFAULT_RING, RING_LIMIT, parse_network, unknown_ring

NAMES = ("rings", "ring_rules", "gates", "retention")
JSON_LIMIT = 16_000  # characters of ring rules, gates or retention rules
MAX_RING_RULES = 200
APP_ROLE_LIMIT = 128  # characters
SIGNATURE_VALUES = "Input should be 'signed', an object with `publisher` and `packages`, or a list of such objects"


def policy_fields(form: Form) -> dict[str, str]:
    """The sent texts of a policy, see `NAMES`. Raises InvalidField for one that is too long."""
    texts = {"rings": ",".join(form.texts("rings", limit=RING_LIMIT))} if "rings" in form.fields else {}
    for name in NAMES[1:]:
        if name in form.fields:
            texts[name] = form.text(name, limit=JSON_LIMIT, required=False, lines=True)
    return texts


def edited(policy: Policy, fields: Mapping[str, str]) -> Policy:
    """Return the policy with other parts, see `NAMES`. Raises InvalidField.

    The gates of a removed ring are removed, unless the edit has gates, too. New ring rules are for the new rings.
    """
    rings, ring_rules, gates, retention = policy.rings, policy.ring_rules, policy.gates, policy.retention
    if "rings" in fields:
        rings = _rings(fields["rings"])
        gates = {ring: gates[ring] for ring in rings if ring in gates}
    if "ring_rules" in fields:
        ruled_rings = (rings or (DEFAULT_RING,)) if "rings" in fields else policy.shown_rings
        ring_rules = _ring_rules(fields["ring_rules"], ruled_rings)
    if "gates" in fields:
        gates = _parsed("gates", fields["gates"] or "{}").gates
    if "retention" in fields:
        retention = _parsed("retention", fields["retention"] or "[]").retention
    changed = Policy(rings=rings, ring_rules=ring_rules, gates=gates, retention=retention)
    _check_gates(changed)
    _check_patterns("retention", (rule.packages for rule in retention))
    in_order = {ring: gates[ring] for ring in changed.effective_rings if gates.get(ring, Gates()) != Gates()}
    return changed.model_copy(update={"gates": in_order})


def to_settings(policy: Policy) -> Mapping[str, Any]:
    """Return the policy as `server_information` shows it."""
    parts = policy.model_dump(mode="json", exclude_defaults=True)
    return {"ring_rules": [], "gates": {}, "retention": [], **parts, "rings": list(policy.shown_rings)}


def to_audit_texts(policy: Policy) -> Mapping[str, str]:
    """Return the parts of a policy for the audit log: rings, and JSON or ""."""
    settings = to_settings(policy)
    texts = {name: orjson.dumps(settings[name]).decode() if settings[name] else "" for name in NAMES[1:]}
    return {"rings": ",".join(settings["rings"]), **texts}


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


def _ring_rules(text: str, rings: Sequence[str]) -> tuple[RingRule, ...]:
    try:
        rules = orjson.loads(text.strip() or "[]")
    except orjson.JSONDecodeError:
        rules = None
    if not isinstance(rules, list):
        raise InvalidField("ring_rules", "must be a list in JSON", reason="not_a_json_list")
    if len(rules) > MAX_RING_RULES:
        message = f"holds more than {MAX_RING_RULES} items"
        raise InvalidField("ring_rules", message, reason="too_many_items", most=MAX_RING_RULES)
    return tuple(_ring_rule("ring_rules", rule, rings) for rule in rules)


def _ring_rule(name: str, rule: Any, rings: Sequence[str]) -> RingRule:
    is_rule = isinstance(rule, dict) and rule.keys() in ({"ring", "network"}, {"ring", "app_role"})
    if not is_rule or not all(isinstance(value, str) and value.strip() for value in rule.values()):
        raise InvalidField(name, "must have objects with a ring, and a network or an app_role", reason="not_ring_rules")
    if rule["ring"] not in rings:
        raise unknown_ring(name, rings)
    if "network" in rule:
        return RingRule(ring=rule["ring"], network=parse_network(name, rule["network"]))
    return RingRule(ring=rule["ring"], app_role=clean(name, rule["app_role"].strip(), limit=APP_ROLE_LIMIT))


def _parsed(name: str, text: str) -> Policy:
    """Return a policy with this part only, given in JSON."""
    try:
        return Policy.model_validate({name: orjson.loads(text)})
    except orjson.JSONDecodeError as error:
        line, column, cause = error.lineno, error.colno, error.msg.replace("a string key", "a name in double quotes")
        message = f"is not valid JSON (line {line}, column {column}: {cause})"
        raise InvalidField(name, message, reason="not_json", line=line, column=column, cause=cause) from None
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
