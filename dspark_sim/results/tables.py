"""Text tables for people: right-aligned numbers, a header with units, footnotes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WIDTH = 100  # columns of text; what a terminal and a mail still show unbroken


def text_table(columns: Mapping[str, str], rows: Sequence[Mapping[str, str]], width: int = WIDTH) -> str:
    """Return ``rows`` as a table of plain text, long words folded to stay within ``width`` columns.

    Args:
        columns: header -> alignment, "<" or ">". A newline in a header breaks it (name over unit).
        rows: one mapping header -> cell per line.
        width: the most columns of text.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for header, align in columns.items():
        table.add_column(Text(header), justify="right" if align == ">" else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[header]) for header in columns))
    console = Console(width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())
