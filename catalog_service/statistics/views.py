"""The responses of `get_statistics`."""

import csv
from collections.abc import Sequence
from enum import StrEnum
from io import StringIO

from aiohttp import web

from catalog_service.statistics.service import VersionDownloads
from common.http.middleware import json_response

CSV_HEADER = ("package_id", "version", "uid", "day", "downloads")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")  # A spreadsheet runs a cell that begins with one of these.


class StatisticsFormat(StrEnum):
    """The form of the response of `get_statistics`."""

    JSON = "json"
    CSV = "csv"


def statistics(versions: Sequence[VersionDownloads], form: StatisticsFormat) -> web.Response:
    """Return the downloads: JSON with one object per version, or CSV with one row per version and day."""
    if form is StatisticsFormat.CSV:
        text = StringIO()
        rows = csv.writer(text)
        rows.writerow(CSV_HEADER)
        for version in versions:
            texts = [_csv_text(cell) for cell in (version.package_id, version.version, version.uid)]
            rows.writerows([*texts, day, downloads] for day, downloads in version.days.items())
        headers = {"Content-Disposition": 'attachment; filename="statistics.csv"'}
        return web.Response(text=text.getvalue(), content_type="text/csv", charset="utf-8", headers=headers)
    return json_response([{**vars(version), "downloads": version.downloads} for version in versions])


def _csv_text(cell: str) -> str:
    """Return a cell that spreadsheets take for text."""
    return f"'{cell}" if cell.startswith(_FORMULA_STARTS) else cell
