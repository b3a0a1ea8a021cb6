"""A tenant moves with its data from one installation to another, as an archive."""

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from deploy.backup.archive import ArchiveReader, part_path
from deploy.backup.records import AUDIT, BackupProblem, Passphrase
from deploy.backup.tenant import TenantExporter
from deploy.local.demo import SAMPLES
from deploy.operator.stores import open_storage
from deploy.operator.tenants import delete_tenant
from tests.support.faults.invariants import missing_versions, violations
from tests.support.processes.backup import (
    RecordedProgress,
    addresses_of,
    audit_heads,
    export_tenant,
    import_archive,
    passphrase_option,
    run_and_kill,
)
from tests.support.processes.cluster import Cluster
from tests.support.processes.pkgrepo_command import pkgrepo, run_pkgrepo
from tests.support.samples.signed_files import PUBLISHER
from tests.support.system.publishing import (
    Published,
    add_package,
    catalog,
    package_id,
    publish,
    send_chunk,
)
from tests.support.system.services import Api

INSTALLERS = sum(len(sample.versions) for sample in SAMPLES)

pytestmark = pytest.mark.full  # ../test_operator_rights.py has a sample.


@pytest.fixture
async def published(cluster: Cluster) -> tuple[Api, list[Published]]:
    """A tenant with a few versions."""
    api, name = await cluster.services.tenant(client_authentication=True), package_id()
    await add_package(api, name)
    return api, [await publish(api, name, f"1.{number}") for number in range(4)]


@pytest.fixture(scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The archive of the tenant of a `pkgrepo up`, and its administrator's password."""
    folder = tmp_path_factory.mktemp("small")
    archive = folder / "demo.tar"
    async with run_pkgrepo(folder / "data", "--demo"):
        status, output = await pkgrepo(
            "export", "demo", str(archive), "--data", str(folder / "data"), *passphrase_option(folder)
        )
        assert status == 0, output
        assert f"with {INSTALLERS} installers" in output
    return archive, (folder / "data" / "admin-password").read_text()


async def test_a_tenant_moves_from_one_machine_into_a_cluster(cluster: Cluster, demo: tuple[Path, str]) -> None:
    archive, password = demo
    passphrase = passphrase_option(archive.parent)
    status, output = await pkgrepo("import", str(archive), *passphrase, **cluster.environment)
    assert status == 0, output
    assert "another CLIENT_TOKEN_KEY" in output
    assert "another AUDIT_KEY" in output
    api = await cluster.services.api("demo").signed_in(password=password)
    assert set(await catalog(api)) == {sample.package_id for sample in SAMPLES}
    for sample in SAMPLES:
        for version in (await api.call("GET", "get_package_versions", sample.package_id)).body:
            async with api.session.get(version["INSTALLER_URL"]) as answer:
                assert answer.status == 200
    assert await violations(cluster, ["demo"]) == []
    entries = (await api.call("GET", "get_audit_log")).body
    operations = [entry["operation"] for entry in entries]
    assert {"tenant_create", "user_create", "tenant_export", "tenant_import"} <= set(operations)
    assert await audit_heads(addresses_of(cluster), "demo")
    status, output = await pkgrepo("import", str(archive), *passphrase, **cluster.environment)
    assert (status, "demo: exists already" in output) == (1, True), output


async def test_tokens_and_the_audit_chain_move_under_the_same_keys(
    cluster: Cluster, published: tuple[Api, list[Published]], tmp_path: Path
) -> None:
    api, versions = published
    client = (await api.call("POST", "add_client", data={"client_name": "pc-1"})).body
    assert (await send_chunk(api, "halfway", os.urandom(2000), 0, 1000)).status == 200
    (head,) = await audit_heads(addresses_of(cluster), api.tenant_id)
    await export_tenant(cluster, api.tenant_id, tmp_path / "tenant.tar")
    await forget(cluster, api)
    done = await import_archive(cluster, tmp_path / "tenant.tar")
    assert done.other_keys == []
    again = await api.signed_in()
    assert await missing_versions(again, versions) == []
    assert await violations(cluster, [api.tenant_id]) == []
    answer = await api.anonymous().call("POST", "get_packages", data={"auth_token": client["auth_token"]})
    assert answer.status == 200
    log = cluster.mongo["auth"]["audit_log"]
    sequence, _, seal = head.partition(":")
    assert await log.find_one({"tenant_id": api.tenant_id, "sequence": int(sequence), "hash": seal})
    assert await audit_heads(addresses_of(cluster), api.tenant_id)


async def test_the_signers_of_deleted_versions_move(
    cluster: Cluster, published: tuple[Api, list[Published]], tmp_path: Path
) -> None:
    api, _ = published
    signers, key = cluster.mongo["catalog"]["package_signers"], {"tenant_id": api.tenant_id}
    await signers.insert_one({**key, "id_key": "acme.app", "signer": PUBLISHER})
    await export_tenant(cluster, api.tenant_id, tmp_path / "tenant.tar")
    await forget(cluster, api)
    assert await signers.find_one(key) is None
    await import_archive(cluster, tmp_path / "tenant.tar")
    signer = await signers.find_one(key)
    assert signer
    assert (signer["id_key"], signer["signer"]) == ("acme.app", PUBLISHER)


async def test_an_export_waits_until_deleted_signers_are_remembered(
    cluster: Cluster, published: tuple[Api, list[Published]], tmp_path: Path
) -> None:
    api, (version, *_) = published
    key = {"tenant_id": api.tenant_id, "uid": version.uid}
    await cluster.mongo["catalog"]["versions"].update_one(key, {"$set": {"state": "deleting"}})
    with pytest.raises(BackupProblem, match="versions are being deleted; try again"):
        await export_tenant(cluster, api.tenant_id, tmp_path / "tenant.tar")


async def test_a_killed_export_and_import_continue_where_they_stopped(
    cluster: Cluster, published: tuple[Api, list[Published]], tmp_path: Path
) -> None:
    api, versions = published
    archive, passphrase = tmp_path / "tenant.tar", passphrase_option(tmp_path)
    environment = cluster.environment
    exporter = ("deploy.backup.tenant", "verify_blocks", "export", api.tenant_id, str(archive))
    assert await run_and_kill(*exporter, *passphrase, **environment) == -9
    assert not archive.exists()
    assert (await export_tenant(cluster, api.tenant_id, archive)).resumed == 2
    assert not part_path(archive).exists()
    await forget(cluster, api)
    importer = ("deploy.backup.tenant", "copy_installer", "import", str(archive))
    assert await run_and_kill(*importer, *passphrase, **environment) == -9
    assert len(list((cluster.stores.installers / api.tenant_id).glob("*"))) == 2
    assert (await api.anonymous().call("POST", "get_packages")).status == 404
    await import_archive(cluster, archive)
    assert await missing_versions(await api.signed_in(), versions) == []
    assert await violations(cluster, [api.tenant_id]) == []


async def test_an_export_restarts_if_its_versions_were_deleted(
    cluster: Cluster, published: tuple[Api, list[Published]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, (first, *others) = published
    archive = tmp_path / "tenant.tar"
    await interrupt_export(cluster, api, archive, monkeypatch)
    form = {"versions_uids": ",".join(version.uid for version in others)}
    await api.call("DELETE", "delete_package_version", first.package_id, data=form)
    await export_tenant(cluster, api.tenant_id, archive)
    await forget(cluster, api)
    await import_archive(cluster, archive)
    again = await api.signed_in()
    assert await missing_versions(again, [first]) == []
    assert (await again.call("GET", "get_specific_package_version", others[0].uid)).status == 404


async def test_an_altered_audit_log_is_not_imported(
    cluster: Cluster, published: tuple[Api, list[Published]], tmp_path: Path
) -> None:
    api, _ = published
    log = cluster.mongo["auth"]["audit_log"]
    await log.update_one({"tenant_id": api.tenant_id, "sequence": 2}, {"$set": {"ip": "192.0.2.99"}})
    await export_tenant(cluster, api.tenant_id, tmp_path / "tenant.tar")
    await forget(cluster, api)
    with pytest.raises(BackupProblem, match="entry 2 is not as it was written"):
        await import_archive(cluster, tmp_path / "tenant.tar")
    assert (await api.anonymous().call("POST", "get_packages")).status == 404
    done = await import_archive(cluster, tmp_path / "tenant.tar", audit_key="k" * 40)
    assert done.other_keys == [AUDIT]


async def test_a_changed_archive_is_refused_before_any_write(
    cluster: Cluster, published: tuple[Api, list[Published]], tmp_path: Path
) -> None:
    api, _ = published
    archive = tmp_path / "tenant.tar"
    await export_tenant(cluster, api.tenant_id, archive)
    await forget(cluster, api)
    content = archive.read_bytes()
    assert b"administrator" in content
    for old, new in ((b'"tenant_id"', b'"tenant-id"'), (b"administrator", b"administrater")):
        archive.write_bytes(content.replace(old, new))
        with pytest.raises(BackupProblem, match=r"its seal does not match|is damaged"):
            await import_archive(cluster, archive)
    for database in ("auth", "catalog", "clients", "upload"):
        for name in await cluster.mongo[database].list_collection_names():
            assert not await cluster.mongo[database][name].count_documents({"tenant_id": api.tenant_id})


async def test_an_interrupted_export_begins_again_under_another_passphrase(
    cluster: Cluster, published: tuple[Api, list[Published]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, other = tmp_path / "tenant.tar", Passphrase(SecretStr("another passphrase of the operator"))
    await interrupt_export(cluster, published[0], archive, monkeypatch)
    where = addresses_of(cluster)
    storage = open_storage(where.installers)
    await TenantExporter(archive, published[0].tenant_id, other, storage, RecordedProgress()).run(where)
    with ArchiveReader(archive) as reader:
        manifest, _ = reader.manifest(other)
    assert len(manifest.files) == len(published[1])


async def interrupt_export(cluster: Cluster, api: Api, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Export the tenant up to the first installer."""
    with monkeypatch.context() as stopped:
        stopped.setattr("deploy.backup.tenant.verify_blocks", None)
        with pytest.raises(TypeError):
            await export_tenant(cluster, api.tenant_id, archive)
    assert part_path(archive).exists()


async def forget(cluster: Cluster, api: Api) -> None:
    where = addresses_of(cluster)
    assert await delete_tenant(where.addresses, where.installers, api.tenant_id)
