"""The size of the product and the ways between its parts: `python -m tests.support.house`.

The figures of `tests/unit/repository/test_architecture.py`. Code is each line that holds a token of the program: no
blank line, docstring, comment or import.
"""

import ast
import io
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from pathlib import Path, PurePath

ROOT = Path(__file__).parents[2]
SERVICES = ("gateway", "auth_service", "catalog_service", "upload_service", "client_registry")
PACKAGES = (*SERVICES, "common", "deploy")
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@cache
def sources() -> Mapping[str, str]:
    """The text of each product module, by its path."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@cache
def trees() -> Mapping[str, ast.Module]:
    return {module: ast.parse(text) for module, text in sources().items()}


def count_code(module: str) -> int:
    """The number of lines of code in a module."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(sources()[module]).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.Expr) and _is_text(node.value)):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _is_text(node: ast.expr) -> bool:
    """Whether an expression is a text, which as a statement is a docstring."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def imported_names(module: str) -> Iterator[str]:
    """The names that a module imports, such as `common.errors.Problem`."""
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def folder_cycles() -> Sequence[tuple[str, str]]:
    """The pairs of folders of one service that import each other, such as `("gateway/auth", "gateway/caching")`."""
    edges: set[tuple[str, str]] = set()
    for module in sources():
        package, *within = PurePath(module).parts
        if package not in SERVICES or len(within) < 2:
            continue
        for name in imported_names(module):
            parts = name.split(".")
            if (
                parts[0] == package
                and len(parts) > 2
                and (ROOT / package / parts[1]).is_dir()
                and parts[1] != within[0]
            ):
                edges.add((f"{package}/{within[0]}", f"{package}/{parts[1]}"))
    return sorted(edge for edge in edges if edge[0] < edge[1] and edge[::-1] in edges)


def service_calls() -> Mapping[str, set[str]]:
    """The services that each service calls, by `open_service(…, service="…")` in its modules.

    The gateway calls all of them, by a variable.
    """
    calls: dict[str, set[str]] = {service: set() for service in SERVICES}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open_service":
                names = [word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)]
                calls[module.split("/")[0]].update(map(str, names))
    return calls


def service_circles() -> Sequence[tuple[str, ...]]:
    """The circles of two or more services that call each other, each once, from its first service by name on."""
    calls = service_calls()
    circles = []
    for length in range(2, len(SERVICES) + 1):
        for circle in permutations(SERVICES, length):
            pairs = zip(circle, (*circle[1:], circle[0]), strict=True)
            if circle[0] == min(circle) and all(callee in calls[caller] for caller, callee in pairs):
                circles.append(circle)
    return circles


def figures() -> Mapping[str, int]:
    """The measures of the product, by their names."""
    return {
        "lines of code": sum(map(count_code, sources())),
        "lines": sum(len(text.splitlines()) for text in sources().values()),
        "modules": len(sources()),
        "circles between services": len(service_circles()),
        "pairs of folders that import each other": len(folder_cycles()),
    }


if __name__ == "__main__":
    for name, number in figures().items():
        print(f"{number:7,} {name}")  # noqa: T201  its output
    for circle in service_circles():
        print("circle:", " → ".join((*circle, circle[0])))  # noqa: T201
    for pair in folder_cycles():
        print("import each other:", *pair)  # noqa: T201
