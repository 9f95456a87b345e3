"""A table as data, and the four ways to print it: terminal, Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from phasezero.results.layout import fit

NOTHING = "-"


@dataclass(frozen=True)
class Spread:
    """A mean with its sample standard deviation, where there is one; `sign` shows the plus of a difference."""

    mean: float
    deviation: float | None = None
    note: str = ""
    sign: bool = False
    digits: int = 2

    def __str__(self) -> str:
        mean = f"{self.mean:{'+' * self.sign}.{self.digits}f}"
        spread = "" if self.deviation is None else f" ± {self.deviation:.{self.digits}f}"
        return mean + spread + (f" ({self.note})" if self.note else "")


Cell = str | Spread


@dataclass(frozen=True)
class Grid:
    """Headings, rows, a caption. The first `words` columns hold text, with `remarks` the last too; others numbers."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    words: int = 1
    remarks: bool = False

    def holds_words(self, place: int) -> bool:
        return place < self.words or (self.remarks and place == len(self.header) - 1)

    def texts(self) -> list[list[str]]:
        return [[str(cell) for cell in row] for row in self.rows]

    def has_deviation(self, column: int) -> bool:
        return any(spread.deviation is not None for spread in self.spreads(column))

    def spreads(self, column: int) -> list[Spread]:
        return [cell for row in self.rows if isinstance(cell := row[column], Spread)]


@dataclass(frozen=True)
class _Drawn:
    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        # A number that must break does so before its "±".
        lines = [
            [cell.replace("± ", "±") for cell in line] for line in (self.grid.header, *self.grid.texts())
        ]
        for places, (header, *rows) in fit(lines, self.grid.words, options.max_width):
            table = Table(box=SIMPLE_HEAD, padding=0, show_edge=False)
            for place, name in zip(places, header, strict=True):
                justify: Literal["left", "right"] = "left" if self.grid.holds_words(place) else "right"
                table.add_column(Text(name), justify=justify, overflow="fold")
            for row in rows:
                table.add_row(*map(Text, row))  # Text: a [name] is not markup
            yield table
        if self.grid.caption:
            yield Text(self.grid.caption, style="table.caption")


def terminal(grid: Grid) -> RenderableType:
    """Drawn in the console's width, in several tables if they must; no number is cut."""
    return _Drawn(grid)


def markdown(grid: Grid) -> str:
    """Ends in a newline."""
    rule = ["---" if grid.holds_words(place) else "---:" for place in range(len(grid.header))]
    lines = [list(grid.header), rule, *grid.texts()]
    escaped = [[_markdown_text(cell).replace("|", r"\|") for cell in line] for line in lines]
    table = "".join(f"| {' | '.join(line)} |\n" for line in escaped)
    return f"{table}\n{_markdown_text(grid.caption)}\n" if grid.caption else table


def _markdown_text(text: str) -> str:
    return _one_line(text).replace("<", "&lt;")  # it could begin HTML, which Markdown lets through


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


_LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    # Without a font encoding of their own these print as other characters.
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex_text(text: str) -> str:
    """Any text, made safe for LaTeX's text mode."""
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


def _latex_cell(cell: Cell) -> str:
    if cell == NOTHING:
        return "--"
    text = str(cell)
    number, space, rest = text.partition(" ")
    if isinstance(cell, Spread) and number.startswith(("-", "+")):
        return f"${number}${space}{latex_text(rest)}"  # a minus, which in text would be a hyphen
    return latex_text(text)


_WRAPPED, _LINE, _PAGE = 24, 72, 40
"""Characters from which on a column of words is broken, that fit a line of text; rows that fit a page."""


def latex(grid: Grid) -> str:
    """A table in the style of booktabs, no wider than the text and over several pages if it must."""
    texts = [list(grid.header), *grid.texts()]
    widths = [max(len(line[place]) for line in texts) for place in range(len(grid.header))]
    wrapped = [grid.holds_words(place) and width > _WRAPPED for place, width in enumerate(widths)]
    columns = "".join(
        (rf"p{{{_WRAPPED / 2:g}em}}" if wrapped[place] else "l") if grid.holds_words(place) else "r"
        for place in range(len(widths))
    )
    needed = sum(min(width, _WRAPPED) if wrap else width for width, wrap in zip(widths, wrapped, strict=True))
    wide, long = needed + 2 * len(widths) > _LINE, len(grid.rows) > _PAGE

    def line(cells: Sequence[Cell]) -> str:
        text = " & ".join(map(_latex_cell, cells)) + r" \\"
        # The command before would take these for an option: \\[2mm], \\*, \midrule[1pt].
        return f"{{}}{text}" if text.startswith(("[", "*")) else text

    caption = [rf"\caption{{{latex_text(grid.caption)}}}"] if grid.caption else []
    head = [r"\toprule", line(grid.header), r"\midrule"]
    body = [*map(line, grid.rows), r"\bottomrule"]
    if long:
        size = r"\tiny" if wide else r"\small"
        lines = [
            r"% needs \usepackage{booktabs,longtable}",
            rf"{{{size}\setlength{{\tabcolsep}}{{2pt}}",
            rf"\begin{{longtable}}{{{columns}}}",
            *head,
            r"\endhead",
            *body,
            *(rf"{one}\\" for one in caption),
            r"\end{longtable}}",
        ]
    else:
        tabular = [rf"\begin{{tabular}}{{{columns}}}", *head, *body, r"\end{tabular}"]
        if wide:
            tabular = [r"\resizebox{\linewidth}{!}{%", *tabular[:-1], rf"{tabular[-1]}}}"]
        lines = [
            rf"% needs \usepackage{{booktabs{',graphicx' if wide else ''}}}",
            r"\begin{table}",
            r"\centering",
            *tabular,
            *caption,
            r"\end{table}",
        ]
    return "\n".join(lines) + "\n"


def comma_separated(grid: Grid) -> str:
    """Numbers for programs: full precision, deviations and notes in columns of their own, an empty field for none."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [_fields(grid, place) for place in range(len(grid.header))]
    writer.writerows([field for fields in line for field in fields] for line in zip(*columns, strict=True))
    return text.getvalue()


def _fields(grid: Grid, place: int) -> list[list[object]]:
    """A column of the table as one to three columns of the file, line by line from the heading on."""
    name = grid.header[place]
    lines: list[list[object]] = [[name, f"{name} std", f"{name} note"]]
    for cell in (row[place] for row in grid.rows):
        if isinstance(cell, Spread):
            deviation = "" if cell.deviation is None else round(cell.deviation, 6)
            lines.append([round(cell.mean, 6), deviation, cell.note])
        else:
            lines.append(["" if cell == NOTHING else _no_formula(_one_line(cell)), "", ""])
    noted = any(spread.note for spread in grid.spreads(place))
    return [[line[0], *line[1:2] * grid.has_deviation(place), *line[2:] * noted] for line in lines]


def _no_formula(text: str) -> str:
    """A spreadsheet would compute a name such as `=1+1`; a number stays one, whatever its sign."""
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text
    return text


TEXT_FORMATS: dict[str, Callable[[Grid], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
}
SUFFIXES = {"markdown": ".md", "latex": ".tex", "csv": ".csv"}
FORMATS = ("terminal", *TEXT_FORMATS)


def print_grid(grid: Grid, form: str, console: Console) -> None:
    """On the terminal as a drawn table, else the text as it is, to be piped."""
    if form == "terminal":
        console.print(terminal(grid))
    else:
        print(TEXT_FORMATS[form](grid), end="")
