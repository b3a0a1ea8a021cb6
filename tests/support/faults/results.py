"""Results of a fault, for tests and for `make torture`."""

from dataclasses import dataclass, field
from statistics import median


@dataclass
class Outcome:
    """The result of one kind of fault, repeated `times` times.

    `lost` are missing acknowledged versions, `duplicated` are effects that happened twice, `violations` are broken
    invariants, each as a sentence. `missed` are steps that were not reached. `recoveries` are the seconds from the end
    of each fault until all is ready.
    """

    fault: str
    times: int = 0
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)

    @property
    def succeeded(self) -> bool:
        return not (self.lost or self.duplicated or self.violations)

    def row(self) -> tuple[str, ...]:
        """The columns of the table: fault, times, lost, duplicated, violations, seconds to recover."""
        seconds = f"{median(self.recoveries):.1f} / {max(self.recoveries):.1f}" if self.recoveries else "-"
        counts = (self.times, len(self.lost), len(self.duplicated), len(self.violations))
        return (self.fault, *map(str, counts), seconds)

    def __str__(self) -> str:
        problems = [*self.lost, *self.duplicated, *self.violations, *(f"not reached: {step}" for step in self.missed)]
        return "\n".join([f"{self.fault}, {self.times} times:", *problems])
