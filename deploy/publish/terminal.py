"""What strangers wrote, as people and programs may be shown it: names and contents of files, and servers' answers."""

import json
from typing import Any
from unicodedata import category

from rich.console import Console
from rich.text import Text


def visible(text: object) -> str:
    r"""A text in which what a terminal would obey or hide can be seen: control characters, those that turn the line
    around, and bytes that are no UTF-8. They stand there as `\x1b` and the like. Spaces of any width stay as they are.
    """

    def shown(one: str) -> str:
        return one if one.isprintable() or category(one) == "Zs" else one.encode("unicode_escape").decode()

    return "".join(map(shown, str(text)))


def say(console: Console, text: str, style: str = "") -> None:
    """A line for people, in which no part of the text means anything to rich either."""
    console.print(Text(visible(text), style))


def json_text(document: Any) -> str:
    """JSON that any terminal shows and whose texts are whole: ASCII, all else in escapes."""
    return json.dumps(document, indent=2).replace("\x7f", "\\u007f")
