"""The slots that enforce the limit of clients."""

from random import Random

from client_registry.clients.capacity import allocate_slot, usable_slots
from tests.support.tables import each


@each(
    ("taken", "limit", "usable"),
    [
        (set(), 5, 5),
        ({0, 1, 2}, 5, 5),
        (set(), 0, 0),
        ({7}, 1, 0),  # the one client that may be sits beyond
        ({7}, 2, 1),
        ({0, 7, 20, 33}, 5, 2),
        ({3, 7}, 1, -1),  # more than may be, from a time when more might
    ],
)
def test_as_many_slots_are_usable_as_keep_the_limit(taken: set[int], limit: int, usable: int) -> None:
    assert usable_slots(taken, limit) == usable


@each(("taken", "limit"), [(set(), 0), ({0}, 1), ({9}, 1), ({0, 1, 2}, 2), ({5, 9}, 2)])
def test_there_is_no_slot_where_the_limit_is_reached(taken: set[int], limit: int) -> None:
    assert allocate_slot(taken, limit) is None


def test_there_is_always_a_slot_without_a_limit() -> None:
    assert allocate_slot(set(range(500)), None) not in range(500)


def test_a_slot_is_chosen_among_a_few() -> None:
    assert allocate_slot({3, 500_000}, 1_000_000) in range(66)


@each("seed", range(100))
def test_adding_ends_exactly_at_the_limit_whatever_came_before(seed: int) -> None:
    source = Random(seed)  # noqa: S311  the same in each run
    taken = set(source.sample(range(60), source.randrange(20)))
    before, limit = len(taken), source.randrange(40)

    while (slot := allocate_slot(taken, limit)) is not None:
        assert slot not in taken
        taken.add(slot)

    assert len(taken) == max(before, limit)


@each("seed", range(100))
def test_callers_who_saw_an_older_state_do_not_overrun_the_limit(seed: int) -> None:
    source = Random(seed)  # noqa: S311  the same in each run
    taken = set(source.sample(range(60), source.randrange(20)))
    limit = len(taken) + source.randrange(10)
    seen = [set(taken)]

    for _ in range(200):
        if taken and source.random() < 0.3:
            taken.remove(source.choice(sorted(taken)))
        saw = source.choice(seen[-5:])
        if free := [slot for slot in range(usable_slots(saw, limit)) if slot not in saw]:
            taken.add(source.choice(free))  # a set, as the unique index: a slot that is taken is not taken twice
        seen.append(set(taken))

        assert len(taken) <= limit
