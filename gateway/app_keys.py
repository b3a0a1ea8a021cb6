"""Where the application keeps what its handlers use."""

from collections.abc import Mapping

from aiohttp import web

from common.auth.sessions import Sessions
from common.events import Events
from common.service_client.client import ServiceClient
from gateway.auth.authenticator import Authenticator
from gateway.caching.catalogs import Catalogs
from gateway.caching.client_releases import Releases
from gateway.caching.package_responses import Listings
from gateway.forwarding.audit import AuditRecorder
from gateway.pages import Pages
from gateway.routing.tenant_directory import TenantDirectory
from gateway.settings import GatewaySettings
from gateway.upload_events import EventHub

SETTINGS = web.AppKey("settings", GatewaySettings)
SERVICES: web.AppKey[Mapping[str, ServiceClient]] = web.AppKey("services", Mapping)
TENANTS = web.AppKey("tenants", TenantDirectory)
AUTHENTICATOR = web.AppKey("gatekeeper", Authenticator)
RECORDER = web.AppKey("recorder", AuditRecorder)
CATALOGS = web.AppKey("catalogs", Catalogs)
LISTINGS = web.AppKey("listings", Listings)
RELEASES = web.AppKey("releases", Releases)
PAGES = web.AppKey("pages", Pages)
SESSIONS = web.AppKey("sessions", Sessions)
EVENTS: web.AppKey[Events] = web.AppKey("events")
EVENT_HUB = web.AppKey("live", EventHub)
