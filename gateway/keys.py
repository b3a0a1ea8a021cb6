"""Where the application keeps what its handlers use."""

from collections.abc import Mapping

from aiohttp import web

from common.client import ServiceClient
from common.events import Events
from common.sessions import Sessions
from gateway.access import Gatekeeper
from gateway.catalogs import Catalogs
from gateway.listings import Listings
from gateway.live import Live
from gateway.pages import Pages
from gateway.recorder import Recorder
from gateway.releases import Releases
from gateway.settings import GatewaySettings
from gateway.tenants import TenantDirectory

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
