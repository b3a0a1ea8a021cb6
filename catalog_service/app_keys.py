"""The keys of the objects that the application shares with its routes."""

from aiohttp import web

from catalog_service.catalog.cache import CatalogCache
from catalog_service.logos.service import LogoDecoder
from catalog_service.outgoing.client_registry import ClientRegistry
from catalog_service.packages.service import Packages
from catalog_service.releases.service import Releases
from catalog_service.retention.service import Retention
from catalog_service.settings import CatalogSettings
from catalog_service.statistics import Statistics
from catalog_service.store import MongoCatalogStore
from catalog_service.versions.service import Listings, Versions
from catalog_service.winget.manifest import SourceEntries
from catalog_service.winget.search import SearchLimit, WingetSearch
from common.events import Events

SETTINGS = web.AppKey("settings", CatalogSettings)
EVENTS: web.AppKey[Events] = web.AppKey("events")
CLIENT_REGISTRY = web.AppKey("client_registry", ClientRegistry)
PACKAGES = web.AppKey("packages", Packages)
CATALOG_CACHE = web.AppKey("catalog_cache", CatalogCache)
LOGOS = web.AppKey("logos", LogoDecoder)
LISTINGS = web.AppKey("listings", Listings)
STATISTICS = web.AppKey("statistics", Statistics)
WINGET_SEARCH = web.AppKey("winget_search", WingetSearch)
SEARCH_LIMIT = web.AppKey("search_limit", SearchLimit)
SOURCE_ENTRIES = web.AppKey("source_entries", SourceEntries)
RELEASES = web.AppKey("releases", Releases)
RETENTION = web.AppKey("retention", Retention)
VERSIONS = web.AppKey("versions", Versions)
STORE = web.AppKey("store", MongoCatalogStore)
