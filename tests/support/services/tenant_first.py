"""A listener that checks that every filter and document begins with its tenant."""

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

WITHOUT_DATA = {
    "ping",
    "hello",
    "createIndexes",
    "dropDatabase",
    "commitTransaction",
    "abortTransaction",
    "endSessions",
    "getMore",
    "saslStart",
    "saslContinue",
}


class TenantFilterCheck(CommandListener):
    """Records each command whose filter or document does not begin with the tenant."""

    def __init__(self) -> None:
        self.seen = 0
        self.violations: list[str] = []

    def started(self, event: CommandStartedEvent) -> None:
        for part in self._parts(event.command_name, event.command):
            self.seen += 1
            names = [name for name in part if name != "_id"]
            if names[:1] != ["tenant_id"] or not isinstance(part["tenant_id"], str):
                self.violations.append(f"{event.command_name}: {dict(part)}")

    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    def failed(self, event: CommandFailedEvent) -> None:
        pass

    @staticmethod
    def _parts(name: str, command: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        match name:
            case "find" | "findAndModify":
                return [command["filter" if name == "find" else "query"]]
            case "aggregate":
                joined = [step["$lookup"]["pipeline"][0] for step in command["pipeline"] if "$lookup" in step]
                return [step["$match"] for step in (command["pipeline"][0], *joined)]
            case "insert":
                return list(command["documents"])
            case "update":
                return [update["q"] for update in command["updates"]]
            case "delete":
                return [deletion["q"] for deletion in command["deletes"]]
        return [] if name in WITHOUT_DATA else [command]
