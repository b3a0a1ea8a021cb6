"""The indexes of the database `clients`; it has had no migrations yet."""

from client_registry.clients.store import INDEXES
from common.mongo.schema import Schema

SCHEMA = Schema([], INDEXES)
