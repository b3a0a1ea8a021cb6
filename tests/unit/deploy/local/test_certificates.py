"""`pkgrepo up`: its certificates on real TLS connections, and the size limit of its log."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from deploy.local import certificates as module
from deploy.local import up
from deploy.local.certificates import Certificates, renewing
from deploy.local.folder import FolderProblem
from tests.support.tables import each
from tests.support.wait import until

NAMES = ["pkgrepo.test", "192.168.7.20", "localhost", "127.0.0.1"]


@dataclass
class Clock:
    """A clock that starts today and is moved by tests. TLS clients have the real time."""

    ahead: timedelta = field(default_factory=timedelta)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@asynccontextmanager
async def listening(certificates: Certificates) -> AsyncIterator[int]:
    """Accept TLS connections; yields the port."""
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=certificates.context, ssl_handshake_timeout=5
    )
    async with server:
        yield server.sockets[0].getsockname()[1]


async def certificate_at(port: int, folder: Path, name: str = "localhost") -> x509.Certificate:
    """The certificate that a client gets who trusts `ca.crt` alone. Raises SSLCertVerificationError."""
    trust = ssl.create_default_context(cafile=folder / "ca.crt")
    trust.verify_flags |= ssl.VERIFY_X509_STRICT
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname=name)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    await reader.read()
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(certificate)


async def current(folder: Path, names: list[str] = NAMES, clock: Clock | None = None) -> x509.Certificate:
    """The certificate of a server that starts on the folder."""
    async with listening(Certificates(folder, names, clock or Clock())) as port:
        return await certificate_at(port, folder)


@each("name", NAMES)
async def test_a_client_that_trusts_the_ca_reaches_each_name(name: str, tmp_path: Path) -> None:
    async with listening(Certificates(tmp_path, NAMES)) as port:
        await certificate_at(port, tmp_path, name)


async def test_a_client_refuses_a_name_that_the_certificate_lacks(tmp_path: Path) -> None:
    async with listening(Certificates(tmp_path, NAMES)) as port:
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            await certificate_at(port, tmp_path, "pkgrepo.example")


def test_only_the_owner_reads_keys(tmp_path: Path) -> None:
    Certificates(tmp_path / "tls", NAMES)
    files = {path.name: path.stat().st_mode & 0o777 for path in [tmp_path / "tls", *(tmp_path / "tls").iterdir()]}
    assert files == {"tls": 0o700, "authority.pem": 0o600, "server.pem": 0o600, "ca.crt": 0o600}
    assert b"PRIVATE" not in (tmp_path / "tls" / "ca.crt").read_bytes()


async def test_a_restart_keeps_both_certificates(tmp_path: Path) -> None:
    first, authority = await current(tmp_path), (tmp_path / "ca.crt").read_bytes()
    assert await current(tmp_path) == first
    assert (tmp_path / "ca.crt").read_bytes() == authority


@each("days", [-400, 60])
async def test_a_start_with_a_wrong_clock_keeps_the_ca(days: int, tmp_path: Path) -> None:
    folder = tmp_path / str(days)
    Certificates(folder, NAMES)
    authority = (folder / "ca.crt").read_bytes()
    Certificates(folder, NAMES, Clock(timedelta(days=days)))
    await current(folder)
    assert (folder / "ca.crt").read_bytes() == authority


async def test_the_key_of_the_server_is_on_p256(tmp_path: Path) -> None:
    key = (await current(tmp_path)).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


@each("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_that_offers_one_version_of_tls_is_served(version: ssl.TLSVersion, tmp_path: Path) -> None:
    folder = tmp_path / version.name
    async with listening(Certificates(folder, NAMES)) as port:
        trust = ssl.create_default_context(cafile=folder / "ca.crt")
        trust.minimum_version = trust.maximum_version = version
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="localhost")
        negotiated = writer.get_extra_info("ssl_object").version()
        writer.close()
    assert negotiated == version.name.replace("_", ".")


async def test_a_server_certificate_is_valid_for_at_most_398_days(tmp_path: Path) -> None:
    certificate = await current(tmp_path)
    assert certificate.not_valid_after_utc - certificate.not_valid_before_utc <= timedelta(days=398)


@each("name", ["www.pkgrepo.test", "10.0.0.9", "fd00::9"])
async def test_a_name_within_the_limits_of_the_ca_keeps_it(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    Certificates(folder, NAMES)
    authority = (folder / "ca.crt").read_bytes()
    certificates = Certificates(folder, [*NAMES, name])
    async with listening(certificates) as port:
        await certificate_at(port, folder, name)
    assert ((folder / "ca.crt").read_bytes() == authority, certificates.ca_was_replaced) == (True, False)


@each("name", ["packages.example", "xpkgrepo.test", "203.0.113.9"])
async def test_a_name_outside_the_limits_of_the_ca_replaces_it(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    assert not Certificates(folder, NAMES).ca_was_replaced
    replaced = Certificates(folder, [name, "localhost"])
    async with listening(replaced) as port:
        await certificate_at(port, folder, name)
    assert replaced.ca_was_replaced
    assert not Certificates(folder, NAMES).ca_was_replaced, "the old names stay permitted"


async def test_clients_refuse_other_names_from_a_stolen_ca_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Certificates(tmp_path, NAMES)
    monkeypatch.setattr(module, "_is_permitted", lambda *_: True)
    async with listening(Certificates(tmp_path, ["bank.example", "localhost"])) as port:
        with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
            await certificate_at(port, tmp_path, "bank.example")


def test_the_ca_signs_servers_only_and_no_other_ca(tmp_path: Path) -> None:
    Certificates(tmp_path, NAMES)
    extensions = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes()).extensions
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    usages = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]


async def test_a_running_server_renews_its_certificate(tmp_path: Path) -> None:
    clock = Clock(-timedelta(days=65))
    certificates = Certificates(tmp_path, NAMES, clock)
    authority = (tmp_path / "ca.crt").read_bytes()
    async with listening(certificates) as port, renewing(certificates, interval=0.01):
        first = await certificate_at(port, tmp_path)
        clock.ahead = timedelta()

        async def renewed() -> bool:
            return await certificate_at(port, tmp_path) != first

        await until(renewed)
    assert (tmp_path / "ca.crt").read_bytes() == authority


async def test_an_early_renewal_changes_nothing(tmp_path: Path) -> None:
    clock = Clock(-timedelta(days=50))
    certificates = Certificates(tmp_path, NAMES, clock)
    async with listening(certificates) as port:
        first = await certificate_at(port, tmp_path)
        clock.ahead = timedelta()
        certificates.renew()
        assert await certificate_at(port, tmp_path) == first


async def test_a_start_after_years_replaces_both_certificates(tmp_path: Path) -> None:
    Certificates(tmp_path, NAMES, Clock(-timedelta(days=3640)))
    certificates = Certificates(tmp_path, NAMES)
    assert certificates.ca_was_replaced
    async with listening(certificates) as port:
        await certificate_at(port, tmp_path)


async def test_an_interrupted_replacement_is_completed(tmp_path: Path) -> None:
    Certificates(tmp_path, NAMES)
    old = {name: (tmp_path / name).read_bytes() for name in ("server.pem", "ca.crt")}
    (tmp_path / "authority.pem").unlink()
    Certificates(tmp_path, NAMES)
    for name, content in old.items():
        (tmp_path / name).write_bytes(content)
    await current(tmp_path)


@each("file", ["authority.pem", "server.pem"])
def test_a_damaged_file_is_named(file: str, tmp_path: Path) -> None:
    folder = tmp_path / file.removesuffix(".pem")
    Certificates(folder, NAMES)
    (folder / file).write_bytes(b"-----BEGIN")
    with pytest.raises(FolderProblem, match=rf"{file}: is damaged; delete the folder"):
        Certificates(folder, NAMES)


def test_a_large_log_is_rotated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up, "LIMIT", 1000)
    path = tmp_path / "some.log"
    with up.open_log(path) as log:
        for number in range(100):
            print(f"line {number:4}, and ä to be more than ASCII", file=log, flush=True)
    files = [path.with_name("some.log.1"), path]
    numbers = [int(line[5:9]) for file in files for line in file.read_text().splitlines()]
    assert all(file.stat().st_size <= 1000 for file in files)
    assert len(numbers) > 25
    assert numbers == list(range(100 - len(numbers), 100))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["some.log", "some.log.1"]


def test_a_new_start_appends_to_the_log(tmp_path: Path) -> None:
    path = tmp_path / "some.log"
    for text in ("first\n", "second\n"):
        with up.open_log(path) as log:
            log.write(text)
    assert path.read_text() == "first\nsecond\n"
