"""Where the application keeps what its handlers use."""

from collections.abc import Mapping

from aiohttp import web

from common.auth.sessions import Sessions
from common.events import Events
from common.service_client.client import ServiceClient
from gateway.auth.authenticator import Gatekeeper
from gateway.caching.catalogs import Catalogs
from gateway.caching.client_releases import Releases
from gateway.caching.package_responses import Listings
from gateway.forwarding.audit import Recorder
from gateway.pages import Pages
from gateway.routing.tenant_directory import TenantDirectory
from gateway.settings import GatewaySettings
from gateway.upload_events import Live

SETTINGS = web.AppKey("settings", GatewaySettings)
SERVICES: web.AppKey[Mapping[str, ServiceClient]] = web.AppKey("services", Mapping)
TENANTS = web.AppKey("tenants", TenantDirectory)
GATEKEEPER = web.AppKey("gatekeeper", Gatekeeper)
RECORDER = web.AppKey("recorder", Recorder)
CATALOGS = web.AppKey("catalogs", Catalogs)
LISTINGS = web.AppKey("listings", Listings)
RELEASES = web.AppKey("releases", Releases)
PAGES = web.AppKey("pages", Pages)
SESSIONS = web.AppKey("sessions", Sessions)
EVENTS: web.AppKey[Events] = web.AppKey("events")
LIVE = web.AppKey("live", Live)
