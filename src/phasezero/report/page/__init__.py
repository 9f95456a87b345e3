"""Write records as a self-contained HTML page, which opens offline and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path

from phasezero.errors import UserError
from phasezero.identity import settings_of
from phasezero.records.analysis import Analysis, analysis_name, read_analysis
from phasezero.records.files import write_whole
from phasezero.records.run import Record
from phasezero.report.page.content import page_content

SUFFIXES = (".html", ".htm")
_SCRIPTS = "format elements looks chart matrix state overview compare runs page"
SCRIPTS = tuple(f"{name}.js" for name in _SCRIPTS.split())


def write_page(
    records: Sequence[Record],
    path: str | Path,
    analyses: Sequence[Sequence[Analysis]] = (),
    *,
    title: str = "",
    repeated: Sequence[str] = (),
) -> None:
    """Write the page; `analyses`, if given, belong to the records at the same positions.

    `repeated` says which run of a repeated seed is shown.
    """
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"{path}: a page's name must end in {' or '.join(SUFFIXES)}")
    if not records:
        raise UserError("a page needs records: name at least one run")
    text = render_page(records, analyses, title=title, repeated=repeated)
    try:
        write_whole(path, text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror or error}); choose another -o") from error


def analyses_beside(path: Path, record: Record, warn: Callable[[str], None]) -> Iterator[Analysis]:
    """Yield the analyses next to a record; leave out, with a warning, damaged files, copies and those of other runs."""
    for file in sorted(path.parent.glob(analysis_name("*"))):
        try:
            analysis = read_analysis(file)
        except UserError as error:
            warn(f"{error}; left out")
            continue
        own, its = ((item["seed"], settings_of(item["config"])) for item in (record, analysis))
        if own != its:
            warn(f"{file}: not from the run of the {path.name} next to it; left out")
        elif file.name != (usual := analysis_name(analysis["phase"])):
            warn(f"{file}: an analysis of phase {analysis['phase']}, which should be named {usual}; left out")
        else:
            yield analysis


def render_page(
    records: Sequence[Record],
    analyses: Sequence[Sequence[Analysis]] = (),
    *,
    title: str = "",
    repeated: Sequence[str] = (),
) -> str:
    """Return the page's HTML."""
    shown = page_content(records, analyses, repeated)
    try:
        content = json.dumps(shown, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise UserError(f"no page: a record holds a number that is not finite ({error})") from error
    style, script = _part("page.css"), "".join(map(_part, SCRIPTS))
    parts = {
        "TITLE": html.escape(title or "phasezero report"),
        # Whatever else might get into the page, the browser runs only this script and loads nothing. It makes a PNG of
        # a chart by drawing the chart's SVG, which it holds as a blob: a page cannot reach anything else by that.
        "POLICY": f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src blob:; "
        "base-uri 'none'; form-action 'none'",
        "STYLE": style,
        "SCRIPT": script,
        # In JSON "<" occurs only inside strings, so no name can end the element.
        "CONTENT": content.replace("<", "\\u003c"),
    }
    before, *pieces = _part("page.html").split("{{")
    # A single pass, so that a name that looks like a placeholder is not replaced.
    return before + "".join(parts[name] + after for name, _, after in (piece.partition("}}") for piece in pieces))


def _part(name: str) -> str:
    return resources.files("phasezero.report.page").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"
