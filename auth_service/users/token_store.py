"""API tokens: created, rotated, verified and deleted, in MongoDB."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pymongo import IndexModel
from pymongo.errors import DuplicateKeyError

from common.auth.internal_tokens import Caller
from common.auth.roles import EVERY_PACKAGE, FOR_TOKENS_ONLY, Permission, PermissionMissing, Role, permissions_of
from common.auth.signing import ApiToken, digest_of, new_token, new_token_id
from common.errors import Conflict, InvalidField, NotFound
from common.mongo import Document, Indexes, MongoDatabase
from common.redis import TenantVersions

NAME_LIMIT = 64  # characters
MAX_DAYS, DEFAULT_DAYS = 366, 90  # of a token's life
MAX_OVERLAP = 168  # hours that the old secret of a rotated token still counts
NOT_FOR_TOKENS = frozenset({Permission.USERS_WRITE, Permission.TOKENS_WRITE})


@dataclass(frozen=True)
class TokenGrant:
    """The rights of a token. No `networks` allow every address."""

    name: str
    roles: tuple[Role, ...]
    packages: tuple[str, ...] = EVERY_PACKAGE
    networks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Token:
    """An API token of a tenant, without its secret. It lives `days` after its creation and after each rotation.

    `created_by` is the person who knows its secret: who created or last rotated it. This user may be deleted since.
    """

    tenant_id: str
    token_id: str
    grant: TokenGrant
    created_at: datetime
    created_by: str
    expires_at: datetime
    days: int
    last_used: datetime | None = None


class TokenExists(Conflict):
    code = "token_exists"
    text = "There is a token {name!r} already."


class TokenNotFound(NotFound):
    code = "token_not_found"
    text = "There is no token with this id."


TOKEN_INDEXES: Indexes = {
    "tokens": [IndexModel(["tenant_id", field], unique=True) for field in ("token_id", "name")],
}


class Tokens:
    """The API tokens of tenants, one document each. Gateways cache what they may do."""

    def __init__(self, database: MongoDatabase, versions: TenantVersions) -> None:
        self._tokens = database["tokens"]
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
        needed = {FOR_TOKENS_ONLY.get(permission, permission) for permission in permissions}
        if missing := needed - permissions_of(caller.roles):
            raise PermissionMissing(permission=min(missing))
        token_id, now = new_token_id(), datetime.now(UTC)
        token = Token(caller.tenant_id, token_id, grant, now, caller.username, now + timedelta(days=days), days)
        text = new_token(token_id)
        rights = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(grant).items()}
        fields = {name: value for name, value in vars(token).items() if name != "grant"}
        old: Document = {"old_digest": None, "old_until": None, "old_created_by": None}
        async with self._versions.invalidate_access_during(caller.tenant_id):
            try:
                await self._tokens.insert_one({**fields, **rights, "digest": digest_of(text), **old})
            except DuplicateKeyError:
                raise TokenExists(name=grant.name) from None
        return token, text

    async def list(self, tenant_id: str) -> Sequence[Token]:
        """A tenant's tokens, by name."""
        return [_token(document) async for document in self._tokens.find({"tenant_id": tenant_id}).sort("name")]

    async def identify(self, tenant_id: str, sent: ApiToken) -> tuple[Token, datetime] | None:
        """The token, expired or not, and the end of its secret, which may be an old one. None if there is none.

        The old secret of a rotated token has the person of before. Renews `last_used`, unless the secret has ended.
        """
        token, digest, now = {"tenant_id": tenant_id, "token_id": sent.token_id}, sent.digest, datetime.now(UTC)
        document = await self._tokens.find_one({**token, "$or": [{"digest": digest}, {"old_digest": digest}]})
        if document is None:
            return None
        ends_at = document["expires_at"]
        if document["digest"] != digest:
            ends_at, document["created_by"] = document["old_until"], document["old_created_by"]
        last_used = document["last_used"]
        if now < ends_at and (last_used is None or now - last_used >= timedelta(minutes=1)):
            await self._tokens.update_one(token, {"$max": {"last_used": now}})
        return _token(document), ends_at

    async def rotate(self, caller: Caller, token_id: str, overlap_hours: int) -> tuple[Token, str]:
        """Give a token another secret and its whole life again; the old secret counts for some hours, at most its life.

        The caller knows the secret, so the token becomes the caller's. Raises TokenNotFound.
        """
        text, now = new_token(token_id), datetime.now(UTC)
        change = {
            "$set": {
                "old_digest": "$digest",
                "old_created_by": "$created_by",
                "old_until": {"$min": [now + timedelta(hours=overlap_hours), "$expires_at"]},
                "digest": {"$literal": digest_of(text)},
                "created_by": {"$literal": caller.username},
                "expires_at": {"$dateAdd": {"startDate": now, "unit": "day", "amount": "$days"}},
            }
        }
        key = {"tenant_id": caller.tenant_id, "token_id": token_id}
        async with self._versions.invalidate_access_during(caller.tenant_id):
            document = await self._tokens.find_one_and_update(key, [change])
        if document is None:
            raise TokenNotFound
        return _token(document), text

    async def delete(self, tenant_id: str, token_id: str) -> Token:
        """Delete a token, which ends it at once. Raises TokenNotFound."""
        async with self._versions.invalidate_access_during(tenant_id):
            document = await self._tokens.find_one_and_delete({"tenant_id": tenant_id, "token_id": token_id})
        if document is None:
            raise TokenNotFound
        return _token(document)


def _token(document: Document) -> Token:
    grant = TokenGrant(
        document["name"],
        tuple(map(Role, document["roles"])),
        tuple(document["packages"]),
        tuple(document["networks"]),
    )
    names = ("created_at", "created_by", "expires_at", "days", "last_used")
    return Token(document["tenant_id"], document["token_id"], grant, **{name: document[name] for name in names})
