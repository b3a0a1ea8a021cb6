"""API tokens, their errors, and their documents in MongoDB."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pymongo import IndexModel
from pymongo.errors import DuplicateKeyError

from common.auth.roles import EVERY_PACKAGE, Permission, Role
from common.errors import Conflict, NotFound
from common.mongo import Document, Indexes, MongoDatabase

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


class MongoTokenStore:
    """One document per token; its id and its name are unique within the tenant."""

    def __init__(self, database: MongoDatabase) -> None:
        self._tokens = database["tokens"]

    async def add(self, token: Token, digest: str) -> None:
        """Add a token with the digest of its text. Raises TokenExists."""
        grant = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(token.grant).items()}
        fields = {name: value for name, value in vars(token).items() if name != "grant"}
        old: Document = {"old_digest": None, "old_until": None, "old_created_by": None}
        try:
            await self._tokens.insert_one({**fields, **grant, "digest": digest, **old})
        except DuplicateKeyError:
            raise TokenExists(name=token.grant.name) from None

    async def list(self, tenant_id: str) -> Sequence[Token]:
        """A tenant's tokens, by name."""
        return [_token(document) async for document in self._tokens.find({"tenant_id": tenant_id}).sort("name")]

    async def use(self, tenant_id: str, token_id: str, digest: str, now: datetime) -> tuple[Token, datetime] | None:
        """The token that has this digest, and the end of the digest; None if there is none.

        The old digest of a rotated token has the person of before. Renews `last_used`, unless the digest has ended.
        """
        token = {"tenant_id": tenant_id, "token_id": token_id}
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

    async def rotate(
        self, tenant_id: str, token_id: str, digest: str, now: datetime, old_until: datetime, rotated_by: str
    ) -> Token | None:
        """Give a token another digest, person and life; the old digest counts until `old_until`, at most to its end."""
        change = {
            "$set": {
                "old_digest": "$digest",
                "old_created_by": "$created_by",
                "old_until": {"$min": [old_until, "$expires_at"]},
                "digest": {"$literal": digest},
                "created_by": {"$literal": rotated_by},
                "expires_at": {"$dateAdd": {"startDate": now, "unit": "day", "amount": "$days"}},
            }
        }
        document = await self._tokens.find_one_and_update({"tenant_id": tenant_id, "token_id": token_id}, [change])
        return _token(document) if document else None

    async def delete(self, tenant_id: str, token_id: str) -> Token | None:
        """The token that was deleted; None if there was none."""
        document = await self._tokens.find_one_and_delete({"tenant_id": tenant_id, "token_id": token_id})
        return _token(document) if document else None


def _token(document: Document) -> Token:
    grant = TokenGrant(
        document["name"],
        tuple(map(Role, document["roles"])),
        tuple(document["packages"]),
        tuple(document["networks"]),
    )
    names = ("created_at", "created_by", "expires_at", "days", "last_used")
    return Token(document["tenant_id"], document["token_id"], grant, **{name: document[name] for name in names})
