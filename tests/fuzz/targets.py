"""All targets by name; a target's archive in `corpus` has the same name."""

from collections.abc import Callable, Mapping

from tests.fuzz import addresses, bodies, installers, tokens, values

TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        addresses.address,
        addresses.external,
        addresses.host,
        addresses.network,
        addresses.origin,
        bodies.chunk,
        bodies.form,
        bodies.installer,
        bodies.question,
        installers.inspected,
        installers.verified,
        tokens.caller,
        tokens.download,
        tokens.internal_claims,
        tokens.internal_token,
        tokens.session_claims,
        tokens.session_token,
        values.content_range,
        values.event,
        values.file_id,
        values.host_names,
        values.logo,
        values.requested_part,
        values.versions,
    )
}
