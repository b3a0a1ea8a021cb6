"""The indexes of the database `clients`; it has no migrations."""

from client_registry.blacklist.store import BLACKLIST_INDEXES
from client_registry.clients.store import CLIENT_INDEXES
from client_registry.releases.store import RELEASE_INDEXES
from common.mongo.schema import Schema

SCHEMA = Schema([], {**CLIENT_INDEXES, **BLACKLIST_INDEXES, **RELEASE_INDEXES})
