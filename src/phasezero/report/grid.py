"""A table as data, and its four output formats: terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

from phasezero.validation import no_formula, shorten

NOTHING = "-"

# After a space, the / or + of a name, or the comma before a setting ("lucir+cwd/cifar100/b50s10,epochs=3"). A number
# keeps its sign.
_BREAK = re.compile(r"(?<= )|(?<=\w[/+])|(?<=\w,)(?=[a-z])")
_KEPT = "\u00a0"  # a space that is no place to break a line
_LONGEST_NAME = 160  # characters in a terminal; a list of classes in a name has hundreds


@dataclass(frozen=True)
class Spread:
    """A mean with an optional sample standard deviation; `sign` shows the plus of a difference."""

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
    """Headings, rows and a caption. The first `words` columns (with `remarks` also the last) are text, not numbers.

    A terminal that is too narrow leaves out `spare` columns. Columns without a number are left out in every terminal.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    words: int = 1
    remarks: bool = False
    spare: Sequence[int] = ()

    def holds_words(self, place: int) -> bool:
        return place < self.words or (self.remarks and place == len(self.header) - 1)

    def lines(self) -> list[list[str]]:
        """Return the cells as text, line by line from the heading on."""
        return [list(self.header), *([str(cell) for cell in row] for row in self.rows)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Draw the table in the console's width, in several parts if needed; no number is cut."""
        shown, left_out = self._columns(options.max_width)
        header, *rows = self.lines()
        lines = [[header[place] for place in shown]]
        lines += [[self._short(row[place], place) for place in shown] for row in rows]
        for places, (header, *rows) in fit(lines, self.words, options.max_width, remarks=self.remarks):
            table = Table(box=SIMPLE_HEAD, padding=0, show_edge=False)
            for place, name in zip(places, header, strict=True):
                justify: Literal["left", "right"] = "left" if self.holds_words(shown[place]) else "right"
                table.add_column(Text(name.replace(_KEPT, " ")), justify=justify, overflow="fold")
            for row in rows:
                table.add_row(*(Text(cell.replace(_KEPT, " ")) for cell in row))  # Text: a [name] is not markup
            yield table
        narrow = f"Not shown at this width: {', '.join(left_out)}." if left_out else ""
        if caption := " ".join(filter(None, [self.caption, narrow])):
            yield Text(caption, style="table.caption")

    def _short(self, cell: str, place: int) -> str:
        if self.holds_words(place):
            return shorten(cell, _LONGEST_NAME)
        return re.sub(r" (?!\()", _KEPT, cell.replace(" ± ", " ±"))  # a number is not broken, except before its note

    def _columns(self, width: int) -> tuple[list[int], list[str]]:
        """Return the columns to draw in a width, and the headings of those that are left out for it."""
        lines = self.lines()
        used = [p for p in range(len(self.header)) if p < self.words or any(line[p] != NOTHING for line in lines[1:])]
        widths = {place: max(len(self._short(line[place], place)) for line in lines) for place in used}
        for place in used[: self.words]:
            widths[place] = min(widths[place], width * 2 // 5)  # a longer name is broken
        spare = [place for place in self.spare if place in used]
        kept: list[int] = []
        for count in range(len(spare), -1, -1):
            kept = [spare[round(i * (len(spare) - 1) / max(count - 1, 1))] for i in range(count)]
            shown = [place for place in used if place not in spare or place in kept]
            if sum(widths[place] + 1 for place in shown) - 1 <= width:
                break
        return shown, [self.header[place] for place in spare if place not in kept]


def fit(
    lines: Sequence[Sequence[str]], words: int, width: int, *, remarks: bool = False
) -> list[tuple[list[int], list[list[str]]]]:
    """Return parts that fit a width, to be drawn below each other: the columns of each, and its cells line by line.

    The first column, which names rows, is in every part. The first `words` columns (with `remarks` also the last) get
    the spare width.
    """
    columns = list(zip(*lines, strict=True))
    most = [max(map(len, column)) for column in columns]
    text = {*range(words), *([len(columns) - 1] if remarks else [])}
    if sum(most) + len(most) - 1 <= width:
        return [(list(range(len(most))), [list(line) for line in lines])]
    least = [max(len(piece.rstrip()) for cell in column for piece in _BREAK.split(cell)) for column in columns]
    least[:words] = [min(longest, max(width // 3, 1)) for longest in least[:words]]

    def spare(part: Sequence[int]) -> int:
        return width - sum(least[place] for place in part) - len(part) + 1

    parts = [[0]]
    for place in range(1, len(columns)):
        if len(parts[-1]) > 1 and spare([*parts[-1], place]) < 0:
            parts.append([0])
        parts[-1].append(place)
    laid_out = []
    for part in parts:
        widths = list(least)
        for _ in range(spare(part)):  # to the narrowest text column that can use it
            if growing := [place for place in part if place in text and widths[place] < most[place]]:
                widths[min(growing, key=widths.__getitem__)] += 1
        laid_out.append((part, [["\n".join(wrap(line[place], widths[place])) for place in part] for line in lines]))
    return laid_out


def wrap(text: str, width: int) -> list[str]:
    """Return lines of at most this width, broken within a word only where a word alone is longer."""
    lines = [""]
    for piece in _BREAK.split(text):
        if len((lines[-1] + piece).rstrip()) > width and lines[-1]:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines]


def markdown(grid: Grid) -> str:
    """Return the table as Markdown, ending in a newline."""
    header, *rows = grid.lines()
    rule = ["---" if grid.holds_words(place) else "---:" for place in range(len(header))]
    escaped = [[_markdown_text(cell).replace("|", r"\|") for cell in line] for line in (header, rule, *rows)]
    table = "".join(f"| {' | '.join(line)} |\n" for line in escaped)
    return f"{table}\n{paragraph(grid.caption)}" if grid.caption else table


def paragraph(text: str) -> str:
    """Return a paragraph of Markdown, ending in a newline."""
    return f"{_markdown_text(text)}\n"


def _markdown_text(text: str) -> str:
    return _one_line(text).replace("<", "&lt;")  # it could start HTML, which Markdown passes through


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


_LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    # Without a suitable font encoding these print as other characters.
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def latex_text(text: str) -> str:
    """Make any text safe for LaTeX's text mode."""
    return "".join(_LATEX.get(character, character) for character in _one_line(text))


def _latex_line(cells: Sequence[Cell]) -> str:
    texts = []
    for cell in cells:
        number, space, rest = str(cell).partition(" ")
        if isinstance(cell, Spread) and number.startswith(("-", "+")):
            texts.append(f"${number}${space}{latex_text(rest)}")  # a minus, which in text would be a hyphen
        else:
            texts.append("--" if cell == NOTHING else latex_text(str(cell)))
    # The command before would take these for an option: \\[2mm], \\*, \midrule[1pt].
    start = "{}" if texts[0].startswith(("[", "*")) else ""
    return start + " & ".join(texts) + r" \\"


_WRAPPED, _LINE, _PAGE = 24, 72, 40
"""Characters above which a text column is wrapped, characters that fit a line, rows that fit a page."""


def latex(grid: Grid) -> str:
    """Return a table in the style of booktabs, no wider than the text and over several pages if needed."""
    columns, needed = "", 0
    for place, column in enumerate(zip(*grid.lines(), strict=True)):
        width, kind = max(map(len, column)), "l" if grid.holds_words(place) else "r"
        if kind == "l" and width > _WRAPPED:
            width, kind = _WRAPPED, rf"p{{{_WRAPPED / 2:g}em}}"
        columns, needed = columns + kind, needed + width + 2
    wide, long = needed > _LINE, len(grid.rows) > _PAGE
    caption = [rf"\caption{{{latex_text(grid.caption)}}}"] if grid.caption else []
    head = [r"\toprule", _latex_line(grid.header), r"\midrule"]
    body = [*map(_latex_line, grid.rows), r"\bottomrule"]
    if long:
        size = r"\tiny" if wide else r"\small"
        start = [r"% needs \usepackage{booktabs,longtable}", rf"{{{size}\setlength{{\tabcolsep}}{{2pt}}"]
        table = [rf"\begin{{longtable}}{{{columns}}}", *head, r"\endhead", *body]
        end = [*(rf"{command}\\" for command in caption), r"\end{longtable}}"]
    else:
        start = [rf"% needs \usepackage{{booktabs{',graphicx' * wide}}}", r"\begin{table}", r"\centering"]
        start += [r"\resizebox{\linewidth}{!}{%"] * wide
        table = [rf"\begin{{tabular}}{{{columns}}}", *head, *body, r"\end{tabular}" + "}" * wide]
        end = [*caption, r"\end{table}"]
    return "\n".join([*start, *table, *end]) + "\n"


def comma_separated(grid: Grid) -> str:
    """Return CSV in full precision, with deviations and notes in separate columns, and empty cells for None."""
    lines = [[field for name in grid.header for field in (name, f"{name} std", f"{name} note")]]
    lines += [[field for cell in row for field in _fields(cell)] for row in grid.rows]
    used = [place for place, column in enumerate(zip(*lines, strict=True)) if place % 3 == 0 or any(column[1:])]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([line[place] for place in used] for line in lines)
    return text.getvalue()


def _fields(cell: Cell) -> tuple[str, str, str]:
    if isinstance(cell, Spread):
        deviation = "" if cell.deviation is None else str(round(cell.deviation, 6))
        return str(round(cell.mean, 6)), deviation, cell.note
    return "" if cell == NOTHING else no_formula(_one_line(cell)), "", ""


TEXT_FORMATS: dict[str, Callable[[Grid], str]] = {"markdown": markdown, "latex": latex, "csv": comma_separated}
FORMATS = ("terminal", *TEXT_FORMATS)


def print_grid(grid: Grid, form: str, console: Console) -> None:
    """Print the table: drawn for a terminal, or as plain text to be piped."""
    if form == "terminal":
        console.print(grid)
    else:
        print(TEXT_FORMATS[form](grid), end="")
