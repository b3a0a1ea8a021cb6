"""The scanner that the settings name, and one that takes files by HTTP; `deploy/docs/scanning.md` has its protocol."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import aiohttp
from pydantic import BaseModel, ConfigDict, StringConstraints

from upload_service.model import Upload
from upload_service.outgoing.clamd import Clamd
from upload_service.scanning.model import Engine, ScanFailed, Scanner, ScanState, Verdict, plain_text

CHECK_TIMEOUT = aiohttp.ClientTimeout(total=10)
NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # The caller limits the time of a scan.
ANSWER_LIMIT = 1 << 16  # bytes
HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}  # A compressed answer could be a bomb.
Text = Annotated[str, StringConstraints(max_length=1000)]


class Answer(BaseModel):
    """An answer of the scanner. Unknown names are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)


class EngineAnswer(Answer):
    """The scanner's name, and the date of its signature database as `2026-11-22T08:00:00Z`."""

    engine: Text
    signatures: Text = ""


class VerdictAnswer(Answer):
    """A verdict, and the SHA-256 of the bytes that it is about."""

    state: Literal["clean", "infected", "too_large"]
    sha256: str
    reason: Text = ""


Parsed = TypeVar("Parsed", bound=Answer)


@dataclass(frozen=True)
class HttpScanner:
    """A scanner at `url`: GET returns its engine, and POST the verdict about the bytes of the body."""

    url: str

    async def check(self) -> Engine:
        answer = await self._request("GET", EngineAnswer, timeout=CHECK_TIMEOUT)
        return Engine(plain_text(answer.engine), _date(answer.signatures))

    async def scan(self, upload: Upload, blocks: AsyncIterator[bytes]) -> Verdict:
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(upload.size)}
        answer = await self._request("POST", VerdictAnswer, headers=headers, data=blocks, timeout=NO_TIMEOUT)
        if answer.sha256 != upload.sha256:
            raise ScanFailed("the scanner answers about another file")
        return Verdict(ScanState(answer.state), plain_text(answer.reason))

    async def _request(self, method: str, answer: type[Parsed], **request: Any) -> Parsed:
        """Send a request and parse the answer: status 200 and a JSON object of this form."""
        try:
            async with (
                aiohttp.ClientSession(headers=HEADERS, auto_decompress=False) as session,
                session.request(method, self.url, allow_redirects=False, **request) as response,
            ):
                if response.status != 200:
                    raise ScanFailed(f"the scanner answers with status {response.status}")
                body = bytearray()
                async for block in response.content.iter_any():
                    body += block
                    if len(body) > ANSWER_LIMIT:
                        raise ScanFailed("the answer of the scanner is longer than 64 KiB")
        except TimeoutError:
            raise ScanFailed("the scanner does not answer") from None
        except aiohttp.ClientError as error:
            raise ScanFailed(f"the connection to the scanner failed: {type(error).__name__}") from None
        try:
            return answer.model_validate(json.loads(body.decode(), object_pairs_hook=_without_duplicates))
        except (ValueError, RecursionError):  # A ValidationError of pydantic is a ValueError.
            raise ScanFailed("the answer of the scanner is no verdict") from None


def _without_duplicates(members: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object of these members. Raises ValueError for a name that occurs twice: parsers differ about its value."""
    unique = dict(members)
    if len(unique) != len(members):
        raise ValueError("a name occurs twice")
    return unique


def _date(text: str) -> str:
    """A date in ISO format and UTC; "" for anything else."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        return ""


def scanner_at(url: str) -> Scanner:
    """clamd at tcp://host:port or unix:///path, else a scanner by HTTP."""
    address = urlsplit(url)
    if address.scheme == "tcp":
        return Clamd(host=address.hostname or "", port=address.port or 0)
    return Clamd(path=address.path) if address.scheme == "unix" else HttpScanner(url)
