"""The slots that enforce the client limit."""

from random import Random

from client_registry.clients.service import allocate_slot, usable_slots
from tests.support.tables import each


@each(
    ("used", "limit", "usable"),
    [
        (set(), 5, 5),
        ({0, 1, 2}, 5, 5),
        (set(), 0, 0),
        ({7}, 1, 0),  # the slot of the one allowed client is beyond the limit
        ({7}, 2, 1),
        ({0, 7, 20, 33}, 5, 2),
        ({3, 7}, 1, -1),  # more clients than allowed, from a time with a higher limit
    ],
)
def test_the_usable_slots_keep_the_limit(used: set[int], limit: int, usable: int) -> None:
    assert usable_slots(used, limit) == usable


@each(("used", "limit"), [(set(), 0), ({0}, 1), ({9}, 1), ({0, 1, 2}, 2), ({5, 9}, 2)])
def test_there_is_no_free_slot_at_the_limit(used: set[int], limit: int) -> None:
    assert allocate_slot(used, limit) is None


def test_there_is_always_a_slot_without_a_limit() -> None:
    assert allocate_slot(set(range(500)), None) not in range(500)


def test_a_slot_is_chosen_from_a_few() -> None:
    assert allocate_slot({3, 500_000}, 1_000_000) in range(66)


@each("seed", range(100))
def test_additions_end_exactly_at_the_limit(seed: int) -> None:
    source = Random(seed)  # noqa: S311  the same in each run
    used = set(source.sample(range(60), source.randrange(20)))
    before, limit = len(used), source.randrange(40)

    while (slot := allocate_slot(used, limit)) is not None:
        assert slot not in used
        used.add(slot)

    assert len(used) == max(before, limit)


@each("seed", range(100))
def test_callers_with_an_outdated_state_do_not_exceed_the_limit(seed: int) -> None:
    source = Random(seed)  # noqa: S311  the same in each run
    used = set(source.sample(range(60), source.randrange(20)))
    limit = len(used) + source.randrange(10)
    states = [set(used)]

    for _ in range(200):
        if used and source.random() < 0.3:
            used.remove(source.choice(sorted(used)))
        saw = source.choice(states[-5:])
        if free := [slot for slot in range(usable_slots(saw, limit)) if slot not in saw]:
            used.add(source.choice(free))  # a set, like the unique index: a slot is used once
        states.append(set(used))

        assert len(used) <= limit
