"""A tenant with an identity provider, and its browsers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from auth_service.oidc.client import ProviderClient
from auth_service.oidc.service import Providers
from auth_service.oidc.store import MongoProviderStore
from common.auth.internal_tokens import Caller
from common.mongo import open_database
from tests.support.api import Answer
from tests.support.services.auth import Auth
from tests.support.services.identity_provider import IdentityProvider, identity_provider


@dataclass
class Company:
    """A tenant whose users sign in with a provider."""

    auth: Auth
    caller: Caller
    idp: IdentityProvider
    providers: Providers

    async def set(self, *, with_passwords: bool = True, **options: Any) -> None:
        """Set the provider anew, so that the service knows nothing of it."""
        provider = self.idp.provider(self.caller.tenant_id, **options)
        await self.providers.set(provider, "Company login", with_passwords=with_passwords)

    async def begin(self, caller: Caller | None = None, next_url: str = "/acme/dashboard") -> dict[str, str]:
        """Begin a sign-in; the address of the provider and the cookie."""
        answer = await self.auth.call(caller or self.caller, "POST", "begin_sign_in", json={"next_url": next_url})
        assert answer.status == 200, answer.body
        return dict(answer.body)

    async def finish(self, answer: dict[str, str], browser: str, caller: Caller | None = None) -> Answer:
        body = {"answer": answer, "browser": browser}
        return await self.auth.call(caller or self.caller, "POST", "finish_sign_in", json=body)

    async def sign_in(self, **changes: str) -> Answer:
        """Sign in as a browser does. `changes` are of the callback's query."""
        begun = await self.begin()
        return await self.finish({**self.idp.sign_in(begun["url"]), **changes}, begun["browser"])

    async def users(self) -> dict[str, dict[str, Any]]:
        """The users of the provider, by e-mail address."""
        answer = await self.auth.call(self.caller, "GET", "get_users")
        return {user["email"]: user for user in answer.body if user["login"] == "company"}


@pytest.fixture
async def company(auth: Auth, tmp_path: Path, mongo_url: str) -> AsyncIterator[Company]:
    caller = await auth.tenant()
    async with identity_provider(tmp_path) as idp, open_database(mongo_url, auth.settings.database) as database:
        providers = Providers(MongoProviderStore(database), ProviderClient(), auth.users)
        company = Company(auth, caller, idp, providers)
        await company.set()
        yield company
