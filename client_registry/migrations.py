"""How the database `clients` came to look as it does: up to now its documents have kept their shape."""

from client_registry.clients.store import INDEXES
from common.mongo.schema import Schema

SCHEMA = Schema([], INDEXES)
