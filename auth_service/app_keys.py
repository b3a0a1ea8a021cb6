"""The keys of the objects that the application holds for its routes."""

from aiohttp import web

from auth_service.audit.service import Audit
from auth_service.entra.service import EntraTokens
from auth_service.login.service import Login
from auth_service.metrics import LoginMetrics
from auth_service.oidc.service import OidcSignIn
from auth_service.settings import AuthSettings
from auth_service.tenants.service import Tenants
from auth_service.tokens.service import Tokens
from auth_service.users.service import Users

SETTINGS = web.AppKey("settings", AuthSettings)
LOGIN = web.AppKey("login", Login)
LOGIN_METRICS = web.AppKey("login_metrics", LoginMetrics)
ENTRA = web.AppKey("entra", EntraTokens)
OIDC = web.AppKey("oidc", OidcSignIn)
TENANTS = web.AppKey("tenants", Tenants)
TOKENS = web.AppKey("tokens", Tokens)
USERS = web.AppKey("users", Users)
AUDIT_LOG = web.AppKey("audit_log", Audit)
