"""How figures are written: sizes for a paper, files with the caption beside the picture, text and legends."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.transforms import Bbox

from phasezero.errors import UserError
from phasezero.records.files import replacing, slug, write_whole
from phasezero.report.grid import latex_text

SUFFIXES = (".png", ".svg", ".pdf")
STYLE = Path(__file__).with_name("figures.mplstyle")

COLUMN, PAGE = 3.3, 6.9
"""The width in inches of a paper's column, and of its page."""
WIDTHS = (60, 48, 36, 24, 12)
"""Characters of a line of a legend, to choose from."""
MOST_COLUMNS = 5  # of a legend
FOLDED = 1.25  # how much higher a legend may be if its labels then need no folding


def write_figure(path: str | Path, make: Callable[[], Figure], caption: str = "") -> list[Path]:
    """Write a figure as PNG, SVG or PDF by the suffix, and return its files; the same figure gives the same files.

    Beside an SVG or a PDF, the caption is written as text and as a LaTeX environment that includes the figure.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: a figure's name must end in one of {', '.join(SUFFIXES)}")
    form = path.suffix.lower().removeprefix(".")
    stamp = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    with matplotlib.rc_context(fname=STYLE):  # not pyplot, which keeps global state
        figure = make()
        content = io.BytesIO()  # matplotlib's own files raise other errors than OSError on a full disk
        figure.savefig(content, format=form, metadata=stamp)
        with replacing(path) as temporary:
            temporary.write_bytes(content.getvalue())
    if not caption or form == "png":
        return [path]
    text, environment = caption_files(path)
    write_whole(text, f"{caption}\n")
    write_whole(environment, latex_figure(path, caption, is_wide=figure.get_figwidth() > COLUMN))
    return [path, text, environment]


def write_every_format(
    base: Path, make: Callable[[Path], Sequence[Path]], suffixes: Sequence[str] = SUFFIXES
) -> list[Path]:
    """Write a figure as PNG, SVG and PDF (or some of them), all with this name and a suffix; return all files."""
    made = [make(base.with_name(base.name + suffix)) for suffix in suffixes]
    return list(dict.fromkeys(path for paths in made for path in paths))


def caption_files(path: Path) -> tuple[Path, Path]:
    """Return the files beside a figure that contain its caption: as text, and in a LaTeX environment."""
    return path.with_name(f"{path.stem}-caption.txt"), path.with_name(f"{path.stem}-figure.tex")


def latex_figure(path: Path, caption: str, *, is_wide: bool) -> str:
    """Return an environment that includes a figure by its name; LaTeX reads a PDF by itself, an SVG with a package."""
    is_svg, kind = path.suffix.lower() == ".svg", "figure*" if is_wide else "figure"
    lines = [
        r"% needs \usepackage{svg} and Inkscape; a .pdf needs neither" if is_svg else r"% needs \usepackage{graphicx}"
    ]
    if set(path.stem) & set("%#{}"):
        lines.append("% LaTeX cannot read a file of this name: rename it, here and in its folder")
    lines += [
        rf"\begin{{{kind}}}",
        r"\centering",
        rf"\{'includesvg' if is_svg else 'includegraphics'}[width=\linewidth]{{{path.stem}}}",
        rf"\caption{{{latex_text(caption)}}}",
        rf"\label{{fig:{slug(path.stem)}}}",
        rf"\end{{{kind}}}",
    ]
    return "\n".join(lines) + "\n"


def plain_text(text: Any, words: str) -> None:
    """Set a text, without matplotlib's reading of $...$ as mathematics."""
    text.set_parse_math(False)
    text.set_text(words)


def place_legend(
    figure: Figure, handles: Sequence[Artist], labels: Sequence[str], title: str = "", *, inside: Axes | None = None
) -> None:
    """Draw a legend in axes with room for it; otherwise below all axes, where the figure grows by its height.

    Below, the columns and the length of a label's lines are those of the lowest legend that fits the figure's width.
    """
    if inside is not None:
        legend = _legend(inside, handles, labels, title, WIDTHS[0], loc="best")
        legend.set_in_layout(False)  # axes would shrink to make room for a long legend
        figure.draw_without_rendering()
        box, space = legend.get_window_extent(), inside.get_window_extent()
        fits = box.x0 >= space.x0 and box.x1 <= space.x1 and box.y0 >= space.y0 and box.y1 <= space.y1
        if fits and not any(_touches(shape, box) for shape in _shapes(inside)):
            return
        legend.remove()
    below = partial(_legend, figure, handles, labels, title, loc="outside lower center")
    found = []
    for columns, width in product(range(1, min(MOST_COLUMNS, len(labels)) + 1), WIDTHS):
        legend = below(width, ncols=columns)
        box, worse = legend.get_window_extent(), FOLDED if max(map(len, labels)) > width else 1
        found.append((box.width > figure.bbox.width, box.height * worse, columns, -width))
        legend.remove()
    *_, columns, width = min(found)
    height = below(-width, ncols=columns).get_window_extent().height
    figure.set_figheight(figure.get_figheight() + height / figure.dpi)


def _legend(
    where: Axes | Figure, handles: Sequence[Artist], labels: Sequence[str], title: str, width: int, **options: Any
) -> Legend:
    # The names go in afterwards: matplotlib hides labels that start with "_".
    names = list(map(str, range(len(handles))))
    legend = where.legend(handles, names, frameon=isinstance(where, Axes), **options)
    for text, label in zip(legend.get_texts(), labels, strict=True):
        plain_text(text, folded(label, width))
    if title:
        legend.set_title(title)
    return legend


def _shapes(axes: Axes) -> Iterator[tuple[Any, bool]]:
    """Yield all lines and bands in pixels, and whether they are filled."""
    for line in axes.lines:
        yield line.get_transform().transform_path(line.get_path()), False
    for collection in axes.collections:
        for path in collection.get_paths():
            yield collection.get_transform().transform_path(path), True


def _touches(shape: tuple[Any, bool], box: Bbox) -> bool:
    path, is_filled = shape
    return bool(path.intersects_bbox(box.padded(3), filled=is_filled))  # a marker is about three pixels around a point


def folded(label: str, width: int) -> str:
    """Break a label at its settings, but not within a number: a long legend would leave no room for the axes."""
    return re.sub(rf"(.{{1,{width}}}(?:$|(?<=[, ])(?!±)(?<!± )))", r"\1\n", label).rstrip("\n")
