"""`phasezero learn`, `info` and `undo`: a model grows by what is new, and never by mistakes."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from phasezero import steps as steps_module
from phasezero.learner import Learner, folder as model_folder
from phasezero.learner.folder import locked
from phasezero.records import locks
from phasezero.steps import Steps
from samples import take_photos

Command = Callable[..., tuple[int, str, str]]
Works = Callable[..., tuple[str, str]]


def content(model: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in model.rglob("*") if path.is_file() and path.name != ".lock"}


def classes(model: Path) -> list[str]:
    return [entry["name"] for entry in json.loads((model / "model.json").read_text())["classes"]]


def refused(command: Command, *words: str | Path) -> str:
    """Run a command that must fail for the user's mistake, and return its message."""
    code, _, err = command(*words)
    assert code == 2, err
    assert "Traceback" not in err
    return err


def test_a_model_is_made_and_says_what_to_do_next(works: Works) -> None:
    for colour in ("red", "green"):
        take_photos(Path("photos") / colour, colour)
    out, err = works("learn", "photos", "--model", "my model", "--dry-run")
    assert "new           2 classes, 6 photos: green 3, red 3" in out
    assert not Path("my model").exists()
    out, err = works("learn", "photos", "--model", "my model", "--keep-images", "2")
    assert "my model: 2 classes, 6 photos" in out
    assert "% on 2 held-out photos\n" in out
    assert "kept: 4 photos" in out
    assert "next: phasezero predict --model 'my model' PHOTO" in out
    assert "\x1b" not in out + err
    assert classes(Path("my model")) == ["green", "red"]
    assert len(list(Path("my model/images").iterdir())) == 4


def test_kept_photos_have_no_metadata(works: Works) -> None:
    take_photos(Path("photos/red"), "red", 1)
    facts = Image.Exif()
    facts[0x010E] = "secret description"  # ImageDescription
    Image.open("photos/red/0.jpg").save("photos/red/1.jpg", exif=facts, comment=b"secret comment")
    works("learn", "photos", "--model", "m", "--keep-images", "2")
    assert Path("photos/red/1.jpg").read_bytes().count(b"secret") == 2
    files = [path for path in Path("m").rglob("*") if path.is_file()]
    assert len([path for path in files if path.parent.name == "images"]) == 1  # the other is held out
    assert not any(b"secret" in path.read_bytes() for path in files)


def test_new_classes_and_new_photos_of_known_classes_are_learned(model: Path, works: Works) -> None:
    take_photos(Path("photos/blue"), "blue")
    take_photos(Path("photos/red"), "red", 2, first=7)
    shutil.copy("photos/blue/1.jpg", "photos/blue/copy.jpg")
    before = content(model)
    out, _ = works("learn", "photos", "--model", model, "--dry-run")
    assert "dry run" in out
    assert content(model) == before
    out, _ = works("learn", "photos", "--model", model, "--method", "ridge", "--backbone", "efficientnet-lite0")
    assert "new           1 class, 3 photos: blue 3\n" in out
    assert "more photos   1 class, 2 photos: red 2\n" in out
    assert "known already 2 classes, 6 photos: green 3, red 3\n" in out
    assert "repeated      1 photo, used once: photos/blue/copy.jpg\n" in out
    assert "m: 3 classes, 11 photos" in out
    assert "of the new classes, among all classes" in out
    assert classes(model) == ["green", "red", "blue"]  # blue sorts first
    info, _ = works("info", "--model", model)
    assert "3 classes in 2 phases, 11 photos" in info
    assert "contains  no photos" in info
    assert [line.split() for line in info.splitlines()][-3:] == [
        ["green", "0", "3", "0"],
        ["red", "0", "5", "0"],
        ["blue", "1", "3", "0"],
    ]
    out, _ = works("undo", "--model", model)
    assert out == "m: version 3, 2 classes, 6 photos\nforgotten: blue\n"
    assert classes(model) == ["green", "red"]


def test_only_new_photos_of_known_classes(model: Path, works: Works) -> None:
    take_photos(Path("photos/red"), "red", 1, first=7)
    out, _ = works("learn", "photos", "--model", model)
    assert "m: 2 classes, 7 photos" in out
    assert "accuracy: not measured" in out


def test_nothing_new_changes_nothing(model: Path, works: Works) -> None:
    before = content(model)
    out, _ = works("learn", "photos", "--model", model)
    assert "nothing new: m stays as it is" in out
    assert content(model) == before


def test_a_renamed_class_is_recognised(model: Path, works: Works) -> None:
    Path("photos/red").rename("photos/crimson")
    before = content(model)
    out, _ = works("learn", "photos", "--model", model)
    assert "renamed       all photos of 'crimson' were learned as 'red'; skipped" in out
    assert "nothing new" in out
    assert content(model) == before


def test_a_photo_in_two_classes_is_refused(model: Path, command: Command) -> None:
    take_photos(Path("more/blue"), "blue")
    take_photos(Path("more/azure"), "blue", 1)
    before = content(model)
    message = refused(command, "learn", "more", "--model", model)
    assert "more/blue/0.jpg is given as 'blue' and also given as 'azure'" in message
    shutil.rmtree("more/azure")
    shutil.copy("photos/red/0.jpg", "more/blue/red.jpg")
    message = refused(command, "learn", "more", "--model", model)
    assert "more/blue/red.jpg is given as 'blue' and was learned as 'red'" in message
    assert "remove each from one of its folders" in message
    assert content(model) == before


def test_damaged_photos_are_named_before_anything_is_learned(command: Command) -> None:
    take_photos(Path("photos/red"), "red", 6)
    for place in range(1, 6):
        Path(f"photos/red/{place}.jpg").write_text("no photo")
    message = refused(command, "learn", "photos", "--model", "m")
    assert message.startswith("phasezero: 5 photos: image file photos/red/1.jpg cannot be read")
    assert "photos/red/3.jpg" in message
    assert "; and 2 more" in message
    assert not Path("m").exists()


def test_a_photo_that_ends_too_early_leaves_no_model(command: Command) -> None:
    take_photos(Path("photos/red"), "red", 2)
    photo = Path("photos/red/1.jpg")
    photo.write_bytes(photo.read_bytes()[:-200])  # its header is intact
    assert "photos/red/1.jpg cannot be read" in refused(command, "learn", "photos", "--model", "deep/m")
    assert not Path("deep").exists()


def test_empty_and_missing_folders(command: Command) -> None:
    assert "no folder at" in refused(command, "learn", "photos", "--model", "m")
    take_photos(Path("photos"), "red", 1)
    assert "has no class folders" in refused(command, "learn", "photos", "--model", "m")
    Path("photos/red").mkdir()
    assert "class folders with no image files in photos: 1 (red)" in refused(command, "learn", "photos", "--model", "m")
    assert "must be in separate folders" in refused(command, "learn", "photos", "--model", "photos/m")
    assert "photos has other files and no model" in refused(command, "learn", "other", "--model", "photos")
    for name in ("info", "undo"):
        assert "there is no model here" in refused(command, name, "--model", "m")
    assert not Path("m").exists()


def test_one_photo_per_class_is_enough(works: Works) -> None:
    for colour in ("red", "green"):
        take_photos(Path("photos") / colour, colour, 1)
    out, _ = works("learn", "photos", "--model", "m")
    assert "accuracy: not measured, because no class has two photos" in out
    out, _ = works("predict", "--model", "m", "photos/red/0.jpg")
    assert out.startswith("photos/red/0.jpg  red ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--method", "ncm"], "--method ncm: m was made with ridge"),
        (["--backbone", "none"], "--backbone none: m was made with efficientnet-lite0"),
        (["--memory", "per_class:3"], "--memory per_class:3: m was made with per_class:0"),
        (["--initial", "cwd"], "--initial cwd: m was made with none"),
        (["--set", "epochs=3"], "--set epochs=3: m was made with the usual"),
        (["--keep-images", "2", "--memory", "total:9"], "give only one of the two"),
        (["--keep-images", "some"], "--keep-images 'some': write a number"),
        (["--keep-images", "no", "--set", "nothing"], "--set 'nothing': write key=value"),
    ],
)
def test_options_that_contradict_the_model_are_refused(
    words: list[str], told: str, model: Path, command: Command
) -> None:
    take_photos(Path("photos/blue"), "blue", 1)
    before = content(model)
    assert told in refused(command, "learn", "photos", "--model", model, *words)
    assert content(model) == before


def test_a_method_that_cannot_add_photos_skips_them(works: Works) -> None:
    for colour in ("red", "green"):
        take_photos(Path("photos") / colour, colour)
    options = ("--backbone", "none", "--method", "finetune", "--set", "epochs=1", "--keep-images", "1")
    _, err = works("learn", "photos", "--model", "m", *options)
    assert "from scratch: resnet-glyphs, images of 48 pixels, 1 epoch (settings network.name and epochs choose" in err
    take_photos(Path("photos/red"), "red", 1, first=7)
    out, _ = works("learn", "photos", "--model", "m", *options)
    assert "more photos   1 class, 1 photo: red 1; skipped" in out
    assert "method finetune adds no photos to known classes" in out
    assert "nothing new" in out


def test_a_second_process_waits_and_then_gives_up(
    model: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_photos(Path("photos/blue"), "blue", 1)
    monkeypatch.setattr(model_folder, "WAIT", 0.2)
    with locked(model):
        message = refused(command, "learn", "photos", "--model", model)
        assert re.search(r"m: another process is changing this model \(process \d+ on .*\); waiting", message)
        assert re.search(r"m: another process is changing this model .*; wait for it, or stop it", message)
        assert "another process" in refused(command, "undo", "--model", model)
    monkeypatch.setattr(model_folder, "WAIT", 60)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(model):
            held.set()
            assert done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(5)
    monkeypatch.setattr(locks, "sleep", lambda _: done.set())  # called once the command waits
    code, out, err = command("learn", "photos", "--model", model)
    thread.join()
    assert (code, "; waiting\n" in err, "m: 3 classes" in out) == (0, True, True)


def test_steps_are_bars_on_a_terminal_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with Steps() as steps:
        for done in range(1, 6):
            steps("training", done, 5)
        steps("quick", 5, 5)
        steps("computing", 0, 1)
        steps("computing", 1, 1)
    assert capsys.readouterr().err == "training: 3 of 5\ntraining: 5 in 24.0 s\ncomputing: 6.0 s\n"
    monkeypatch.undo()

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with Steps() as steps:
        steps("at once", 2, 2)
        assert sys.stderr.getvalue() == ""
        steps("training", 0, 5)
        monkeypatch.setattr(steps_module, "SOON", -1)
        steps("training", 1, 5)
        steps.bar[0].refresh()
    assert "training" in sys.stderr.getvalue()
    assert "1/5" in sys.stderr.getvalue()


def test_compare_counts_each_image_once(learned: Path) -> None:
    learner = Learner.load(learned / "m")
    red = sorted((learned / "photos" / "red").iterdir())
    found = learner.compare([(photo, "red") for photo in red] + [(red[0], "green"), (red[1], "crimson")])
    assert found.nothing_new
    assert found.known == {"red": red}
    assert found.renamed == {"crimson": "red"}
    assert [(one.given, one.other, one.learned) for one in found.conflicts] == [("green", "red", True)]
    new = Learner().compare([(red[0], "a"), (red[0], "a"), (red[1], "b"), (red[1], "a")])
    assert new.new == {"a": [red[0], red[1]]}
    assert new.duplicates == [red[0]]
    assert [(one.given, one.other, one.learned) for one in new.conflicts] == [("b", "a", False)]
