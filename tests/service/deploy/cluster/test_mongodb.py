"""The users of `pkgrepo cluster mongodb`, on a MongoDB with access control."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure

from deploy.cluster.rights import MONGODB, prepare
from tests.support.servers.start import mongod_with_users
from tests.support.servers.users import PASSWORD, credentials


async def test_the_first_password_replaces_the_earlier_one_of_root() -> None:
    with TemporaryDirectory(prefix="pkgrepo-") as folder:
        async with mongod_with_users(Path(folder)) as url:
            address = url.rpartition("@")[2].partition("/?")[0]
            for _ in range(2):  # Re-running is safe.
                await prepare(address, "../mongod.sock", ["another-password", PASSWORD], credentials(MONGODB))
            async with AsyncMongoClient[dict[str, object]](url.replace(PASSWORD, "another-password")) as client:
                assert (await client.admin.command("usersInfo"))["users"]
            async with AsyncMongoClient[dict[str, object]](url) as client:
                with pytest.raises(OperationFailure, match="Authentication failed"):
                    await client.admin.command("usersInfo")
