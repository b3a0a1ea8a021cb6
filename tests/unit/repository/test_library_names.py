"""Private names of libraries: each is used in one module, and exists in the installed version."""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from tests.support.tables import each

ROOT = Path(__file__).parents[3]
PRODUCT = ("common", "gateway", "auth_service", "catalog_service", "upload_service", "client_registry", "deploy")
PRIVATE = re.compile(r"_[a-z][A-Za-z_]*|_[A-Z][A-Za-z]*")
OWN_OBJECTS = {"self", "cls"}
# By module of the product: the classes and modules of libraries with private or undocumented names that it uses.
NAMES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "common/http/aiohttp_private.py": {
        "aiohttp:BaseConnector": ("_create_connection",),
        "aiohttp.web:AppRunner": ("_make_server",),
        "aiohttp.web:Request": ("_match_info", "_prepare_hook"),
        "aiohttp.web:Server": ("_kwargs", "_loop"),
        "aiohttp.web:RequestHandler": (
            "_current_request",
            "_loop",
            "_manager",
            "_messages",
            "_parser",
            "_read_bufsize",
            "_reading_paused",
            "_request_count",
            "_waiter",
        ),
        "aiohttp.web:Response": ("_eof_sent", "_keep_alive"),
        "aiohttp.http": ("HttpRequestParser",),
        "aiohttp.web_protocol": ("MAX_MSG_QUEUE_SIZE", "_ErrInfo"),
    },
    "common/service_client/transport.py": {
        "aiohttp:BaseConnector": ("connect",),
        "aiohttp": ("ClientRequest",),
        "aiohttp.client_proto:ResponseHandler": ("read", "set_response_params"),
    },
    "common/events/broker.py": {"aio_pika:Channel": ("get_underlay_channel",)},
    "common/redis.py": {
        "redis.asyncio:ConnectionPool": ("get_connection",),
        "redis.asyncio:Connection": ("read_response", "send_command"),
    },
    "common/telemetry/__init__.py": {"structlog.contextvars": ("STRUCTLOG_KEY_PREFIX",)},
}
USES = [(module, owner, name) for module, owners in NAMES.items() for owner, names in owners.items() for name in names]
BOUNDED = ("aiohttp", "redis", "aio-pika", "structlog")


def sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in PRODUCT:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


@each(("module", "owner", "name"), USES, ids=str)
def test_a_name_of_a_library_exists_and_its_module_uses_it(module: str, owner: str, name: str) -> None:
    path, _, class_name = owner.partition(":")
    library = import_module(path)
    holder = getattr(library, class_name) if class_name else library
    # Some classes set the name on instances only.
    assert hasattr(holder, name) or f"self.{name} =" in inspect.getsource(holder)
    assert re.search(rf"\b{name}\b", (ROOT / module).read_text(encoding="utf-8"))


def test_no_other_module_uses_a_private_name_of_another_object() -> None:
    unknown = []
    for module, tree in sources():
        allowed = {name for names in NAMES.get(module, {}).values() for name in names}
        own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and of_own_object(node)}
        own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr) and not of_own_object(node):
                if node.attr not in allowed | own:
                    unknown.append(f"{module}: {ast.unparse(node)}")
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                foreign = node.module.split(".")[0] not in PRODUCT
                names = {alias.name for alias in node.names if PRIVATE.fullmatch(alias.name)}
                unknown += [f"{module}: {name}" for name in names - allowed if foreign]
    assert unknown == []


def of_own_object(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in OWN_OBJECTS


@each("library", BOUNDED)
def test_a_library_whose_private_names_are_used_has_an_upper_bound(library: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (bound,) = [
        match[1]
        for requirement in project["dependencies"]
        if (match := re.fullmatch(rf"{library}>=[\d.]+,<([\d.]+)", requirement))
    ]
    assert numbers(version(library)) < numbers(bound)


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(".")]
