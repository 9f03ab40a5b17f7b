"""What a study says: a table, a picture, notes, and what it lacked; and the files it becomes."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dspark_sim.files import write_text
from dspark_sim.results.canvas import FORMATS
from dspark_sim.results.plots_study import Panel, draw_study

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Study:
    """One study.

    Attributes:
        name: its name on the command line.
        title: what it asks, in words.
        figure: which figure or table of the paper it repeats.
        rows: the table, raw values; all rows have the same keys.
        panels: the picture.
        notes: what must be known to read it.
        missing: drafters or records that it lacked, in words.
    """

    name: str
    title: str
    figure: str
    rows: Sequence[Row]
    panels: Sequence[Panel]
    notes: Sequence[str] = ()
    missing: Sequence[str] = field(default_factory=tuple)

    def document(self) -> dict[str, Any]:
        """The study as JSON."""
        return {
            "study": self.name,
            "title": self.title,
            "figure": self.figure,
            "rows": list(self.rows),
            "notes": list(self.notes),
            "missing": list(self.missing),
        }

    def markdown(self) -> str:
        """The table as Markdown, three decimals."""
        if not self.rows:
            return ""
        keys = list(self.rows[0])
        lines = [keys, ["---"] * len(keys), *([cell(row[key]) for key in keys] for row in self.rows)]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

    def csv(self) -> str:
        """The table as CSV, all digits."""
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=list(self.rows[0]) if self.rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return out.getvalue()

    def write(self, folder: Path, source: str = "") -> list[Path]:
        """Write NAME.csv, NAME.md and, where there is something to draw, NAME.png and NAME.svg.

        Args:
            folder: where.
            source: whose drafters and texts the picture is of, for its footer.

        Returns:
            The paths.
        """
        if not self.rows:
            return []
        paths = [folder / f"{self.name}.{kind}" for kind in ("csv", "md")]
        write_text(paths[0], self.csv())
        write_text(paths[1], self.markdown())
        if self.panels:
            for kind in FORMATS:
                paths.append(folder / f"{self.name}.{kind}")
                draw_study(f"{self.title} ({self.figure})", self.panels, paths[-1], source)
        return paths


def cell(value: Any) -> str:
    """One value for people: three decimals, thousands, a dash for what is not known."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
