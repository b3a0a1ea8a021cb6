"""How the database `catalog` came to look as it does: up to now its documents have kept their shape."""

from catalog_service.store import INDEXES
from common.mongo.schema import Schema

SCHEMA = Schema([], INDEXES)
