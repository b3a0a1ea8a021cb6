"""The names of this machine, and the certificates of `pkgrepo up --tls`: an authority (CA) and a server certificate.

The folder contains `authority.pem` and `server.pem`, each a private key and its certificate, and `ca.crt`, the CA
certificate for other machines. Only the owner can read them.

A stolen CA key is of little use: clients accept no other CA that it signs, only servers, and only under the CA's own
names and in private networks.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from common.concurrency.background import repeating
from common.telemetry import log
from deploy.local.folder import FolderProblem, write_secret

CA_LIFETIME = timedelta(days=3650)
SERVER_LIFETIME = timedelta(days=90)  # Clients refuse more than 398 days.
RENEW_BEFORE = timedelta(days=30)
RENEWAL_INTERVAL = 3600.0  # seconds
BACKDATED = timedelta(days=1)  # The clock of a client may be slow.
NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "169.254.0.0/16", "fc00::/7", "::1/128")
PRIVATE_NETWORKS = tuple(x509.IPAddress(ip_network(network)) for network in NETWORKS)
CERTIFICATE_SIGNING = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
_LABEL = "[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST_NAME = re.compile(rf"(?!.{{254}}){_LABEL}(\.{_LABEL})*", re.IGNORECASE)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Addresses for documentation. Connecting a UDP socket sends nothing; it selects our address for this destination.
_ROUTES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


@dataclass(frozen=True)
class KeyPair:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @staticmethod
    def read(file: Path) -> "KeyPair | None":
        """Read a file that `write` wrote; None if it does not exist. Raises FolderProblem if it is damaged."""
        try:
            content = file.read_bytes()
            key, certificate = load_pem_private_key(content, None), x509.load_pem_x509_certificate(content)
        except FileNotFoundError:
            return None
        except ValueError:
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise FolderProblem(f"{file}: is damaged; delete the folder {file.parent} for new certificates")
        return KeyPair(key, certificate)

    def write(self, file: Path) -> None:
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_secret(file, (key + self.pem).decode("ascii"))

    @property
    def pem(self) -> bytes:
        """The certificate alone."""
        return self.certificate.public_bytes(Encoding.PEM)

    def ends_soon(self, now: datetime) -> bool:
        return now >= self.certificate.not_valid_after_utc - RENEW_BEFORE


@asynccontextmanager
async def renewing(certificates: "Certificates", interval: float = RENEWAL_INTERVAL) -> AsyncIterator[None]:
    """Renew the certificates within the block, looking every `interval` seconds."""

    async def renew() -> None:
        certificates.renew()

    async with repeating("certificates", renew, lambda: asyncio.sleep(interval)):
        yield


class Certificates:
    """Creates and renews the certificates; `context` always has the current one.

    `names` are host names and addresses of the server. `ca_was_replaced` says that machines must import `ca.crt` again.
    """

    def __init__(
        self, folder: Path, names: Sequence[str], now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._folder, self._now = folder, now
        self._names = [_general_name(name) for name in names]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2  # winget offers no later one.
        self.ca_was_replaced = False
        self.ca_certificate = b""
        folder.mkdir(mode=0o700, exist_ok=True)
        self.renew()

    def renew(self) -> None:
        """Create each certificate that is missing, ends soon or lacks a name. New connections use the new one."""
        authority = self._renew_authority()
        file = self._folder / "server.pem"
        server = KeyPair.read(file)
        if server is None or server.ends_soon(self._now()) or not self._is_current(server.certificate, authority):
            server = self._create_server(authority)
            server.write(file)
            log.info("certificate_created", expires=server.certificate.not_valid_after_utc.isoformat())
        if authority.pem != self.ca_certificate:
            write_secret(self._folder / "ca.crt", authority.pem.decode("ascii"))
            self.ca_certificate = authority.pem
        self.context.load_cert_chain(file)

    def _renew_authority(self) -> KeyPair:
        file = self._folder / "authority.pem"
        authority = KeyPair.read(file)
        permitted = _permitted_names(authority.certificate) if authority else PRIVATE_NETWORKS
        more = [_constraint(name) for name in self._names if not _is_permitted(name, permitted)]
        # A start with a slow clock must not replace the CA, so the begin of its time does not count.
        if authority and not authority.ends_soon(self._now()) and not more:
            return authority
        self.ca_was_replaced = authority is not None
        authority = self._create_authority([*permitted, *more])
        authority.write(file)
        return authority

    def _create_authority(self, permitted: list[x509.GeneralName]) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"pkgrepo trial CA {self._now():%Y-%m-%d}")])
        builder = (
            self._builder(key, subject, subject, self._now() + CA_LIFETIME)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(CERTIFICATE_SIGNING, critical=True)
            .add_extension(x509.NameConstraints(permitted, None), critical=True)
        )
        return KeyPair(key, builder.sign(key, SHA256()))

    def _create_server(self, authority: KeyPair) -> KeyPair:
        key, issuer = ec.generate_private_key(ec.SECP256R1()), authority.certificate
        subject = x509.Name([])  # It is not needed, and clients would hold it against the limits of names.
        end = min(self._now() + SERVER_LIFETIME, issuer.not_valid_after_utc)
        builder = (
            self._builder(key, subject, issuer.subject, end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(self._names), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
            )
        )
        return KeyPair(key, builder.sign(authority.key, SHA256()))

    def _builder(
        self, key: ec.EllipticCurvePrivateKey, subject: x509.Name, issuer: x509.Name, end: datetime
    ) -> x509.CertificateBuilder:
        """A certificate for servers. In the CA's certificate, the usage also limits what the CA can sign."""
        return (
            x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now() - BACKDATED)
            .not_valid_after(end)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )

    def _is_current(self, certificate: x509.Certificate, authority: KeyPair) -> bool:
        """Whether the certificate is by this CA, for these names, and not from the future of a wrong clock."""
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        try:
            certificate.verify_directly_issued_by(authority.certificate)
        except (InvalidSignature, ValueError):
            return False
        return set(names) == set(self._names) and certificate.not_valid_before_utc <= self._now()


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _constraint(name: x509.GeneralName) -> x509.GeneralName:
    """The constraint that permits a name; an address is a network of its own."""
    return x509.IPAddress(ip_network(name.value)) if isinstance(name, x509.IPAddress) else name


def _permitted_names(authority: x509.Certificate) -> Sequence[x509.GeneralName]:
    return authority.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or ()


def _is_permitted(name: x509.GeneralName, permitted: Iterable[x509.GeneralName]) -> bool:
    """Whether a constraint permits the name: the same host name or its parent, or a network with the address."""
    if isinstance(name, x509.IPAddress):
        networks = [each.value for each in permitted if isinstance(each.value, IPv4Network | IPv6Network)]
        return any(name.value in network for network in networks)
    return any(f".{name.value}".endswith(f".{each.value}") for each in permitted if isinstance(each, x509.DNSName))


def is_host(text: str) -> bool:
    """Whether the text is an address or a host name in ASCII, without scheme and port."""
    return _is_address(text) or _HOST_NAME.fullmatch(text) is not None


def server_names(host: str, names: Sequence[str]) -> list[str]:
    """The names by which other machines can reach a server that listens at `host`, and those of loopback.

    The first one is the best for addresses in messages: one of `names`, else an address, else the machine's name.
    """
    addresses = local_addresses() if is_wildcard(host) else [host]
    own = [name for name in (socket.gethostname(), socket.getfqdn()) if is_host(name)]
    return list(dict.fromkeys(name.lower() for name in (*names, *addresses, *own, *LOOPBACK)))


def is_wildcard(host: str) -> bool:
    return _is_address(host) and ip_address(host).is_unspecified


def local_addresses() -> Iterator[str]:
    """The addresses from which this machine reaches other machines."""
    for family, destination in _ROUTES:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as connection:  # There may be no such route.
            connection.connect((destination, 9))
            yield connection.getsockname()[0]


def authority(host: str, port: int) -> str:
    """A host and a port as in an address, with the brackets of IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_address(text: str) -> bool:
    try:
        return ip_address(text) is not None
    except ValueError:
        return False
