"""A signature to which somebody has added data is invalid. The data is where no digest and no signature covers it."""

from collections.abc import Iterator, Sequence
from functools import cache
from io import BytesIO

from asn1crypto import parser

from tests.support.samples.pe_builder import program
from tests.support.samples.signed_files import root, sign, time_authority, unsigned
from tests.support.tables import each
from upload_service.inspection.model import Signature, SignatureState
from upload_service.inspection.signatures.trust import TrustStore
from upload_service.inspection.signatures.verification import verify_file

# The place of a value in the signature: its number inside each value. Unsigned attributes are a signer's last.
MESSAGE = (1, 0)
SIGNER = (*MESSAGE, -1, 0)
TIMESTAMP = (*SIGNER, -1, 0, 1, 0)
NULL = b"\x05\0"
ATTRIBUTES = bytes.fromhex("a10f 300d 0609 2a864886f70d010905 3100")  # the OID of a signing time, and no value


def values(content: bytes) -> Iterator[bytes]:
    """The DER values that follow each other."""
    while content:
        *_, header, inner, trailer = parser.parse(content)
        end = len(header) + len(inner) + len(trailer)
        yield content[:end]
        content = content[end:]


def with_addition(content: bytes, place: Sequence[int], addition: bytes) -> bytes:
    """The DER value with an addition at the end of the value at this place in it."""
    class_, method, tag, _, inner, _ = parser.parse(content)
    if place:
        parts = [*values(inner)]
        parts[place[0]] = with_addition(parts[place[0]], place[1:], addition)
        inner, addition = b"".join(parts), b""
    return bytes(parser.emit(class_, method, tag, inner + addition))


@cache
def signature() -> bytes:
    """The signature of a program, with a timestamp."""
    signed = sign(unsigned("exe"), authority=time_authority())
    return next(values(signed[len(unsigned("exe")) + 8 :]))


def verdict(changed: bytes) -> Signature:
    """The verdict about the program with another signature."""
    content = program(sections=[(b".text", bytes(range(256)) * 3)], signature=changed)
    return verify_file(BytesIO(content), len(content), TrustStore([root().certificate]))


def test_the_signature_itself_is_valid() -> None:
    assert verdict(with_addition(signature(), TIMESTAMP, b"")).state is SignatureState.VALID


@each(
    "place",
    [MESSAGE, SIGNER, (*TIMESTAMP, *MESSAGE), (*TIMESTAMP, *SIGNER)],
    ids=["message", "signer", "message of the timestamp", "signer of the timestamp"],
)
def test_a_further_field_of_a_signed_message_is_invalid(place: Sequence[int]) -> None:
    result = verdict(with_addition(signature(), place, NULL))
    assert (result.state, result.reason) == (SignatureState.INVALID, "The signature has data that is not part of it.")


def test_unsigned_data_in_a_timestamp_is_invalid() -> None:
    result = verdict(with_addition(signature(), (*TIMESTAMP, *SIGNER), ATTRIBUTES))
    assert (result.state, result.reason) == (SignatureState.INVALID, "The timestamp belongs to another signature.")
