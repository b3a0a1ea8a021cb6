"""The matrix of roles and operations, from the two tables. `python -m tests.support.role_matrix` writes it."""

from pathlib import Path

from common.auth.roles import PERMISSIONS, Permission, Role
from gateway.operations import OPERATIONS

DOCUMENT = Path(__file__).parents[2] / "deploy" / "docs" / "access.md"
START, END = "<!-- matrix -->\n", "<!-- end of matrix -->\n"


def role_matrix() -> str:
    """A Markdown table: one row for each permission with its operations, one column for each role."""
    lines = [f"| Permission | Operations | {' | '.join(Role)} |", f"|---|---|{':-:|' * len(Role)}"]
    for permission in Permission:
        names = dict.fromkeys(row.name for row in OPERATIONS if row.permission is permission)
        if permission is not Permission.NONE and names:
            marks = " | ".join("✓" if permission in PERMISSIONS[role] else "" for role in Role)
            lines.append(f"| `{permission}` | {' '.join(f'`{name}`' for name in names)} | {marks} |")
    return "\n".join(lines) + "\n"


def with_matrix(text: str) -> str:
    """The document with the current matrix between the two marks."""
    before, _, rest = text.partition(START)
    return f"{before}{START}{role_matrix()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    DOCUMENT.write_text(with_matrix(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
