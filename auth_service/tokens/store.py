"""API tokens in MongoDB."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pymongo import IndexModel
from pymongo.errors import DuplicateKeyError

from auth_service.tokens.model import Token, TokenExists, TokenGrant
from common.auth.roles import Role
from common.mongo import Document, Indexes, MongoDatabase

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
