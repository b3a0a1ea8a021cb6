"""The rules of imports between modules, and the size of the product, checked in the source."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import PurePath

from tests.support.house import (
    PACKAGES,
    SERVICES,
    figures,
    folder_cycles,
    imported_names,
    service_circles,
    sources,
)

MODULES = list(sources())
# Modules besides stores that may import a driver. `deploy` and the tests may import all drivers.
DRIVERS = {
    "motor": {"common/mongo/__init__.py", "common/mongo/schema.py", "common/work.py"},
    "pymongo": {"common/mongo/__init__.py", "common/mongo/schema.py", "common/work.py"},
    "redis": {"common/redis.py", "auth_service/users/throttle_store.py"},
    "aio_pika": {"common/events/broker.py"},
    "opentelemetry": {"common/telemetry/otel.py"},
    "obstore": {"upload_service/storage/s3.py"},
}
# The layers of a service. A module imports its own layer and the layers to its right.
LAYERS = ("__main__", "app", "routes", "app_keys", "domain", "store", "model")
ROUTE_MODULES = {"dashboard", "execute", "forms", "routes"}
MODEL_MODULES = {"model", "settings", "operations", "gates", "plan"}


@cache
def imports() -> Mapping[str, Sequence[str]]:
    """The names that each module imports, by the path of the module."""
    return {module: [*imported_names(module)] for module in MODULES}


def may_import(module: str, name: str) -> bool:
    """Whether a module may import this package of the product."""
    package = module.split("/", maxsplit=1)[0]
    allowed = {"common": {"common"}, "deploy": set(PACKAGES)}.get(package, {package, "common"})
    return name.split(".", maxsplit=1)[0] not in set(PACKAGES) - allowed


def may_use_driver(module: str, name: str) -> bool:
    driver, stem = name.split(".", maxsplit=1)[0], PurePath(module).stem
    if driver not in DRIVERS or module.startswith("deploy/") or module in DRIVERS[driver]:
        return True
    return driver in {"motor", "pymongo"} and (stem.startswith("store") or stem.endswith("_store"))


def keeps_the_layers(module: str, name: str) -> bool:
    package, *within = module.removesuffix(".py").split("/")
    if package not in SERVICES or not name.startswith(f"{package}."):
        return True
    imported = module_of(name).split("/")[1:]
    return not imported or LAYERS.index(layer(imported)) >= LAYERS.index(layer(within))


def module_of(name: str) -> str:
    """The path of an imported module without suffix; the import may name an object in the module."""
    path = name.replace(".", "/")
    while f"{path}.py" not in MODULES and f"{path}/__init__.py" not in MODULES:
        path = path.rpartition("/")[0]
    return path


def layer(path: Sequence[str]) -> str:
    """The layer of a module, by its path in the service."""
    if path[0] in {"__main__", "app", "app_keys"}:
        return path[0]
    if ROUTE_MODULES & set(path):
        return "routes"
    if "outgoing" in path or any(part == "store" or part.endswith("_store") for part in path):
        return "store"
    return "model" if MODEL_MODULES & set(path) else "domain"


def assert_no_violation(allows: Callable[[str, str], bool]) -> None:
    uses = [(module, name) for module, names in imports().items() for name in names]
    wrong = [f"{module} imports {name}" for module, name in uses if not allows(module, name)]
    assert not wrong, "\n".join(wrong)


def test_a_service_imports_itself_and_common_only() -> None:
    assert_no_violation(may_import)


def test_only_stores_and_connections_import_a_driver() -> None:
    assert_no_violation(may_use_driver)


def test_a_module_imports_no_layer_before_its_own() -> None:
    assert_no_violation(keeps_the_layers)


def test_a_folder_has_at_most_twelve_modules() -> None:
    modules = [path for path in MODULES if not path.endswith("__init__.py")]
    folders = Counter(PurePath(module).parent.as_posix() for module in modules)
    assert {folder: count for folder, count in folders.items() if count > 12} == {}


def test_a_module_has_at_most_400_lines() -> None:
    lines = {module: len(text.splitlines()) for module, text in sources().items()}
    assert {module: count for module, count in lines.items() if count > 400} == {}


def test_common_has_at_most_thirteen_entries() -> None:
    entries = {module.split("/")[1] for module in MODULES if module.startswith("common/")} - {"__init__.py"}
    assert len(entries) <= 13


def test_a_module_has_a_specific_name() -> None:
    vague = {"util", "utils", "helper", "helpers", "misc", "base", "functions"}
    assert [module for module in MODULES if PurePath(module).stem in vague] == []


# Lower a limit after a change.
LIMITS = {"lines of code": 26_990, "lines": 43_540, "modules": 292}


def test_the_product_does_not_grow_unseen() -> None:
    assert {name: number for name, number in figures().items() if number > LIMITS.get(name, number)} == {}


def test_no_services_call_each_other_in_a_circle() -> None:
    assert service_circles() == []


def test_no_two_folders_of_a_service_import_each_other() -> None:
    assert folder_cycles() == []
