"""Who may import whom: the house's rules, read from the code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SERVICES = ("gateway", "auth_service", "catalog_service", "upload_service", "client_registry")
HOUSE = (*SERVICES, "common", "deploy")
MODULES = [path for folder in HOUSE for path in sorted((ROOT / folder).rglob("*.py"))]
# Which rooms may hold which driver; `deploy` and the tests may import all.
DRIVERS = {
    "motor": {"common/mongo/__init__.py", "common/mongo/schema.py"},
    "pymongo": {"common/mongo/__init__.py", "common/mongo/schema.py"},
    "redis": {"common/redis.py", "auth_service/throttle_store.py"},
    "aio_pika": {"common/events/broker.py"},
    "opentelemetry": {"common/telemetry/spans.py"},
    "obstore": {"upload_service/installers_s3.py", "upload_service/object_storage.py"},
}
# From the front of a service to its heart: a module imports only what stands further right.
ROOMS = ("__main__", "app", "routes", "keys", "domain", "settings", "model")
BESIDE_ROUTES = {"answers", "forms", "wire", "consumer", "dashboard", "documentation", "performing"}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=where)
def test_a_service_imports_itself_and_common_only(path: Path) -> None:
    folder = where(path).split("/")[0]
    allowed = {"common": {"common"}, "deploy": set(HOUSE)}.get(folder, {folder, "common"})
    strangers = {name.split(".")[0] for name in imports(path)} & set(HOUSE) - allowed
    assert not strangers


@pytest.mark.parametrize("path", MODULES, ids=where)
def test_a_driver_stays_in_its_room(path: Path) -> None:
    if where(path).startswith("deploy/"):
        return
    store = path.name.startswith("store") or path.stem.endswith("_store")
    for name in imports(path):
        driver = name.split(".")[0]
        in_a_store = store and driver in {"motor", "pymongo"}
        assert driver not in DRIVERS or in_a_store or where(path) in DRIVERS[driver], name


@pytest.mark.parametrize("path", [path for path in MODULES if where(path).split("/")[0] in SERVICES], ids=where)
def test_arrows_never_turn_back(path: Path) -> None:
    folder, *within = where(path).removesuffix(".py").split("/")
    own = _room("dashboard" if within[0] == "dashboard" else within[-1])
    for name in imports(path):
        if name.startswith(f"{folder}."):
            other = _room(name.split(".")[1])
            assert ROOMS.index(other) >= ROOMS.index(own), name


def test_common_stays_small() -> None:
    assert len({where(path).split("/")[1] for path in MODULES if where(path).startswith("common/")}) <= 27


@pytest.mark.parametrize("path", MODULES, ids=where)
def test_a_module_has_a_name_that_says_something(path: Path) -> None:
    assert path.stem not in {"util", "utils", "helper", "helpers", "misc", "base", "functions"}


def _room(stem: str) -> str:
    if stem in BESIDE_ROUTES:
        return "routes"
    return stem if stem in ROOMS else "domain"
