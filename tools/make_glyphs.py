"""Draw the `glyphs` data set from open-licensed typefaces and write it as one compressed file.

The typefaces are npm packages of the @fontsource collection, named with their versions in
tools/glyphs_fonts.txt.  Install them into a scratch folder, then run this tool:

    npm install --ignore-scripts --prefix FOLDER \
        $(awk '!/^#/ {print "@fontsource/" $1 "@" $2}' tools/glyphs_fonts.txt)
    python tools/make_glyphs.py FOLDER/node_modules

The tool alone needs fonttools and brotli (to unpack woff2), Pillow (to draw) and numpy; the package
needs none of fonttools, brotli and Pillow to read the result.  The same packages and the same Pillow give
the same bytes; another FreeType may move a grey level, and with it the printed sha256, which
src/phasezero/data/glyphs.py must name.

The rules that leave out typefaces and characters are the functions `typeface_fault`,
`distinct_characters` and `has_twins`; src/phasezero/data/GLYPHS.md tells them in words.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from fontTools.ttLib import TTFont
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

REPOSITORY = Path(__file__).resolve().parent.parent
FONT_LIST = REPOSITORY / "tools" / "glyphs_fonts.txt"
DATA_FOLDER = REPOSITORY / "src" / "phasezero" / "data"
TABLE_MARK = "<!-- the table below is written by tools/make_glyphs.py -->\n"

# In order of preference: the first CLASSES characters that survive the rules are the classes.
# No candidates are accented capitals, since room for their marks would shrink every other glyph, and
# dots, commas, quotes and bars, which at this size are specks without a shape.
CANDIDATES = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789&@#$%?!*+=~^<>{}[]()/\\£€¥§©¿ßæøåçñðþÆØÞéüäö¢®«»"
)
CLASSES = 100
FILE_PATTERN = "{package}-latin-400-normal.woff2"  # bold and italic would add images but little variety

SIDE = 28  # pixels of an image
INK_SIDE = 25.5  # pixels for the tallest or widest character of a typeface: a rim of one stays empty
OVERSAMPLING = 8  # glyphs are drawn this much larger, then averaged: no hinting, even grey levels
LEVELS = 8  # grey levels kept: enough for smooth edges, in a file a quarter smaller than with 16

FAINT_LEVEL = 2  # an image with no pixel above this level counts as blank
SMALLEST_X_HEIGHT = 8  # pixels; below it a typeface's swashes leave no room for readable letters
LOOK_ALIKE = 0.96  # similarity from which two characters look the same in a typeface ...
LOOK_ALIKE_SHARE = 0.15  # ... and the share of typefaces in which they must do so to be one character
TWIN = 0.98  # similarity from which two classes are the same drawing, which spoils the typeface
ONE_CASE = 0.95  # typical similarity of the shapes of a and A, b and B, ... in a font of capitals only
CASE_PAIRS = ("aA", "bB", "dD", "eE", "gG", "hH", "qQ", "rR")  # unlike in every font with two cases

COPYRIGHT_NAME_ID = 0  # in the OpenType name table

Pixels = NDArray[np.uint8]
Reals = NDArray[np.float32]


class Typeface(NamedTuple):
    """A typeface, on the train or the test side, with its drawings [candidate, row, column]."""

    package: str
    side: str
    images: Pixels


def read_font_list() -> list[tuple[str, str, str, str]]:
    """Return the listed (package, version, licence, side) rows."""
    rows = [line.split() for line in FONT_LIST.read_text().splitlines() if not line.startswith("#")]
    return [(package, version, licence, side) for package, version, licence, side in rows]


def open_font(modules: Path, package: str) -> TTFont:
    return TTFont(modules / "@fontsource" / package / "files" / FILE_PATTERN.format(package=package))


def check_package(modules: Path, package: str, version: str, licence: str) -> None:
    """Refuse a package whose version or licence differs from the list."""
    manifest = json.loads((modules / "@fontsource" / package / "package.json").read_text())
    if (manifest["version"], manifest["license"]) != (version, licence):
        raise SystemExit(
            f"{package}: installed {manifest['version']} under {manifest['license']}, listed {version} under {licence}"
        )


def missing_characters(font: TTFont) -> str:
    """Return the candidates that the font has no glyph for, so that a renderer would draw its fallback box."""
    glyph_names = font.getBestCmap()
    return "".join(c for c in CANDIDATES if glyph_names.get(ord(c), ".notdef") == ".notdef")


def draw_candidates(font: TTFont) -> Pixels:
    """Draw all candidates at the same size and on the same baseline, each centred sideways on its ink."""
    font.flavor = None  # saved as plain TrueType or OpenType, which every FreeType reads
    stream = io.BytesIO()
    font.save(stream)

    def sized(size: float) -> ImageFont.FreeTypeFont:
        return ImageFont.truetype(io.BytesIO(stream.getvalue()), size, layout_engine=ImageFont.Layout.BASIC)

    trial_size = 400.0
    trial = sized(trial_size)
    boxes = np.array([trial.getbbox(c, anchor="ls") for c in CANDIDATES])
    top, bottom = boxes[:, 1].min(), boxes[:, 3].max()
    widest = (boxes[:, 2] - boxes[:, 0]).max()
    scale = INK_SIDE * OVERSAMPLING / max(widest, bottom - top)
    canvas = SIDE * OVERSAMPLING
    baseline = round(canvas / 2 - scale * (top + bottom) / 2)
    drawn = sized(trial_size * scale)

    images = np.empty((len(CANDIDATES), SIDE, SIDE), np.uint8)
    for image, character in zip(images, CANDIDATES, strict=True):
        left, _, right, _ = drawn.getbbox(character, anchor="ls")
        sheet = Image.new("L", (canvas, canvas))
        start = round((canvas - left - right) / 2)
        ImageDraw.Draw(sheet).text((start, baseline), character, fill=255, font=drawn, anchor="ls")
        blocks = np.asarray(sheet, np.float32).reshape(SIDE, OVERSAMPLING, SIDE, OVERSAMPLING)
        image[:] = np.rint(blocks.mean((1, 3)) * (LEVELS - 1) / 255)
    return images


def ink_range(image: Pixels, axis: int) -> slice:
    """Return the rows (axis 0) or columns (axis 1) that hold ink."""
    inked = np.flatnonzero(image.max(1 - axis))
    return slice(int(inked[0]), int(inked[-1]) + 1)


def stretched(image: Pixels, keep_height: bool) -> Reals:
    """Return the glyph widened to the whole image, so that a narrow 0 and a wide O become alike.

    With `keep_height` the rows stay where they are, so that c and C remain unlike.
    """
    rows = slice(None) if keep_height else ink_range(image, 0)
    cut = Image.fromarray(image[rows, ink_range(image, 1)].astype(np.float32))
    return np.asarray(cut.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def unit_rows(images: Reals) -> Reals:
    """Return each image as a row of unit length."""
    rows = images.reshape(len(images), -1)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def similarities(images: Pixels) -> Reals:
    """Return the cosine of every two widened drawings of a typeface, at the best of three heights a pixel apart."""
    wide = np.stack([stretched(image, keep_height=True) for image in images])
    plain = unit_rows(wide)
    result = np.max([plain @ unit_rows(np.roll(wide, shift, 1)).T for shift in (-1, 0, 1)], axis=0)
    np.fill_diagonal(result, 0)
    return np.asarray(result)


def case_similarity(images: Pixels) -> float:
    """Return how alike small and capital letters are once both fill the whole image; median over CASE_PAIRS."""
    cosines = []
    for pair in CASE_PAIRS:
        shapes = np.stack([stretched(images[CANDIDATES.index(c)], keep_height=False) for c in pair])
        small, capital = unit_rows(shapes)
        cosines.append(float(small @ capital))
    return float(np.median(cosines))


def typeface_fault(images: Pixels) -> str:
    """Return why a typeface that has all glyphs is still left out; empty when it is fine."""
    faint = images.max((1, 2)) <= FAINT_LEVEL
    if faint.any():
        return "blank: " + "".join(c for c, f in zip(CANDIDATES, faint, strict=True) if f)
    if images[:, [0, -1], :].any() or images[:, :, [0, -1]].any():
        return "clipped"
    rows = ink_range(images[CANDIDATES.index("x")], 0)
    if rows.stop - rows.start < SMALLEST_X_HEIGHT:
        return "letters too small"
    alike = case_similarity(images)
    return f"one case only ({alike:.2f})" if alike >= ONE_CASE else ""


def draw_typefaces(modules: Path) -> Iterator[Typeface]:
    """Yield every listed typeface that draws all candidates and is readable."""
    for package, version, licence, side in read_font_list():
        check_package(modules, package, version, licence)
        font = open_font(modules, package)
        missing = missing_characters(font)
        images = draw_candidates(font)
        fault = f"lacks {missing}" if missing else typeface_fault(images)
        if fault:
            print(f"left out {package}: {fault}")
        else:
            yield Typeface(package, side, images)


def distinct_characters(typefaces: list[Typeface]) -> list[int]:
    """Return the indices of the CLASSES first candidates that look like no earlier candidate.

    A candidate of which both sides hold one and the same image, such as a bar or a dot, goes as well:
    with it a test image would have been seen in training.
    """
    look_alike = np.mean([similarities(face.images) >= LOOK_ALIKE for face in typefaces], axis=0)
    kept: list[int] = []
    for index, character in enumerate(CANDIDATES):
        seen, tested = (
            {face.images[index].tobytes() for face in typefaces if face.side == side} for side in ("train", "test")
        )
        earlier = [k for k in kept if look_alike[index, k] >= LOOK_ALIKE_SHARE]
        if seen & tested:
            print(f"left out {character}: the same image on both sides")
        elif earlier:
            print(f"left out {character}: looks like {''.join(CANDIDATES[k] for k in earlier)}")
        else:
            kept.append(index)
    if len(kept) < CLASSES:
        raise SystemExit(f"only {len(kept)} characters are left, {CLASSES} are wanted")
    return kept[:CLASSES]


def has_twins(typeface: Typeface, characters: list[int]) -> bool:
    """Tell whether the typeface draws two of the chosen characters the same."""
    alike = similarities(typeface.images[characters])
    first, second = (CANDIDATES[characters[i]] for i in np.unravel_index(alike.argmax(), alike.shape))
    if alike.max() < TWIN:
        return False
    print(f"left out {typeface.package}: {first} and {second} alike ({alike.max():.3f})")
    return True


def write_data(path: Path, typefaces: list[Typeface], characters: list[int]) -> None:
    """Write a line of JSON, then the grey levels [typeface, class, row, column], the training side first."""
    counts = {side: sum(face.side == side for face in typefaces) for side in ("train", "test")}
    header = {"characters": "".join(CANDIDATES[i] for i in characters), "levels": LEVELS, **counts}
    ordered = sorted(typefaces, key=lambda face: face.side != "train")
    pixels = np.stack([face.images[characters] for face in ordered])
    payload = json.dumps(header).encode() + b"\n" + pixels.tobytes()
    lzma_filter = {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}
    packed = lzma.compress(payload, check=lzma.CHECK_CRC64, filters=[lzma_filter])
    path.write_bytes(packed)
    print(f"typefaces {counts}, {len(packed)} bytes")
    print(f"sha256 {hashlib.sha256(packed).hexdigest()}")


def write_table(path: Path, typefaces: list[Typeface], modules: Path) -> None:
    """Replace what follows the mark in the description by the table of the typefaces in use."""
    used = {face.package for face in typefaces}
    lines = ["", "| side | package | version | licence | copyright |", "|---|---|---|---|---|"]
    for package, version, licence, side in sorted(read_font_list(), key=lambda row: (row[3] != "train", row)):
        if package in used:
            notice = open_font(modules, package)["name"].getDebugName(COPYRIGHT_NAME_ID)
            cell = " ".join(notice.split()).replace("|", "\\|")
            lines.append(f"| {side} | {package} | {version} | {licence} | {cell} |")
    introduction = path.read_text(encoding="utf-8").split(TABLE_MARK)[0]
    path.write_text(introduction + TABLE_MARK + "\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the glyphs data set from installed npm packages.")
    parser.add_argument("modules", type=Path, help="the node_modules folder with the @fontsource packages")
    parser.add_argument("--data", type=Path, default=DATA_FOLDER / "glyphs.xz", help="the file to write")
    parser.add_argument(
        "--description",
        type=Path,
        default=DATA_FOLDER / "GLYPHS.md",
        help="the text whose table of typefaces is renewed",
    )
    arguments = parser.parse_args()

    readable = list(draw_typefaces(arguments.modules))
    characters = distinct_characters(readable)
    typefaces = [face for face in readable if not has_twins(face, characters)]
    write_data(arguments.data, typefaces, characters)
    write_table(arguments.description, typefaces, arguments.modules)


if __name__ == "__main__":
    main()
