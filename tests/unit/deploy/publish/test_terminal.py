"""Text from outside is escaped: a terminal does not obey it, and nothing is hidden."""

import json
from io import StringIO

from rich.console import Console

from deploy.terminal import folding_table, json_text, print_line, show_progress, visible
from tests.support.tables import each

HOSTILE = ["\x1b]0;owned\x07", "\x9b31m", "a\rb", "a\nb", "a\x08b", "a\x7fb", "\u202e\u200bgnp", "a\u2028b", "\udcffb"]


@each("text", HOSTILE)
def test_control_and_hidden_characters_are_escaped(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(text).encode().decode("unicode_escape") == text


@each("text", ["Größer", "日本語 🙂", "10\u00a0MB", "日本\u3000語", "a\\b", "[red]:x:[/red]"])
def test_printable_text_is_unchanged(text: str) -> None:
    output = StringIO()
    print_line(Console(file=output, force_terminal=True, soft_wrap=True), text)
    assert output.getvalue().strip() == text


@each("terminal", [True, False])
@each("text", [*HOSTILE, "[red]:x:[/red]"])
def test_a_file_name_in_the_progress_is_escaped(text: str, terminal: bool) -> None:
    output = StringIO()
    console = Console(file=output, force_terminal=terminal, soft_wrap=True, width=200)
    with show_progress(console) as rows, rows(text) as row:
        row.start("sending", 10)
    assert visible(text) in output.getvalue()
    assert text.isprintable() or text not in output.getvalue()


def test_log_shows_checked_bytes_apart_from_copied_bytes() -> None:
    output = StringIO()
    with show_progress(Console(file=output, soft_wrap=True)) as rows, rows("Installers") as row:
        row.start("checking", 2000)
        row.update(2000)
        row.start("copying", 500)
        row.update(250)
    lines = ["checking 2.0 kB", "100 %", "copying 500 bytes", "50 %"]
    assert output.getvalue().splitlines() == [f"Installers: {line}" for line in lines]


@each("text", HOSTILE)
def test_json_is_printable_and_keeps_the_texts(text: str) -> None:
    text_of_json = json_text({"file": text})
    assert all(line.isascii() and line.isprintable() for line in text_of_json.split("\n"))
    assert json.loads(text_of_json) == {"file": text}


def test_a_table_cuts_no_cell() -> None:
    output = StringIO()
    table = folding_table("First", "Next")
    table.add_row("a" * 30, "b" * 50)
    Console(file=output, width=40).print(table)
    assert (output.getvalue().count("a"), output.getvalue().count("b")) == (30, 50)
