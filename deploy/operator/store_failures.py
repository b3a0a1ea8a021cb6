"""Failures of MongoDB and Redis: the cause in one sentence, and whether it may pass by itself."""

from pymongo.errors import ConnectionFailure, OperationFailure, ServerSelectionTimeoutError
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.exceptions import ConnectionError as RedisUnreachable
from redis.exceptions import TimeoutError as RedisTimeout

from common.mongo import MongoError

UNAUTHORIZED, AUTHENTICATION_FAILED = 13, 18  # MongoDB's codes


def is_temporary(error: MongoError) -> bool:
    """Whether the call may succeed later: MongoDB was slow, or it is restarted, elects a primary, or is unreachable."""
    return error.timeout or isinstance(error, ConnectionFailure)


def describe(error: Exception) -> str:
    """The cause of a MongoError or RedisError, without the driver's text, which may have addresses."""
    if isinstance(error, MongoError):
        store, setting, cause = "MongoDB", "MONGO_URL", _mongo_cause(error)
    else:
        store, setting, cause = "Redis", "REDIS_URL", _redis_cause(error)
    code = f" {error.code}" if isinstance(error, OperationFailure) else ""
    return f"{store} {cause.format(setting=setting)} ({type(error).__name__}{code})"


def _mongo_cause(error: MongoError) -> str:
    if isinstance(error, OperationFailure) and error.code == AUTHENTICATION_FAILED:
        return _NOT_SIGNED_IN
    if isinstance(error, OperationFailure) and error.code == UNAUTHORIZED:
        return _MISSING_RIGHT
    if error.timeout and not isinstance(error, ServerSelectionTimeoutError):
        return _SLOW
    return _UNREACHABLE if isinstance(error, ConnectionFailure) else _OTHER


def _redis_cause(error: Exception) -> str:
    if isinstance(error, AuthenticationError):
        return _NOT_SIGNED_IN
    if isinstance(error, NoPermissionError):
        return _MISSING_RIGHT
    if isinstance(error, RedisTimeout):
        return _SLOW
    return _UNREACHABLE if isinstance(error, RedisUnreachable) else _OTHER


_NOT_SIGNED_IN = "refuses the user or the password; check {setting}"
_MISSING_RIGHT = "refuses the command, because the user of {setting} lacks a right"
_SLOW = "did not answer in time; it is overloaded, or the network is slow"
_OTHER = "refused a command; check {setting}"
_UNREACHABLE = "is not reached, or has no primary; check {setting} and whether it runs"
