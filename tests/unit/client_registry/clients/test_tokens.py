"""Client tokens: creation and recognition (section 5.2)."""

from uuid import UUID

from client_registry.clients.service import ClientTokens
from common.auth.signing import Keys
from tests.support.factories import KEY, KEYS
from tests.support.tables import each


def test_a_token_is_a_uuid_and_no_two_are_equal() -> None:
    tokens = ClientTokens(KEYS)

    assert UUID(tokens.issue().text) != UUID(tokens.issue().text)


def test_a_token_is_recognised_in_any_letter_case() -> None:
    tokens = ClientTokens(KEYS)
    token = tokens.issue()

    assert tokens.digests(token.text) == tokens.digests(token.text.upper()) == (token.digest,)


def test_a_stored_digest_does_not_contain_the_token() -> None:
    token = ClientTokens(KEYS).issue()

    assert token.text not in token.digest
    assert token.hint == token.text[-4:]


def test_another_key_gives_another_digest() -> None:
    token = ClientTokens(KEYS).issue()

    assert ClientTokens(Keys(KEY[::-1])).digests(token.text) != (token.digest,)


@each("text", ["", "nonsense", "\0", "\ud800", "{12345678-1234-1234-1234-123456789abc}", "a" * 9999])
def test_a_text_that_is_no_token_has_no_digest(text: str) -> None:
    assert ClientTokens(KEYS).digests(text) == ()
