"""`phasezero predict`: names for photos, in three formats."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from phasezero.records.jsonfile import DIGEST, write_json
from samples import take_photos

Command = Callable[..., tuple[int, str, str]]
Works = Callable[..., tuple[str, str]]


def test_a_table_of_files_and_folders(model: Path, works: Works) -> None:
    out, _ = works("predict", "--model", model, "photos/red/0.jpg", "photos/green", "--top", "2")
    lines = out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("photos/red/0.jpg    red ")
    assert ", green " in lines[0]
    assert all(line.split("  ")[1].startswith("green ") for line in lines[1:])


def test_csv_is_safe_for_a_pipe_and_a_spreadsheet(model: Path, works: Works) -> None:
    Path("photos/red/0.jpg").rename("=1+1,\n.jpg")
    out, err = works("predict", "--model", model, "=1+1,\n.jpg", "photos/red", "--format", "csv")
    assert err == ""
    header, first, *rest = csv.reader(io.StringIO(out))
    assert header == ["file", "class", "probability"]
    assert first[:2] == ["'=1+1,\\n.jpg", "red"]
    assert 0.5 < float(first[2]) <= 1
    assert [row[0] for row in rest] == ["photos/red/1.jpg", "photos/red/2.jpg"]
    out, _ = works("predict", "--model", model, "photos/red", "--format", "csv", "--top", "9")
    header, row, _ = csv.reader(io.StringIO(out))
    assert header == ["file", "class", "probability", "class_1", "probability_1", "class_2", "probability_2"]
    assert row[3::2] == ["red", "green"]


def test_json_is_a_list_of_objects(model: Path, works: Works) -> None:
    out, _ = works("predict", "--model", model, "photos/red/0.jpg", "--format", "json", "--top", "2")
    (answer,) = json.loads(out)
    assert answer["file"] == "photos/red/0.jpg"
    assert answer["class"] == "red"
    assert [one["class"] for one in answer["top"]] == ["red", "green"]
    assert abs(sum(one["probability"] for one in answer["top"]) - 1) < 1e-5


def test_photos_unlike_those_learned_are_unknown(model: Path, works: Works) -> None:
    take_photos(Path("other"), "blue", 1)
    facts = json.loads((model / "model.json").read_text())
    facts["calibration"]["confidences"] = [1.0, 1.0]  # held-out photos were certain
    facts["calibration"]["likelihoods"] = [0.0] * len(facts["calibration"]["likelihoods"])
    write_json(model / "model.json", {key: facts[key] for key in facts if key != DIGEST}, "model")
    words = ("predict", "--model", model, "other", "--reject", "0.05")
    (answer,) = json.loads(works(*words, "--format", "json")[0])
    assert answer["class"] == "unknown"
    assert answer["top"][0]["class"] in ("red", "green")
    assert "unknown (" in works(*words)[0]


def test_a_file_that_cannot_be_answered_is_named(model: Path, command: Command) -> None:
    Path("broken.jpg").write_text("no photo")
    for file, told in (("gone.jpg", "gone.jpg: no such file"), ("broken.jpg", "broken.jpg cannot be read")):
        code, out, err = command("predict", "--model", model, "photos/red/0.jpg", file)
        assert (code, out) == (2, "")
        assert told in err
    assert command("predict", "--model", "nowhere", "photos/red/0.jpg")[0] == 2
    code, _, err = command("predict", "--model", model, "photos/red/0.jpg", "--reject", "2")
    assert code == 2
    assert "between 0 and 1" in err


def test_an_answer_loads_only_what_it_needs(model: Path) -> None:
    program = (
        "import sys\nfrom phasezero.cli.main import main\ntry:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = 'matplotlib sklearn torch._dynamo sympy rich.progress phasezero.report phasezero.paper'.split()\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    words = [sys.executable, "-c", program, "predict", "--model", model, "photos/red/0.jpg"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("photos/red/0.jpg  red ")
    assert done.stdout.rstrip().endswith("[]")
