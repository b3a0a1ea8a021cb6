"""Download counts in MongoDB: one number for each version and day, and marks that prevent a second count.

A mark says that a client downloaded a version in an hour, or is the only one of a whole download. Marks live a few
hours, counts as long as they can be asked for, both by the clock of the database. `download_counting` has the time
since which every download is counted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time, timedelta

from pymongo import InsertOne, ReturnDocument, UpdateOne
from pymongo.errors import BulkWriteError

from common.mongo import Document, MongoDatabase

DUPLICATE_KEY = 11000  # the server's code
_COUNTING: Document = {"_id": "counting"}  # the only document


@dataclass(frozen=True)
class Download:
    """A complete download; `hour` is the begin of the hour, in UTC.

    `client` is the address of the client, or a unique text for a download that counts in any case.
    """

    tenant_id: str
    version_uid: str
    client: str
    hour: datetime


class MongoDownloadStore:
    """The collections `download_marks` and `download_counts`."""

    def __init__(self, database: MongoDatabase) -> None:
        self._marks = database["download_marks"]
        self._daily_counts = database["download_counts"]
        self._counting = database["download_counting"]

    async def begin_counting(self) -> datetime:
        """Record that downloads are counted from now on. Return the time of the first call."""
        since = {"$ifNull": ["$since", "$$NOW"]}
        document = await self._counting.find_one_and_update(
            _COUNTING, [{"$set": {"since": since}}], upsert=True, return_document=ReturnDocument.AFTER
        )
        begin: datetime = document["since"]
        return begin

    async def end_counting(self) -> None:
        """Record that downloads are not counted."""
        await self._counting.delete_one(_COUNTING)

    async def mark(self, downloads: Sequence[Download]) -> list[Download]:
        """Mark these downloads; returns those that had no mark. The unique index decides between two processes."""
        try:
            await self._marks.bulk_write([InsertOne(asdict(download)) for download in downloads], ordered=False)
        except BulkWriteError as error:
            errors = error.details["writeErrors"]
            if any(each["code"] != DUPLICATE_KEY for each in errors):
                raise
            marked = {each["index"] for each in errors}
            return [download for index, download in enumerate(downloads) if index not in marked]
        return list(downloads)

    async def add(self, downloads: Sequence[Download]) -> None:
        """Add these downloads to the counts of their days."""
        numbers = Counter((each.tenant_id, each.version_uid, _midnight(each.hour)) for each in downloads)
        updates = [
            UpdateOne(
                {"tenant_id": tenant_id, "version_uid": uid, "day": day}, {"$inc": {"count": number}}, upsert=True
            )
            for (tenant_id, uid, day), number in numbers.items()
        ]
        if updates:
            await self._daily_counts.bulk_write(updates, ordered=False)

    async def counts(
        self, tenant_id: str, days: int, now: datetime, version_uids: Sequence[str] = ()
    ) -> Mapping[str, Mapping[str, int]]:
        """The downloads of the last days, today included, by version and by day as `2026-11-22`.

        No `version_uids` select all versions.
        """
        query: Document = {"tenant_id": tenant_id, "day": {"$gte": _midnight(now) - timedelta(days=days - 1)}}
        if version_uids:
            query["version_uid"] = {"$in": list(version_uids)}
        day = {"$dateToString": {"date": "$day", "format": "%Y-%m-%d"}}
        stages: list[Document] = [
            {"$match": query},
            {"$sort": {"day": 1}},
            {"$group": {"_id": "$version_uid", "days": {"$push": {"k": day, "v": "$count"}}}},
            {"$set": {"days": {"$arrayToObject": "$days"}}},
        ]
        return {row["_id"]: row["days"] async for row in self._daily_counts.aggregate(stages)}

    async def totals(
        self, tenant_id: str, days: int, now: datetime, most: int
    ) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """The downloads of the last days by day, and those of the `most` downloaded versions by version.

        The database adds, because a large catalog has a row for each version and day.
        """
        match = {"$match": {"tenant_id": tenant_id, "day": {"$gte": _midnight(now) - timedelta(days=days - 1)}}}
        by_day: list[Document] = [match, {"$group": {"_id": "$day", "count": {"$sum": "$count"}}}]
        by_version: list[Document] = [
            match,
            {"$group": {"_id": "$version_uid", "count": {"$sum": "$count"}}},
            {"$sort": {"count": -1, "_id": 1}},
            {"$limit": most},
        ]
        numbers = {row["_id"].date().isoformat(): row["count"] async for row in self._daily_counts.aggregate(by_day)}
        return numbers, {row["_id"]: row["count"] async for row in self._daily_counts.aggregate(by_version)}

    async def delete(self, tenant_id: str, version_uids: Sequence[str]) -> None:
        """Delete the counts of these versions."""
        await self._daily_counts.delete_many({"tenant_id": tenant_id, "version_uid": {"$in": list(version_uids)}})

    async def forget_tenant(self, tenant_id: str) -> None:
        for collection in (self._marks, self._daily_counts):
            await collection.delete_many({"tenant_id": tenant_id})


def _midnight(moment: datetime) -> datetime:
    return datetime.combine(moment.astimezone(UTC).date(), time(), UTC)
