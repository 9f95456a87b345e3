"""Make the pictures of the guide again: the first run in a terminal, its figure and its report page.

python tools/docs_screenshots.py  # into docs/images; needs pip install -e '.[browser]' and Chromium; takes two minutes

The terminal's pictures are made from a run that is trained now. Figure and page are made from the records in results/.
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from PIL import Image
from playwright.sync_api import sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
COLUMNS, ROWS = 80, 50
PAGE = {"width": 1200, "height": 900}
PHASEZERO = [sys.executable, "-m", "phasezero"]
SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\r?\n|\r")
FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


class Screen:
    """The lines of a terminal, for rich's live displays: they move up, erase lines and write them again."""

    def __init__(self) -> None:
        self.lines, self.row = [""], 0

    def feed(self, text: str) -> None:
        place = 0
        for found in SEQUENCE.finditer(text):
            self.write(text[place : found.start()])
            place = found.end()
            number, kind = found[1], found[2]
            if found[0].endswith("\n"):
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            elif kind == "A":
                self.row = max(self.row - int(number or 1), 0)
            elif kind == "K":
                self.lines[self.row] = ""
            elif kind == "m":
                self.write(found[0])
        self.write(text[place:])

    def write(self, text: str) -> None:
        self.lines[self.row] += text

    def text(self) -> str:
        return "\n".join(self.lines).rstrip()


def screens(command: Sequence[str], folder: Path) -> Iterator[str]:
    """Run a command in a terminal of 80 columns; yield what it shows after each output."""
    mine, its = pty.openpty()
    ioctl(its, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, cwd=folder, env=environment, close_fds=True)
    os.close(its)
    screen, waiting = Screen(), b""
    while True:
        try:
            data = os.read(mine, 65536)
        except OSError:  # the program has left
            break
        if not data:
            break
        whole, newline, waiting = (waiting + data).rpartition(b"\n")
        screen.feed((whole + newline).decode("utf-8", "replace"))
        yield screen.text()
    screen.feed(waiting.decode("utf-8", "replace"))
    yield screen.text()
    if process.wait():
        raise SystemExit(f"{' '.join(command)} failed:\n{screen.text()}")


def save_terminal(title: str, text: str, path: Path, most: int = ROWS) -> None:
    """Write the last rows of a terminal with their colours as an SVG that loads no fonts."""
    lines = [Text(f"$ {title}", style="bold"), *(Text.from_ansi(line) for line in text.split("\n"))]
    rows = [row for line in lines for row in line.divide(range(COLUMNS, max(len(line), 1), COLUMNS))]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for row in rows[-most:]:
        console.print(row, no_wrap=True, crop=False)
    form = FONTS.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code", "ui-monospace, DejaVu Sans Mono")
    path.write_text(console.export_svg(title="", code_format=form, unique_id=path.stem), encoding="utf-8")


def save_page(page: Path, path: Path) -> None:
    """Write a screenshot of the top of a page, with few colours, which halves its size."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        view = browser.new_page(viewport=PAGE, color_scheme="light")
        view.goto(page.as_uri())
        view.wait_for_timeout(500)
        picture = view.screenshot()
        browser.close()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(128).save(path, optimize=True)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        shown = list(dict.fromkeys(screens([*PHASEZERO, "run", "--out", "runs/first"], folder)))
        save_terminal("phasezero run --out runs/first", shown[len(shown) // 2], IMAGES / "progress.svg", most=20)
        save_terminal("phasezero run --out runs/first", shown[-1], IMAGES / "terminal.svg")
        records = str(ROOT / "results" / "first_run")
        figure = folder / "first_run.svg"
        subprocess.run([*PHASEZERO, "show", records, "--figure", figure], check=True, stdout=subprocess.DEVNULL)
        shutil.copy(figure, IMAGES)  # without the files of its caption
        page = folder / "report.html"
        subprocess.run([*PHASEZERO, "report", records, "-o", page], check=True, stdout=subprocess.DEVNULL)
        save_page(page, IMAGES / "report.png")


if __name__ == "__main__":
    main()
