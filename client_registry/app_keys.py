"""The keys of the objects that the application holds for its routes."""

from aiohttp import web

from client_registry.blacklist.service import Blacklist
from client_registry.clients.service import Clients
from client_registry.releases.service import Releases
from client_registry.settings import RegistrySettings
from common.redis import TenantVersions

SETTINGS = web.AppKey("settings", RegistrySettings)
CLIENTS = web.AppKey("clients", Clients)
BLACKLIST = web.AppKey("blacklist", Blacklist)
RELEASES = web.AppKey("releases", Releases)
TENANT_VERSIONS = web.AppKey("tenant_versions", TenantVersions)
