"""The page that keeps what came of the attacks: a row for each, and the matrices."""

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version

from tests.memory import Growth

ATTACKS = {
    "S1": "file ids that lead elsewhere",
    "S2": "content ranges that are none",
    "S3": "malformed bodies",
    "S4": "too many, too long, too large",
    "S5": "text and numbers that are none",
    "S6": "expressions in place of values",
    "S7": "images and installers that harm",
    "S8": "scripts in stored text",
    "S9": "line breaks for headers",
    "S10": "smuggled requests",
    "S11": "paths that confuse",
    "S12": "tokens that are none",
    "S13": "users known by the time a login takes",
    "S14": "guessed passwords",
    "S15": "forged forwarding headers",
    "S16": "client names that resolve badly",
    "S17": "services called past the gateway",
    "S18": "one tenant's things at another",
    "S19": "callers of every role",
    "S20": "cookies and forms of other sites",
    "S21": "what answers tell browsers",
    "S22": "secrets in logs and errors",
    "S23": "redirects to elsewhere",
    "S24": "fields that nobody asked for",
    "S25": "uids of others",
    "S26": "compressed bodies",
    "S27": "what is installed and shipped",
    "S28": "downloads altered",
    "S29": "errors that tell of our insides",
    "S30": "other methods and spellings",
    "S31": "addresses of installers that lead astray",
    "L5": "callers who never finish",
    "L6": "a crowd at one instant",
    "L8": "logins at once",
}
COLUMNS = (
    "Attack",
    "Tests",
    "Requests",
    "Refused",
    "Let through",
    "Closed unanswered",
    "Server errors",
    "Worst answer, s",
    "Memory growth, MiB",
)
LIBRARIES = ("aiohttp", "multipart", "orjson", "pillow", "pyjwt", "motor", "redis", "aio-pika")

Matrix = Mapping[str, Mapping[str, list[int]]]  # row, column, and the statuses that came


@dataclass
class Heard:
    """What came of one attack. A request is refused by 4xx, or by the 5xx that its test expects."""

    tests: int = 0
    refused: int = 0
    let_through: int = 0
    dropped: int = 0
    errors: int = 0
    worst: float = 0
    growth: Growth = field(default_factory=Growth)

    @property
    def requests(self) -> int:
        return self.refused + self.let_through + self.dropped + self.errors

    def row(self) -> tuple[str, ...]:
        """The columns after the first; where no request was sent there is nothing to count."""
        if not self.requests:
            return (str(self.tests), "0", *"------")
        counts = (self.requests, self.refused, self.let_through, self.dropped, self.errors)
        growth = f"{self.growth.largest / (1 << 20):.0f}"
        return (str(self.tests), *map(str, counts), f"{self.worst:.2f}", growth)


def page(command: str, attacks: Mapping[str, Heard], matrices: Mapping[str, Matrix], failed: int) -> str:
    """Markdown of a run: what each attack came to, by its name, and the matrices by their titles."""
    return "\n".join([*_head(command, failed), *_attacks(attacks), *_matrices(matrices)])


def _head(command: str, failed: int) -> Iterator[str]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)  # noqa: S607
    versions = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES)]
    yield f"""# What the last attacks came to

`{command}`, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. pkgrepo {version("pkgrepo")} at {commit.stdout.strip()}, \
{", ".join(versions)}, {platform.system()}, {len(os.sched_getaffinity(0))} processors, real stores. \
**{failed or "No"} test{"" if failed == 1 else "s"} failed.**

Requests are all that an attack's tests send, those of the honest callers beside it too. Refused: answered 4xx, or with
the 5xx that its test asks for: 503 where a crowd is told to come again, 500 where what is needed was taken away. Let
through: answered 2xx or 3xx, as each test says it must. Closed unanswered: by us; connections that their caller gave
up are not counted. Worst answer: the longest time from a request, or from its last bytes, to the status; a crowd's
answers come at the same time. Memory: the most that the product's processes held during the attack, less what they held
before it. Most services run in the process of the tests: what the attackers hold is in it, and what an earlier attack
took is used again by the next. Tests that send no request call the code itself."""


def _attacks(attacks: Mapping[str, Heard]) -> Iterator[str]:
    yield from ("", *_heading(COLUMNS))
    for name, title in ATTACKS.items():
        yield _line([f"{name} {title}", *attacks.get(name, Heard()).row()])


def _matrices(matrices: Mapping[str, Matrix]) -> Iterator[str]:
    for title, matrix in matrices.items():
        columns = list(dict.fromkeys(column for row in matrix.values() for column in row))
        yield from ("", f"## {title}", "", *_heading(["Operation", *columns]))
        for name, row in matrix.items():
            yield _line([name, *(_statuses(row.get(column, [])) for column in columns)])
    yield ""


def _statuses(came: list[int]) -> str:
    return " / ".join(map(str, dict.fromkeys(came))) or "-"


def _heading(columns: Sequence[str]) -> Iterator[str]:
    yield _line(columns)
    yield f"|{'---|' * len(columns)}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
