"""The size of a run, and the objects that its parts share."""

from dataclasses import dataclass, field

from tests.bench.servers.reference import ReferenceServers
from tests.support.servers.stores import Stores


@dataclass(frozen=True)
class Scale:
    """The size of a run. Sizes of files are MiB, times are seconds."""

    packages: int  # of the tenant that receives the requests
    catalogs: tuple[int, ...]  # packages of each
    large: tuple[int, int, int]  # packages, clients and entries of the blacklist of a large tenant
    requests: int  # of the cheapest request; others are sent less often
    clients: int
    watched: float  # seconds for each of the tails
    installer: int
    crowd: tuple[int, int, int]  # the number and size of small files, and the size of a large one
    rush: int  # simultaneous requests
    endless: int  # endless callers
    sign_ins: int  # of each rejected kind
    fleet: tuple[int, float]  # machines, and seconds of their searches
    upgrade: tuple[int, int, int]  # machines at once, programs of each, and machines that start in the same moment


FULL = Scale(
    packages=1000,
    catalogs=(100, 1000, 10_000, 100_000),
    large=(10_000, 5000, 2000),
    requests=10_000,
    clients=500,
    watched=20,
    installer=1024,
    crowd=(50, 64, 2048),
    rush=5000,
    endless=500,
    sign_ins=150,
    fleet=(1000, 60),
    upgrade=(33, 200, 300),
)
# Checks only that everything works; its results mean nothing.
TINY = Scale(
    packages=20,
    catalogs=(20,),
    large=(20, 30, 10),
    requests=100,
    clients=5,
    watched=0.5,
    installer=8,
    crowd=(2, 8, 8),
    rush=20,
    endless=0,
    sign_ins=2,
    fleet=(5, 0.5),
    upgrade=(3, 4, 6),
)


@dataclass(frozen=True)
class Run:
    """The shared objects of all parts: the stores, the reference servers, and the seeded tenants."""

    scale: Scale
    stores: Stores
    reference: ReferenceServers
    s3_program: str = ""  # moto's server without one
    seeded: set[str] = field(default_factory=set)
