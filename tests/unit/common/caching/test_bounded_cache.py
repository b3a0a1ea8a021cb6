"""A cache never grows past its limit."""

from common.caching.bounded_cache import FifoCache


def test_the_oldest_value_is_evicted_at_the_limit() -> None:
    memory: FifoCache[int, str] = FifoCache(3)
    for number in (0, 1, 2, 0, 3):
        memory.put(number, str(number))
    assert [memory.get(number) for number in range(4)] == ["0", None, "2", "3"]


def test_a_large_value_evicts_as_many_values_as_necessary() -> None:
    memory: FifoCache[str, str] = FifoCache(10, size=len)
    for name, text in (("a", "xxxx"), ("b", "xxxx"), ("c", "xxxx"), ("a", "x" * 6)):
        memory.put(name, text)
    assert [memory.get(name) for name in "abc"] == ["x" * 6, None, "xxxx"]
    memory.put("b", "x" * 10)
    assert [memory.get(name) for name in "abc"] == [None, "x" * 10, None]


def test_a_too_large_value_removes_only_the_value_it_replaces() -> None:
    memory: FifoCache[str, str] = FifoCache(10, size=len)
    for name, text in (("a", "x"), ("b", "xx"), ("a", "x" * 11)):
        memory.put(name, text)
    assert (memory.get("a"), memory.get("b")) == (None, "xx")
    memory.clear()
    memory.put("c", "x" * 10)
    assert (memory.get("b"), memory.get("c")) == (None, "x" * 10)
