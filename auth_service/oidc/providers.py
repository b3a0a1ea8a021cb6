"""The identity providers of tenants, as the operator sets them."""

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from auth_service.oidc.client import ProviderClient
from auth_service.oidc.discovery import trusted
from auth_service.oidc.model import NoBreakGlass, NoProvider, Provider
from auth_service.oidc.store import MongoProviderStore
from auth_service.users.model import LastAdministrator
from auth_service.users.service import Users
from common.errors import InvalidField

ENTRA = "login.microsoftonline.com"
MANY_ORGANISATIONS = {"common", "organizations", "consumers", "9188040d-6c67-4c5b-b112-36a304b66dad"}  # of consumers


def check_provider(provider: Provider) -> None:
    """Raise InvalidField for an option of the operator that no provider can have."""
    issuer = urlsplit(provider.issuer)
    if issuer.scheme != "https" or not issuer.hostname or issuer.query or issuer.fragment or issuer.username:
        raise InvalidField("--issuer", "must be an address such as https://login.example.com/realms/acme")
    if issuer.hostname == ENTRA and issuer.path.casefold().strip("/").split("/")[0] in MANY_ORGANISATIONS:
        text = f"lets every organisation sign in; use https://{ENTRA}/<tenant id>/v2.0"
        raise InvalidField("--issuer", text)
    if not provider.client_id or not provider.client_secret:
        raise InvalidField("--client-secret-file", "must have a secret, and --client-id an id")
    try:
        trusted(provider.ca_certificate)
    except (ssl.SSLError, ValueError):
        raise InvalidField("--ca-file", "must have certificates in PEM") from None


@dataclass(frozen=True)
class Providers:
    """Sets, shows and removes the provider of a tenant."""

    store: MongoProviderStore
    client: ProviderClient
    users: Users

    async def find(self, tenant_id: str) -> Provider:
        """Raises NoProvider."""
        if (provider := await self.store.find(tenant_id)) is None:
            raise NoProvider
        return provider

    async def set(self, provider: Provider, login_name: str, *, with_passwords: bool) -> None:
        """Set the provider, if it answers; end the sessions of users who cannot sign in with it or with a password.

        Raises InvalidField, ProviderUnavailable, or NoBreakGlass.
        """
        check_provider(provider)
        await self.client.metadata(provider)
        try:
            await self.users.set_login(provider.tenant_id, login_name, with_passwords=with_passwords)
        except LastAdministrator:
            raise NoBreakGlass from None
        await self.store.put(provider)
        await self.users.end_other_sessions(provider.tenant_id, provider.issuer, with_passwords=with_passwords)

    async def remove(self, tenant_id: str) -> None:
        """Remove the provider, and end the sessions of its users. Passwords are allowed again. Raises NoProvider."""
        await self.users.set_login(tenant_id, "", with_passwords=True)
        is_deleted = await self.store.delete(tenant_id)
        await self.users.end_other_sessions(tenant_id, "", with_passwords=True)
        if not is_deleted:
            raise NoProvider
