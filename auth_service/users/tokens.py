"""Creates, rotates, verifies and deletes API tokens."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from auth_service.users.token_store import NOT_FOR_TOKENS, MongoTokenStore, Token, TokenGrant, TokenNotFound
from common.auth.internal_tokens import Caller
from common.auth.roles import PermissionMissing, permissions_of
from common.auth.signing import ApiToken, digest_of, new_token, new_token_id
from common.errors import InvalidField
from common.redis import TenantVersions


class Tokens:
    """The API tokens of tenants. Gateways cache what they may do."""

    def __init__(self, store: MongoTokenStore, versions: TenantVersions) -> None:
        self._store = store
        self._versions = versions

    async def create(self, caller: Caller, grant: TokenGrant, days: int) -> tuple[Token, str]:
        """Add a token for a number of days. Returns its text beside it, which is not stored.

        Raises:
            InvalidField: no token may have one of the roles.
            PermissionMissing: the caller lacks a permission that the token would get.
            TokenExists: a token has this name.
        """
        permissions = permissions_of(grant.roles)
        if excluded := permissions & NOT_FOR_TOKENS:
            names = ", ".join(sorted(excluded))
            message = f"gives {names}, which no token may have"
            raise InvalidField("role", message, reason="not_for_tokens", permissions=names)
        if missing := permissions - permissions_of(caller.roles):
            raise PermissionMissing(permission=min(missing))
        token_id, now = new_token_id(), datetime.now(UTC)
        token = Token(caller.tenant_id, token_id, grant, now, caller.username, now + timedelta(days=days), days)
        text = new_token(token_id)
        async with self._versions.invalidate_during(caller.tenant_id):
            await self._store.add(token, digest_of(text))
        return token, text

    async def list(self, tenant_id: str) -> Sequence[Token]:
        """A tenant's tokens, by name."""
        return await self._store.list(tenant_id)

    async def identify(self, tenant_id: str, token: ApiToken) -> tuple[Token, datetime] | None:
        """The token, expired or not, and the end of its secret, which may be an old one. None if there is none."""
        return await self._store.use(tenant_id, token.token_id, token.digest, datetime.now(UTC))

    async def rotate(self, caller: Caller, token_id: str, overlap_hours: int) -> tuple[Token, str]:
        """Give a token another secret and its whole life again; the old secret counts for some hours.

        The caller knows the secret, so the token becomes the caller's. Raises TokenNotFound.
        """
        text, now = new_token(token_id), datetime.now(UTC)
        async with self._versions.invalidate_during(caller.tenant_id):
            old_until = now + timedelta(hours=overlap_hours)
            rotated_by = caller.username
            token = await self._store.rotate(caller.tenant_id, token_id, digest_of(text), now, old_until, rotated_by)
        if token is None:
            raise TokenNotFound
        return token, text

    async def delete(self, tenant_id: str, token_id: str) -> Token:
        """Delete a token, which ends it at once. Raises TokenNotFound."""
        async with self._versions.invalidate_during(tenant_id):
            token = await self._store.delete(tenant_id, token_id)
        if token is None:
            raise TokenNotFound
        return token
