"""A clock that tests set, in place of the module `time` of a product's module."""


class Clock:
    """A clock that stands still, until a test changes `now`."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    monotonic = time
