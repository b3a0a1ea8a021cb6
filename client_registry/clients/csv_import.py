"""Clients from a CSV file. All rows are checked first, and all clients are stored together or none."""

import asyncio
import csv
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from uuid import uuid4

from client_registry.clients.service import ClientTokens, IssuedToken, allocate_slots, is_host_name
from client_registry.clients.store import Client, ClientLimitExceeded, MongoClientStore, SlotTaken
from common.auth.internal_tokens import Caller
from common.errors import InvalidField, InvalidRequest, Overloaded

MAX_ROWS = 10_000
SHOWN_LINES = 50  # of each reason
NAME, RING, ENABLED = COLUMNS = ("client_name", "ring", "enabled")
FLAGS = {"": True, "1": True, "true": True, "0": False, "false": False}
DELIMITERS = ",;\t"  # Excel writes semicolons where the comma separates decimals.
ATTEMPTS = 5
REASONS = {
    "row_host_name": "Not a host name: line {lines}.",
    "row_twice": "A name is in the file twice: line {lines}.",
    "row_ring": "The tenant has no such ring: line {lines}.",
    "row_enabled": "enabled must be 1, 0, true or false: line {lines}.",
    "row_columns": "More values than columns: line {lines}.",
    "row_exists": "A client of this name exists: line {lines}.",
}
Lines = Mapping[str, Sequence[int]]  # line numbers by the code of their problem
Issued = Sequence[tuple[Client, IssuedToken]]


class RowsRefused(InvalidRequest):
    """Rows that cannot be imported. The params have the lines of each reason."""

    code = "rows_refused"

    def __init__(self, lines: Lines) -> None:
        params = {reason: _shown(lines[reason]) for reason in REASONS if reason in lines}
        texts = [REASONS[reason].format(lines=shown) for reason, shown in params.items()]
        super().__init__(" ".join(["No client was imported.", *texts]))
        self.params = params


@dataclass(frozen=True)
class Row:
    """One client of the file. `ring` is "" unless one was chosen."""

    line: int
    name: str
    ring: str
    enabled: bool


def parse_rows(content: bytes, rings: AbstractSet[str]) -> Sequence[Row]:
    """The clients of a file, whose first line names the columns.

    Raises RowsRefused for rows that are not valid, InvalidField for a file without header, without rows or too long.
    """
    text = content.decode("utf-8-sig", "replace")  # A host name with a replaced character is refused with its line.
    reader = csv.reader(StringIO(text, newline=""), delimiter=max(DELIMITERS, key=text.partition("\n")[0].count))
    try:
        table = [(reader.line_num, cells) for row in reader if any(cells := [cell.strip() for cell in row])]
    except csv.Error:
        raise InvalidField("clients", "is no CSV", reason="not_csv") from None
    header = [cell.casefold() for cell in table[0][1]] if table else []
    if NAME not in header or not set(header) <= set(COLUMNS) or len(set(header)) < len(header):
        message = "must begin with a line that names the columns: client_name, and if needed ring and enabled"
        raise InvalidField("clients", message, reason="no_csv_header")
    if not 1 < len(table) <= MAX_ROWS + 1:
        raise InvalidField("clients", f"must have 1 to {MAX_ROWS} clients", reason="number_of_rows", most=MAX_ROWS)
    rows, refused, names = [], defaultdict[str, list[int]](list), set[str]()
    for line, cells in table[1:]:
        values = dict(zip(header, cells, strict=False))
        name, ring, enabled = values.get(NAME, ""), values.get(RING, ""), values.get(ENABLED, "").casefold()
        if len(cells) > len(header):
            refused["row_columns"].append(line)
        elif not is_host_name(name):
            refused["row_host_name"].append(line)
        elif ring and ring not in rings:
            refused["row_ring"].append(line)
        elif enabled not in FLAGS:
            refused["row_enabled"].append(line)
        elif name.casefold() in names:
            refused["row_twice"].append(line)
        rows.append(Row(line, name, ring, FLAGS.get(enabled, True)))
        names.add(name.casefold())
    if refused:
        raise RowsRefused(refused)
    return rows


def _shown(lines: Sequence[int]) -> str:
    return ", ".join([*map(str, lines[:SHOWN_LINES]), *(["…"] if len(lines) > SHOWN_LINES else [])])


class ClientImport:
    """Registers the clients of a file and issues their tokens."""

    def __init__(
        self, store: MongoClientStore, tokens: ClientTokens, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._now = now

    async def add(self, caller: Caller, rows: Sequence[Row], *, skip_existing: bool) -> Issued:
        """Register the clients, all or none. `skip_existing` leaves out names that exist; they are not changed.

        Raises:
            RowsRefused: clients of these names exist.
            ClientLimitExceeded: the tenant may not have that many clients.
            Overloaded: other callers added clients meanwhile, each time.
        """
        tenant_id, limit = caller.tenant_id, caller.tenant.max_clients
        for _ in range(ATTEMPTS):
            slots = await self._store.slots_by_name(tenant_id)
            new = [row for row in rows if row.name.casefold() not in slots]
            if len(new) < len(rows) and not skip_existing:
                raise RowsRefused({"row_exists": [row.line for row in rows if row.name.casefold() in slots]})
            free = allocate_slots(set(slots.values()), limit, len(new))
            if free is None:
                text = f"The tenant may have {limit} clients and has {len(slots)}; the file adds {len(new)}."
                params = {"limit": limit, "clients": len(slots), "added": len(new)}
                raise ClientLimitExceeded(text, reason="import_exceeds_limit", **params)
            issued = await asyncio.to_thread(self._issue, new)
            with suppress(SlotTaken):  # Another caller added a client meanwhile.
                await self._store.add_all(
                    tenant_id,
                    [
                        (client, token.digest, token.key_id, slot)
                        for (client, token), slot in zip(issued, free, strict=True)
                    ],
                )
                return issued
        raise Overloaded

    def _issue(self, rows: Sequence[Row]) -> Issued:
        created_at, issued = self._now(), []
        for row in rows:
            token = self._tokens.issue()
            client = Client(str(uuid4()), row.name, created_at, token.hint, enabled=row.enabled, ring=row.ring)
            issued.append((client, token))
        return issued
