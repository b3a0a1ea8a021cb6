"""The client of S3-compatible storage: its timeouts, and the two errors that a caller can handle."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError
from obstore.store import S3Store

from common.errors import Unavailable
from common.telemetry import log
from upload_service.settings import ObjectStorage

if TYPE_CHECKING:  # The library has these for type checkers only.
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Credential

CLIENT: "ClientConfig" = {
    "connect_timeout": timedelta(seconds=2),
    "read_timeout": timedelta(seconds=30),
    "timeout": timedelta(hours=1),  # of one request with its body: a part of a file to put, or a whole file to read
}
RETRIES: "RetryConfig" = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}
MAX_LOG_TEXT = 500  # characters


def open_store(storage: ObjectStorage) -> S3Store:
    """A client of the bucket, which connects at the first request."""
    # A put is compared with the SHA-256 of its upload when it is read back; the signature does not need another one.
    config: S3Config = {"unsigned_payload": True}
    if storage.endpoint:
        config["aws_endpoint_url_s3"] = storage.endpoint
    if storage.region:
        config["region"] = storage.region
    client: ClientConfig = {**CLIENT, "allow_http": storage.endpoint.startswith("http://")}
    if storage.ca:
        client["root_certificate"] = storage.ca
    key: S3Credential = {
        "access_key_id": storage.key_id,
        "secret_access_key": storage.secret.get_secret_value(),
        "expires_at": None,
    }
    return S3Store(
        storage.bucket,
        prefix=storage.prefix or None,
        config=config,
        disable_bulk_delete=True,  # Not every provider has it.
        client_options=client,
        retry_config=RETRIES,
        # A function, so that a session token in the environment is not used with this key.
        credential_provider=(lambda: key) if storage.key_id else None,
    )


@asynccontextmanager
async def s3_request(operation: str, timeout: float | None = None) -> AsyncIterator[None]:
    """Raise FileNotFoundError for a missing object, and Unavailable for other errors and after `timeout` seconds.

    The removal of a missing object is no error. A put raises OSError if it cannot read its source.
    """
    try:
        async with asyncio.timeout(timeout):
            yield
    except FileNotFoundError as error:
        # An error of the operating system means that the local source file is missing.
        if (operation == "put" and "(os error" not in str(error)) or "NoSuchBucket" in str(error):
            raise _unavailable(operation, error) from None
        if operation != "remove":
            raise
    except TimeoutError:
        raise _unavailable(operation, TimeoutError(f"no response within {timeout} seconds")) from None
    except (BaseError, OSError) as error:
        if operation == "put" and isinstance(error, OSError) and "(os error" in str(error):
            raise  # The local source file cannot be read.
        raise _unavailable(operation, error) from None


def is_not_implemented(error: BaseError) -> bool:
    """Whether the provider does not support the request."""
    return re.search(r"status code: 501|<Code>NotImplemented</Code>", str(error)) is not None


def _unavailable(operation: str, error: Exception) -> Unavailable:
    # The logged texts have no body of the response and no query: they may contain a key id or a token.
    first_line, _, details = str(error).partition("\n")
    code = re.search(r"<Code>(\w{1,64})</Code>", str(error))
    log.error(
        "object_storage_failed",
        doing=operation,
        error=type(error).__name__,
        code=code[1] if code else "",
        said=_without_query(first_line.partition("<")[0]),
        cause=_cause(details),
    )
    return Unavailable("The object storage does not answer; try again soon.")


def _cause(details: str) -> str:
    """The innermost error in the library's dump, on one line; "" if it is a response, whose code is logged."""
    innermost = details.rpartition("source: ")[2]
    if "body: " in innermost:
        return ""
    return _without_query(re.sub(r"\s+", " ", innermost).strip(" ,(){}"))


def _without_query(text: str) -> str:
    return re.sub(r"\?\S*", "", text)[:MAX_LOG_TEXT]
