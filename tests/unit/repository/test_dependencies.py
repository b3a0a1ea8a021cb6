"""Dependencies: hashes, licences, private names of libraries, and vendored files."""

import ast
import hashlib
import inspect
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from tests.support import licenses
from tests.support.house import PACKAGES, trees
from tests.support.tables import each

ROOT = Path(__file__).parents[3]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
ALLOWED = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0"}
ROW = re.compile(r"^\| ([a-z0-9-]+) \| (\S+) \| ([^|]+) \|$", re.MULTILINE)


def words(licence: str) -> set[str]:
    """The licences in an expression."""
    return set(re.sub(r"[()]", "", re.sub(r" (?:AND|OR) ", "|", licence)).split("|"))


def listed() -> dict[str, tuple[str, str]]:
    """The version and the licence of each package in the listing."""
    rows = ROW.findall(licenses.LISTING.read_text(encoding="utf-8"))
    return {package: (version, licence) for package, version, licence in rows}


def test_the_listing_has_every_locked_package_in_its_version() -> None:
    assert {package: version for package, (version, _) in listed().items()} == licenses.locked()


@each("package", licenses.locked())
def test_a_package_is_listed_under_its_own_licence_which_is_allowed(package: str) -> None:
    _, licence = listed()[package]
    assert licence == licenses.licence_of(package)
    assert words(licence) <= ALLOWED


@each("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_locked_package_has_hashes_and_no_other_origin(lock: Path) -> None:
    text = lock.read_text()
    packages = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
    assert packages
    assert all("--hash=sha256:" in package for package in packages)
    assert not re.findall(r"^(?:-e|--|\S+ @|git\+)", text, re.MULTILINE)
    assert "://" not in text


def test_every_installation_verifies_the_hashes() -> None:
    files = (ROOT / "Makefile", ROOT / "deploy" / "Dockerfile")
    lines = [line for file in files for line in file.read_text().splitlines()]
    installs = [line for line in lines if "/pip install" in line]
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation " in line for line in installs)
    assert {lock.name for lock in LOCKS} == {line.split()[-1] for line in installs if "--require-hashes" in line}


@each("group", ["tools", "fuzz"])
def test_every_tool_is_locked(group: str) -> None:
    lock = (ROOT / f"requirements-{group}.lock").read_text()
    for tool in tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"][group]:
        name = re.match(r"[a-z0-9-]+", tool)
        assert name is not None
        assert f"\n{name[0]}==" in f"\n{lock}"


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
    for module, tree in trees().items():
        allowed = {name for names in NAMES.get(module, {}).values() for name in names}
        own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and of_own_object(node)}
        own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr) and not of_own_object(node):
                if node.attr not in allowed | own:
                    unknown.append(f"{module}: {ast.unparse(node)}")
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                foreign = node.module.split(".")[0] not in PACKAGES
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


GATEWAY = Path(__file__).parents[3] / "gateway"
VENDOR = GATEWAY / "vendor"
FOLDERS = [GATEWAY / "dashboard" / name for name in ("templates", "static")]
PAGES = sorted(path for folder in FOLDERS for path in folder.iterdir() if path.suffix in {".html", ".js", ".css"})
OURS = {"CHECKSUMS", "README.md"}

# A URL with a host that a browser would load: `https://…`, or `//…` after a quote or a bracket. Templates have URLs
# in their texts, too; there, browsers load only the URLs in attributes.
OFF_ORIGIN = re.compile(r"""\b(?:https?|wss?|ftp):|["'(]\s*//|@import""", re.IGNORECASE)
FOLLOWED = re.compile(r"""\b(?:src|href|action|content|srcset|hx-\w+)\s*=\s*["'][^"']*""", re.IGNORECASE)
REFERENCE = re.compile(r"""(?:src|href)="([^"]*)\"""")


def checksums() -> dict[str, str]:
    """The SHA-256 of every vendored file, by its path in the vendor folder."""
    lines = (VENDOR / "CHECKSUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def test_vendored_files_match_their_checksums() -> None:
    checksums_found = {name: hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() for name in checksums()}
    assert checksums_found == checksums()


def test_vendored_files_are_the_listed_ones_without_source_maps() -> None:
    files = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.is_file()}
    assert files - OURS == set(checksums())
    assert not [name for name in files if name.endswith(".map")]


@each("page", PAGES, ids=lambda page: page.name)
def test_pages_load_nothing_from_another_origin(page: Path) -> None:
    text = page.read_text()
    followed = "\n".join(FOLLOWED.findall(text)) if page.parent.name == "templates" else text
    assert OFF_ORIGIN.findall(followed) == []


@each("page", [page for page in PAGES if page.suffix == ".html"], ids=lambda page: page.name)
def test_every_asset_of_a_page_exists(page: Path) -> None:
    assets = {*PAGES, *(VENDOR / "swagger-ui").iterdir()}
    required = [address for address in REFERENCE.findall(page.read_text()) if "docs/assets/" in address]
    assert {address.removeprefix("docs/assets/") for address in required} <= {asset.name for asset in assets}


@each("page", [page for page in PAGES if page.suffix == ".html"], ids=lambda page: page.name)
def test_pages_have_no_inline_script_or_style(page: Path) -> None:
    assert re.findall(r"<style|<script>|\s(?:style|on[a-z]+)=", page.read_text()) == []


def test_swagger_ui_uses_no_online_validator() -> None:
    assert "validatorUrl: null" in (GATEWAY / "dashboard" / "static" / "docs.js").read_text()
