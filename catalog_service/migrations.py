"""The indexes of the database `catalog`; it has no migrations."""

from catalog_service.store import INDEXES
from common.mongo.schema import Schema

SCHEMA = Schema([], INDEXES)
