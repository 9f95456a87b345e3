"""Notes told by hand: printed beside their cell or claim, and refused where nobody would read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from phasezero.errors import UserError
from phasezero.reproduce.ledger import write_results
from phasezero.reproduce.notes import Notes, read_notes

CELLS = {"table1": {"bic/cifar100/b50s10"}, "table2": {"lucir/imagenet100-cwd/b10s10"}}
CLAIMS = ("mimic", "eta-curve")


def read(folder: Path, text: str) -> Notes:
    (folder / "notes.yaml").write_text(text)
    return read_notes(folder / "notes.yaml", CELLS, CLAIMS)


def test_notes_by_cell_and_claim(tmp_path: Path) -> None:
    assert read_notes(tmp_path / "notes.yaml", CELLS, CLAIMS) == Notes()
    notes = read(
        tmp_path,
        "cells: {table1: {bic/cifar100/b50s10: 'two\n    lines'}}\nclaims: {mimic: only B=50 was run}\n",
    )
    assert notes.cells == {"table1": {"bic/cifar100/b50s10": "two lines"}}
    assert notes.claims == {"mimic": "only B=50 was run"}
    assert read(tmp_path, "") == Notes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cell: {}", "unknown key in the file 'cell'; did you mean 'cells'"),
        ("cells: {table9: {}}", "unknown key in cells 'table9'"),
        ("cells: {table2: {bic/cifar100/b50s10: x}}", "unknown key in table2"),
        ("claims: {mimicry: x}", "unknown key in claims 'mimicry'; did you mean 'mimic'"),
        ("claims: {mimic: 3}", "claims, mimic: a text is expected"),
        ("claims: {mimic: ' '}", "a text is expected"),
        ("claims: [mimic]", "claims should be a mapping, not list"),
        ("a: [", "is not YAML"),
    ],
)
def test_what_nobody_would_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read(tmp_path, text)


def test_they_are_printed_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "notes.yaml").write_text(
        "cells: {table1: {bic/cifar100/b50s10: It was tried.}}\nclaims: {larger-eta: Of this later.}\n"
    )
    text = write_results(tmp_path, tmp_path)
    (line,) = [line for line in text.splitlines() if "It was tried." in line]
    assert line.startswith("| CIFAR100 | BiC | 50 | 10 |")
    assert line.endswith("| not run. It was tried. |")
    section = text[text.index("### Larger eta") : text.index("### The information proxy")]
    assert "Note: Of this later." in section
