"""Passwords: validation, hashing, and the limit of concurrent hashes."""

import asyncio
import os
import threading
import time
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from argon2 import PasswordHasher, extract_parameters
from argon2.low_level import Type

from auth_service.users.service import AT_ONCE, NICENESS, Passwords, new_password
from common.errors import InvalidField
from tests.support.tables import each

PASSWORD = "a password for tests"
LOWEST_PRIORITY = 19
HASH = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)
COSTLY = "$argon2id$v=19$m={m},t={t},p={p}$" + f"{'c2FsdHNhbHRzYWx0c2FsdA'}${'A' * 43}"


async def matches(passwords: Passwords, password_hash: str | None, password: str) -> bool:
    async with passwords.slot():
        return await passwords.compare(password_hash, password)


@pytest.fixture(scope="module", autouse=True)
def at_full_cost() -> Iterator[None]:
    """Hash with the product's cost parameters; other tests use cheaper ones."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("auth_service.users.service.PasswordHasher", PasswordHasher)
        yield


@pytest.fixture(scope="module")
def passwords() -> Passwords:
    return Passwords()


class CountingHasher:
    """Replaces argon2: counts concurrent calls; each call waits until others could join."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self.most = 0
        self.calls = 0
        self.verified: list[str] = []

    def hash(self, password: str) -> str:
        self._work()
        return HASH

    def verify(self, password_hash: str, password: str) -> bool:
        self._work()
        self.verified.append(password_hash)
        return password_hash == HASH

    def _work(self) -> None:
        with self._lock:
            self._running += 1
            self.calls += 1
            self.most = max(self.most, self._running)
        time.sleep(0.002)
        with self._lock:
            self._running -= 1


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> CountingHasher:
    hasher = CountingHasher()
    monkeypatch.setattr("auth_service.users.service.PasswordHasher", lambda **_: hasher)
    return hasher


async def test_a_password_matches_its_own_hash_only(passwords: Passwords) -> None:
    stored_hash, other_hash = [await passwords.hash(PASSWORD) for _ in range(2)]
    cheap = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(PASSWORD)

    assert stored_hash != other_hash
    for password_hash in (stored_hash, other_hash, cheap):
        assert await matches(passwords, password_hash, PASSWORD)
        assert not await matches(passwords, password_hash, PASSWORD.upper())
    assert not await matches(passwords, None, "nobody has this password")


async def test_hashes_are_argon2id_with_the_owasp_parameters(passwords: Passwords) -> None:
    parameters = extract_parameters(await passwords.hash(PASSWORD))

    assert parameters.type is Type.ID
    assert (parameters.memory_cost, parameters.time_cost, parameters.parallelism) == (19456, 2, 1)


@pytest.mark.parametrize("costs", [{"m": 524288}, {"m": 19457}, {"t": 3}, {"t": 2**31}, {"p": 2}], ids=str)
async def test_a_hash_with_higher_costs_is_never_computed(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch, costs: dict[str, int]
) -> None:
    verified: list[str] = []

    def verify(_: PasswordHasher, password_hash: str, password: str) -> bool:
        verified.append(password_hash)
        return True

    monkeypatch.setattr(PasswordHasher, "verify", verify)
    costly = COSTLY.format(**{"m": 19456, "t": 2, "p": 1, **costs})

    assert not await matches(passwords, costly, PASSWORD)
    assert len(verified) == 1
    assert costly not in verified


@pytest.mark.parametrize(
    "text",
    ["", "x", "é", "$argon2id$v=19$m=x,t=1,p=1$c2FsdA$aGFzaA", HASH + "\0", HASH[:-1] + "é"],
    ids=["empty", "short", "not ASCII", "without a number", "with a NUL", "with a letter that is not ASCII"],
)
async def test_an_invalid_hash_matches_no_password(passwords: Passwords, text: str) -> None:
    assert not await matches(passwords, text, PASSWORD)


async def test_a_refused_hash_is_logged_without_the_hash(
    passwords: Passwords, capsys: pytest.CaptureFixture[str]
) -> None:
    costly = COSTLY.format(m=524288, t=1, p=1)

    await matches(passwords, costly, PASSWORD)

    logged = capsys.readouterr().out
    assert "password_hash_refused" in logged
    assert costly not in logged


async def test_at_most_four_passwords_are_hashed_at_once(counting: CountingHasher) -> None:
    passwords = Passwords()
    await matches(passwords, None, PASSWORD)  # An unknown user costs a comparison, too.
    assert counting.calls == 2

    await asyncio.gather(
        *(matches(passwords, HASH, PASSWORD) for _ in range(100)), *(passwords.hash(PASSWORD) for _ in range(100))
    )

    assert counting.calls == 202
    assert counting.most <= AT_ONCE == 4


@each("text", ["a" * 12, "é" * 12, "a" * 1024, "correct horse battery staple"])
def test_a_password_has_from_twelve_to_1024_characters(text: str) -> None:
    assert new_password("password", text) == text
    assert new_password("password", unicodedata.normalize("NFD", text)) == text


@each("text", ["", "a" * 11, "e\u0301" * 11, "a" * 1025, "a" * 12 + "\n", "a" * 12 + "\ud800"])
def test_invalid_passwords_are_refused(text: str) -> None:
    with pytest.raises(InvalidField) as error:
        new_password("new_password", text)
    assert error.value.field == "new_password"
    assert text not in error.value.detail or not text


async def test_hashing_threads_have_a_lower_priority() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    lower = min(own + NICENESS, LOWEST_PRIORITY)  # The process may have a low priority itself.
    before, passwords = threads_of(lower), Passwords()  # Its threads end with it.
    assert not await matches(passwords, None, PASSWORD)
    assert threads_of(lower) - before
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def threads_of(priority: int) -> set[str]:
    threads = set()
    for path in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):  # The threads of other tests' hashers end at any time.
            if os.getpriority(os.PRIO_PROCESS, int(path.name)) == priority:
                threads.add(path.name)
    return threads


async def test_passwords_are_hashed_if_a_priority_cannot_be_lowered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr("os.setpriority", refuse)
    assert await Passwords().hash("a long password")
