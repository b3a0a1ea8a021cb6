"""Where the application keeps what its routes use."""

from aiohttp import web

from auth_service.audit.service import Audit
from auth_service.login.service import Login
from auth_service.metrics import Attempts
from auth_service.settings import AuthSettings
from auth_service.tenants.service import Tenants
from auth_service.tenants.usage import Usages
from auth_service.users.service import Users

SETTINGS = web.AppKey("settings", AuthSettings)
LOGIN = web.AppKey("login", Login)
ATTEMPTS = web.AppKey("attempts", Attempts)
TENANTS = web.AppKey("tenants", Tenants)
USERS = web.AppKey("users", Users)
AUDIT_LOG = web.AppKey("audit_log", Audit)
USAGES = web.AppKey("usages", Usages)
