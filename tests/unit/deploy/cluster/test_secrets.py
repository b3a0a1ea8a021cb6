"""`pkgrepo cluster secrets`: a user for each service at each store."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from common.settings import BadSetting, load
from deploy.cluster.rights import MONGODB, OPERATOR, RABBITMQ, REDIS, OtherStores
from deploy.cluster.secrets import ClusterSecrets

USERS = {"mongo_url": MONGODB, "redis_url": REDIS, "rabbitmq_url": RABBITMQ}


def contents(folder: Path) -> Mapping[str, str]:
    return {file.relative_to(folder).as_posix(): file.read_text() for file in folder.rglob("*") if file.is_file()}


def user_in(url: str) -> str:
    return url.partition("://")[2].partition(":")[0]


def make_secrets(folder: Path) -> Path:
    ClusterSecrets(folder).generate()
    return folder


def test_each_reader_has_its_own_user_at_each_store(tmp_path: Path) -> None:
    for path, url in contents(make_secrets(tmp_path)).items():
        kind, reader, *name = path.split("/")
        if kind == "urls":
            assert user_in(url) == {"pkgrepo": OPERATOR}.get(reader, reader)
            assert user_in(url) in USERS[name[0]]


def test_no_two_users_share_a_password(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    credentials = [
        row for store in ("mongodb", "redis", "rabbitmq") for row in ClusterSecrets(tmp_path).credentials(store)
    ]
    assert len({row.password for row in credentials}) == len(credentials)


def test_a_service_that_needs_a_key_now_gets_the_value_of_the_others(tmp_path: Path) -> None:
    before = contents(make_secrets(tmp_path))
    added = ["keys/catalog_service/auth_service_key", "keys/client_registry/upload_service_key"]
    for path in added:
        (tmp_path / path).unlink()

    written = ClusterSecrets(tmp_path).generate()

    assert sorted(file.relative_to(tmp_path).as_posix() for file in written) == added
    assert contents(tmp_path) == before
    for path in added:
        assert before[path] == before[f"keys/gateway/{Path(path).name}"]


@pytest.mark.parametrize("step", range(1, 9))
def test_files_have_their_owners_after_an_interrupted_run(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[int] = []  # the inodes of files and folders that were given to their owners

    def chown(file: int | Path, *_: int) -> None:
        if len(owners) == step - 1:
            owners.append(0)
            raise InterruptedError
        owners.append(os.stat(file).st_ino)  # noqa: PTH116  a descriptor, too

    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.chown", chown)
    with pytest.raises(InterruptedError):
        make_secrets(tmp_path)
    make_secrets(tmp_path)
    assert [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_ino not in owners] == []


def test_redis_default_user_is_off(tmp_path: Path) -> None:
    assert "user default reset ~* &* +@all" in contents(make_secrets(tmp_path))["redis/users.acl"].splitlines()


def test_no_rabbitmq_user_may_manage_the_broker(tmp_path: Path) -> None:
    definitions = json.loads(contents(make_secrets(tmp_path))["rabbitmq/definitions.json"])
    assert {row["tags"] for row in definitions["users"]} == {""}


def test_the_files_for_redis_and_rabbitmq_hold_no_password(tmp_path: Path) -> None:
    files = contents(make_secrets(tmp_path))
    for store, path in (("redis", "redis/users.acl"), ("rabbitmq", "rabbitmq/definitions.json")):
        assert not [row for row in ClusterSecrets(tmp_path).credentials(store) if row.password in files[path]]


def test_a_second_run_writes_nothing(tmp_path: Path) -> None:
    before = contents(make_secrets(tmp_path))
    assert ClusterSecrets(tmp_path).generate() == []
    assert contents(tmp_path) == before


@pytest.mark.parametrize("host", ["redis.example.com:6379", "my-redis:6379", "redis:6379"])
def test_the_address_of_an_external_store_stays(host: str, tmp_path: Path) -> None:
    file = make_secrets(tmp_path) / "urls" / "gateway" / "redis_url"
    file.write_text(f"rediss://gateway:theirs@{host}")
    make_secrets(tmp_path)
    assert file.read_text() == f"rediss://gateway:theirs@{host}"


def test_external_stores_need_no_store_files(tmp_path: Path) -> None:
    for path in contents(make_secrets(tmp_path / "new")):
        if path.startswith("urls/"):
            file = tmp_path / "external" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("an address")
    ClusterSecrets(tmp_path / "external", external=True).generate()
    assert sorted(path.name for path in (tmp_path / "external").iterdir()) == ["administrator", "keys", "urls"]
    assert (tmp_path / "external" / "urls" / "gateway" / "redis_url").read_text() == "an address"


def test_every_missing_address_of_an_external_store_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "urls" / "gateway").mkdir(parents=True)
    (tmp_path / "urls" / "gateway" / "redis_url").write_text("an address")
    with pytest.raises(BadSetting) as error:
        ClusterSecrets(tmp_path, external=True).generate()
    named = set(re.findall(r"urls/\w+/\w+_url", str(error.value)))
    assert {"urls/auth_service/mongo_url", "urls/upload_service/rabbitmq_url", "urls/pkgrepo/redis_url"} <= named
    assert len(named) == 12
    assert "urls/gateway/redis_url" not in named


def test_one_address_for_all_leaves_the_other_stores_their_users(tmp_path: Path) -> None:
    others = load(OtherStores, redis_url="redis://theirs@elsewhere")
    ClusterSecrets(tmp_path, others).generate()
    assert user_in((tmp_path / "urls" / "gateway" / "rabbitmq_url").read_text()) == "gateway"
    assert not (tmp_path / "redis").exists()


def test_new_passwords_use_a_second_name_and_keep_the_old_ones(tmp_path: Path) -> None:
    secrets = ClusterSecrets(make_secrets(tmp_path))
    before = secrets.credentials("mongodb")
    secrets.renew_passwords()
    credentials = secrets.credentials("mongodb")
    assert {row.name for row in credentials} == {row.name for row in before} | {f"{row.name}-2" for row in before}
    assert set(before) < set(credentials)
    assert user_in((tmp_path / "urls" / "auth_service" / "mongo_url").read_text()) == "auth_service-2"


def test_renewing_passwords_twice_changes_them_once(tmp_path: Path) -> None:
    secrets = ClusterSecrets(make_secrets(tmp_path))
    secrets.renew_passwords()
    before = contents(tmp_path)
    secrets.renew_passwords()
    assert contents(tmp_path) == before


@pytest.mark.parametrize("store", ["mongodb", "redis", "rabbitmq"])
def test_dropped_passwords_leave_one_name_for_each_user(store: str, tmp_path: Path) -> None:
    secrets = ClusterSecrets(make_secrets(tmp_path))
    secrets.renew_passwords()
    new = [row for row in secrets.credentials(store) if row.name.endswith("-2")]
    secrets.drop_old_passwords()
    assert [row for row in secrets.credentials(store) if row.user not in {"health", "administrator"}] == new


def test_a_third_password_uses_the_first_name_again(tmp_path: Path) -> None:
    secrets = ClusterSecrets(make_secrets(tmp_path))
    for _ in range(2):
        secrets.renew_passwords()
        secrets.drop_old_passwords()
    assert {row.name for row in secrets.credentials("mongodb")} == set(MONGODB)


def test_every_possible_password_of_mongodb_root_is_kept(tmp_path: Path) -> None:
    secrets = ClusterSecrets(make_secrets(tmp_path))
    before = secrets.root_passwords()
    secrets.renew_passwords()
    secrets.drop_old_passwords()
    assert secrets.root_passwords()[1:] == before


def test_new_passwords_leave_external_stores_unchanged(tmp_path: Path) -> None:
    ClusterSecrets(tmp_path, load(OtherStores, redis_url="redis://theirs@elsewhere")).generate()
    ClusterSecrets(tmp_path).renew_passwords()
    assert (tmp_path / "urls" / "gateway" / "redis_url").read_text() == "redis://theirs@elsewhere"
    assert user_in((tmp_path / "urls" / "gateway" / "rabbitmq_url").read_text()) == "gateway-2"
    assert not (tmp_path / "redis").exists()


def test_a_folder_without_users_of_stores_gets_no_new_passwords(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="has no users of the stores"):
        ClusterSecrets(tmp_path).renew_passwords()
