"""Keys of the application's shared objects."""

from collections.abc import Mapping

from aiohttp import web

from common.auth.sessions import Sessions
from common.events import Events
from common.service_client.client import ServiceClient
from gateway.auth.authenticator import Authenticator
from gateway.auth.client_directory import ClientDirectory
from gateway.auth.directories import UserDirectory
from gateway.auth.rings import PolicyDirectory
from gateway.caching.catalogs import CatalogCache
from gateway.caching.package_responses import PackageResponseCache
from gateway.forwarding.audit import AuditRecorder
from gateway.routing.tenant_directory import TenantDirectory
from gateway.settings import GatewaySettings

SETTINGS = web.AppKey("settings", GatewaySettings)
SERVICES: web.AppKey[Mapping[str, ServiceClient]] = web.AppKey("services", Mapping)
TENANTS = web.AppKey("tenants", TenantDirectory)
AUTHENTICATOR = web.AppKey("authenticator", Authenticator)
AUDIT_RECORDER = web.AppKey("audit_recorder", AuditRecorder)
POLICIES = web.AppKey("policies", PolicyDirectory)
CATALOGS = web.AppKey("catalogs", CatalogCache)
PACKAGE_RESPONSES = web.AppKey("package_responses", PackageResponseCache)
USER_DIRECTORY = web.AppKey("user_directory", UserDirectory)
CLIENT_DIRECTORY = web.AppKey("client_directory", ClientDirectory)
SESSIONS = web.AppKey("sessions", Sessions)
EVENTS: web.AppKey[Events] = web.AppKey("events")
