"""How much is measured, and with what: the same for every part of a run."""

from dataclasses import dataclass, field

from tests.bench.servers.reference import Beside
from tests.support.servers.stores import Stores


@dataclass(frozen=True)
class Scale:
    """The size of a run. Sizes of files are MiB, times are seconds."""

    packages: int  # of the tenant that requests are made to
    catalogs: tuple[int, ...]  # packages of each
    large: tuple[int, int, int]  # packages, clients and entries of the blacklist of a large tenant
    requests: int  # for the figure of the cheapest request; dearer ones are sent less often
    clients: int
    watched: float  # seconds for each of the tails
    installer: int
    crowd: tuple[int, int, int]  # how many files, the size of each, and that of one more
    rush: int  # requests at one instant
    endless: int  # callers who never end
    sign_ins: int  # of each kind that is refused


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
)
# For a look at whether everything works: its figures mean nothing.
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
)


@dataclass(frozen=True)
class Run:
    """What all parts share: the stores, the servers beside, and which tenants have their packages already."""

    scale: Scale
    stores: Stores
    beside: Beside
    seeded: set[str] = field(default_factory=set)
