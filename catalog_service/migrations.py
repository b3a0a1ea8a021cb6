"""The migrations of the database `catalog`: none so far."""

from catalog_service.store import INDEXES
from common.mongo.schema import Schema

SCHEMA = Schema([], INDEXES)
