"""The routes of all services, from their applications."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from auth_service.app import create_app as create_auth_service
from auth_service.settings import AuthSettings
from catalog_service.app import create_app as create_catalog_service
from catalog_service.settings import CatalogSettings
from client_registry.app import create_app as create_client_registry
from client_registry.settings import RegistrySettings
from common.auth.internal_tokens import operation_of
from tests.support.factories import KEY, KEYS
from upload_service.app import create_app as create_upload_service
from upload_service.settings import UploadSettings

_KEY = KEYS
_COMMON: dict[str, Any] = {
    "internal_key": _KEY,
    "session_key": _KEY,
    "audit_key": KEY,
    "download_key": _KEY,
    "client_token_key": _KEY,
    "installers": Path("/nowhere"),
}
APPLICATIONS: dict[str, web.Application] = {
    "auth_service": create_auth_service(AuthSettings(**_COMMON)),
    "catalog_service": create_catalog_service(CatalogSettings(**_COMMON)),
    "upload_service": create_upload_service(UploadSettings(**_COMMON)),
    "client_registry": create_client_registry(RegistrySettings(**_COMMON)),
}
PROBES = {"/livez", "/readyz"}


@dataclass(frozen=True)
class Route:
    """A route of a service: a method and a path such as `/{tenant_id}/edit_client/{client_id}`."""

    service: str
    method: str
    path: str

    @property
    def word(self) -> str:
        return operation_of(self.path.split("/")[2:])

    def __str__(self) -> str:
        return f"{self.service}-{self.method}-{self.path}"


def _routes() -> list[Route]:
    return [
        Route(service, route.method, route.resource.canonical)
        for service, app in APPLICATIONS.items()
        for route in app.router.routes()
        if route.resource is not None and route.resource.canonical not in PROBES and route.method != "HEAD"
    ]


ROUTES = _routes()
