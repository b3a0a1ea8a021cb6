"""Users, their errors, and their documents in MongoDB."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import TypeVar

from motor.motor_asyncio import AsyncIOMotorClientSession
from pymongo import IndexModel, ReturnDocument
from pymongo.errors import DuplicateKeyError

from common.auth.roles import ADMINISTRATOR, Role, roles_of
from common.errors import Conflict, Forbidden, NotAuthenticated, NotFound
from common.mongo import Document, Indexes, MongoDatabase

PASSWORD_MINIMUM = 12  # characters
PASSWORD_LIMIT = 1024  # characters
USERNAME_LIMIT = 128  # characters
SIGN_IN_INTERVAL = timedelta(minutes=1)
NO_PASSWORD = ""  # the hash of a user who signs in with an identity provider


@dataclass(frozen=True)
class User:
    """A user of a tenant, with one or more roles.

    A user of an identity provider has an `issuer` and a `subject`, which identify them, and no password.
    `is_break_glass`: signs in with a password even if the tenant allows nobody else to.
    `must_change_password`: the next sign-in replaces the password, which an administrator has reset.
    """

    tenant_id: str
    username: str
    password_hash: str
    created_at: datetime
    roles: tuple[Role, ...] = ADMINISTRATOR
    issuer: str = ""
    subject: str = ""
    name: str = ""
    email: str = ""
    is_break_glass: bool = False
    must_change_password: bool = False
    last_sign_in: datetime | None = field(default=None, compare=False)  # It is no other user after a sign-in.


class UserNotFound(NotFound):
    code = "user_not_found"
    text = "There is no user {username!r}."


class UserExists(Conflict):
    code = "user_exists"
    text = "There is a user {username!r} already."


class LastAdministrator(Conflict):
    code = "last_user"
    text = "The last administrator who can sign in with a password keeps this role and cannot be deleted."


class RolesFromProvider(Conflict):
    code = "roles_from_provider"
    text = "The roles of {username!r} come from the company login at each sign-in."


class NoPassword(Conflict):
    code = "no_password"
    text = "{username!r} signs in with the company login and has no password."


class OwnPassword(Conflict):
    code = "own_password"
    text = "You change your own password with change_password, not with a reset."


class PasswordChangeRequired(Forbidden):
    code = "password_change_required"
    text = "An administrator reset this password. Sign in with it and a new_password."


class BadCredentials(NotAuthenticated):
    code = "bad_credentials"
    text = "The username or the password is wrong."


Result = TypeVar("Result")
USER_INDEXES: Indexes = {
    "users": [
        IndexModel(["tenant_id", "username"], unique=True),
        IndexModel(["tenant_id", "issuer", "subject"], unique=True, partialFilterExpression={"subject": {"$gt": ""}}),
    ]
}
HAS_PASSWORD: Document = {"issuer": ""}
IS_ADMINISTRATOR: Document = {"roles": Role.ADMINISTRATOR, **HAS_PASSWORD}


class MongoUserStore:
    """One document per user; a name is unique within the tenant."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database
        self._users = database["users"]

    async def add(self, user: User) -> None:
        try:
            await self._users.insert_one({**vars(user), "roles": list(user.roles)})
        except DuplicateKeyError:
            raise UserExists(username=user.username) from None

    async def find(self, tenant_id: str, username: str) -> User | None:
        document = await self._users.find_one({"tenant_id": tenant_id, "username": username})
        return _user(document) if document else None

    async def find_subject(self, tenant_id: str, issuer: str, subject: str) -> User | None:
        """The user of an identity provider."""
        document = await self._users.find_one({"tenant_id": tenant_id, "issuer": issuer, "subject": subject})
        return _user(document) if document else None

    async def put_subject(self, user: User) -> User:
        """Add or update the user of an identity provider; returns the stored one, who keeps their username."""
        said = {"roles": list(user.roles), "name": user.name, "email": user.email}
        key = {"tenant_id": user.tenant_id, "issuer": user.issuer, "subject": user.subject}
        first = {name: value for name, value in vars(user).items() if name not in said.keys() | key.keys()}
        update = {"$set": said, "$setOnInsert": first}
        try:
            document = await self._users.find_one_and_update(
                key, update, upsert=True, return_document=ReturnDocument.AFTER
            )
        except DuplicateKeyError:  # Another sign-in added the user meanwhile, or the name is taken.
            document = await self._users.find_one_and_update(key, update, return_document=ReturnDocument.AFTER)
        if document is None:
            raise UserExists(username=user.username)
        return _user(document)

    async def list(self, tenant_id: str) -> Sequence[User]:
        return [_user(document) async for document in self._users.find({"tenant_id": tenant_id}).sort("username")]

    async def set_password(
        self, tenant_id: str, username: str, password_hash: str, *, must_change: bool = False
    ) -> bool:
        user = {"tenant_id": tenant_id, "username": username, **HAS_PASSWORD}
        changes = {"password_hash": password_hash, "must_change_password": must_change}
        result = await self._users.update_one(user, {"$set": changes})
        return result.matched_count == 1

    async def record_sign_in(self, tenant_id: str, username: str, at: datetime) -> None:
        """Store the time of a sign-in, at most once a minute."""
        before = {"last_sign_in": {"$not": {"$gt": at - SIGN_IN_INTERVAL}}}
        user = {"tenant_id": tenant_id, "username": username, **before}
        await self._users.update_one(user, {"$set": {"last_sign_in": at}})

    async def change(self, tenant_id: str, username: str, changes: Document) -> User | None:
        """Change a user's `roles` or `is_break_glass`; the user before, None if there is none.

        Raises LastAdministrator.
        """

        async def change(session: AsyncIOMotorClientSession) -> User | None:
            user = {"tenant_id": tenant_id, "username": username}
            before = await self._users.find_one_and_update(user, {"$set": changes}, session=session)
            return _user(before) if before else None

        return await self._keep_administrator(tenant_id, change)

    async def set_login(self, tenant_id: str, login_name: str, *, with_passwords: bool) -> None:
        """Set how the users of a tenant sign in. Raises LastAdministrator if no administrator could."""

        async def set_login(session: AsyncIOMotorClientSession) -> None:
            changes = {"login_name": login_name, "password_login": with_passwords}
            await self._database["tenants"].update_one({"tenant_id": tenant_id}, {"$set": changes}, session=session)
            if not with_passwords and not await self._administrators(tenant_id, session):
                raise LastAdministrator

        await self._keep_administrator(tenant_id, set_login)

    async def delete(self, tenant_id: str, username: str) -> bool:
        """Delete a user; False if the user does not exist. Raises LastAdministrator."""

        async def delete(session: AsyncIOMotorClientSession) -> bool:
            user = {"tenant_id": tenant_id, "username": username}
            return (await self._users.delete_one(user, session=session)).deleted_count == 1

        return await self._keep_administrator(tenant_id, delete)

    async def _keep_administrator(
        self, tenant_id: str, change: Callable[[AsyncIOMotorClientSession], Awaitable[Result]]
    ) -> Result:
        """Make a change that leaves the tenant an administrator if it had one. Raises LastAdministrator."""

        async def change_if_allowed(session: AsyncIOMotorClientSession) -> Result:
            # Every such change writes the tenant's document, so that two at once cannot both see another user left.
            tenant = {"tenant_id": tenant_id}
            await self._database["tenants"].update_one(tenant, {"$inc": {"user_deletions": 1}}, session=session)
            had = await self._administrators(tenant_id, session)
            result = await change(session)
            if had and not await self._administrators(tenant_id, session):
                raise LastAdministrator
            return result

        async with await self._database.client.start_session() as session:
            return await session.with_transaction(change_if_allowed)

    async def allows_passwords(self, tenant_id: str) -> bool:
        """Whether users who are not break-glass users sign in with a password."""
        without = {"tenant_id": tenant_id, "password_login": False}
        return await self._database["tenants"].find_one(without) is None

    async def is_last_administrator(self, tenant_id: str, username: str) -> bool:
        return list(await self._administrators(tenant_id)) == [username]

    async def _administrators(self, tenant_id: str, session: AsyncIOMotorClientSession | None = None) -> Sequence[str]:
        """The first two administrators who can sign in with a password."""
        user: Document = {"tenant_id": tenant_id, **IS_ADMINISTRATOR}
        without_passwords = {"tenant_id": tenant_id, "password_login": False}
        if await self._database["tenants"].find_one(without_passwords, session=session):
            user["is_break_glass"] = True
        return [found["username"] async for found in self._users.find(user, session=session).limit(2)]


def _user(document: Document) -> User:
    # A user of an earlier release lacks the newest fields.
    values = {each.name: document[each.name] for each in fields(User) if each.name in document}
    return User(**{**values, "roles": roles_of(document)})
