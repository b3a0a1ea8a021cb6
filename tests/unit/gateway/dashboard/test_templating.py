"""The cells of tables name their columns, because a phone shows no heading row."""

from markupsafe import Markup

from gateway.dashboard.templating import label_cells

HEADINGS = Markup('<th scope="col">Name</th><th><a href="?sort=id">Id &amp; "kind"</a></th>')


def test_a_cell_has_the_heading_of_its_column() -> None:
    rows = Markup('<tr><th scope="row">Anvil</th><td class="id">A</td></tr><tr><td>Trap</td><td>T</td></tr>')
    first, second = 'data-label="Name"', 'data-label="Id &amp; &quot;kind&quot;"'
    labelled = f'<tr><th scope="row">Anvil</th><td {second} class="id">A</td></tr>'
    assert label_cells(rows, HEADINGS) == f"{labelled}<tr><td {first}>Trap</td><td {second}>T</td></tr>"


def test_a_cell_below_a_hidden_heading_has_no_label() -> None:
    headings = Markup('<th scope="col"><span class="visually-hidden">Actions</span></th>')
    rows = Markup("<tr><td>…</td><td>more</td></tr>")
    assert label_cells(rows, headings) == rows


def test_an_empty_cell_has_no_label() -> None:
    rows = Markup("<tr><td>\n</td></tr>")
    assert label_cells(rows, HEADINGS) == rows


def test_escaped_text_in_a_cell_is_no_cell() -> None:
    rows = Markup("<tr><td>{}</td></tr>").format("<td>")
    assert label_cells(rows, HEADINGS) == '<tr><td data-label="Name">&lt;td&gt;</td></tr>'
