"""S3-compatible storage as its library opens it: with limits of time, and two errors that a caller can act on."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError
from obstore.store import S3Store

from common.errors import Unavailable
from common.telemetry import log
from upload_service.settings import ObjectStorage

if TYPE_CHECKING:  # The library has these for the checker only.
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Credential

CLIENT: "ClientConfig" = {
    "connect_timeout": timedelta(seconds=2),
    "read_timeout": timedelta(seconds=30),
    "timeout": timedelta(hours=1),  # of one request with its body: one part of a file put, all of a file read
}
RETRIES: "RetryConfig" = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}


def open_store(storage: ObjectStorage) -> S3Store:
    """A client of the bucket. It connects when it is asked something."""
    config: S3Config = {}
    if storage.endpoint:
        config["aws_endpoint_url_s3"] = storage.endpoint
    if storage.region:
        config["region"] = storage.region
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
        client_options={**CLIENT, "allow_http": storage.endpoint.startswith("http://")},
        retry_config=RETRIES,
        # Given by a function, so that a session token in the environment is not taken for one of this key.
        credential_provider=(lambda: key) if storage.key_id else None,
    )


@contextmanager
def answering(doing: str, *, missing_is_fine: bool = False) -> Iterator[None]:
    """Let two errors out: FileNotFoundError where the object is not there, and Unavailable for all the rest."""
    try:
        yield
    except FileNotFoundError as error:
        # The file to be put is missing as it is to the system; what the storage does not have is said otherwise.
        if (doing == "put" and "(os error" not in str(error)) or "NoSuchBucket" in str(error):
            raise _unavailable(doing, error) from None
        if not missing_is_fine:
            raise
    except (BaseError, OSError, TimeoutError) as error:
        raise _unavailable(doing, error) from None


def is_not_implemented(error: BaseError) -> bool:
    """Whether the provider does not know what was asked for."""
    return re.search(r"status code: 501|<Code>NotImplemented</Code>", str(error)) is not None


def _unavailable(doing: str, error: Exception) -> Unavailable:
    # The words end before the storage's own answer, and without any query: a key's id or a token may stand there.
    said = re.sub(r"\?\S*", "", str(error).partition("\n")[0].partition("<")[0])
    code = re.search(r"<Code>(\w{1,64})</Code>", str(error))
    log.error(
        "object_storage_failed", doing=doing, error=type(error).__name__, code=code[1] if code else "", said=said[:300]
    )
    return Unavailable("The object storage does not answer; try again soon.")
