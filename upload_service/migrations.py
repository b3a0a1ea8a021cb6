"""The indexes of the database `upload`; it has no migrations."""

from common.mongo.schema import Schema
from upload_service.store import INDEXES

SCHEMA = Schema([], INDEXES)
