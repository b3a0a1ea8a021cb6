"""What is remembered never grows past what it may."""

from common.caching.bounded_cache import FifoCache


def test_the_first_leaves_where_there_are_too_many() -> None:
    memory: FifoCache[int, str] = FifoCache(3)
    for number in (0, 1, 2, 0, 3):
        memory.put(number, str(number))
    assert [memory.get(number) for number in range(4)] == ["0", None, "2", "3"]


def test_as_many_leave_as_a_large_thing_needs_room_for() -> None:
    memory: FifoCache[str, str] = FifoCache(10, size=len)
    for name, text in (("a", "xxxx"), ("b", "xxxx"), ("c", "xxxx"), ("a", "x" * 6)):
        memory.put(name, text)
    assert [memory.get(name) for name in "abc"] == ["x" * 6, None, "xxxx"]
    memory.put("b", "x" * 10)
    assert [memory.get(name) for name in "abc"] == [None, "x" * 10, None]


def test_a_value_that_is_too_large_removes_only_the_one_it_replaces() -> None:
    memory: FifoCache[str, str] = FifoCache(10, size=len)
    for name, text in (("a", "x"), ("b", "xx"), ("a", "x" * 11)):
        memory.put(name, text)
    assert (memory.get("a"), memory.get("b")) == (None, "xx")
    memory.clear()
    memory.put("c", "x" * 10)
    assert (memory.get("b"), memory.get("c")) == (None, "x" * 10)
