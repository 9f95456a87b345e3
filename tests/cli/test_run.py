"""The command: what it prints and writes, and that bad input gives only a message and exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import ANY

import pytest
import yaml

Command = Callable[..., tuple[int, str, str]]
Works = Callable[..., tuple[str, str]]
QUICK = ["--parallel", "1", "--epochs", "1"]
QUICK += ["--set", "training.first.batch_size=512", "--set", "training.later.batch_size=512"]
CHANGED = "-epochs-1-training.first.batch_size-512-training.later.batch_size-512"
"""What these settings add to the name of a run's folder."""


def test_run_show_and_overwrite(command: Command, works: Works, tmp_path: Path) -> None:
    few = ["--set", "protocol.phase_sizes=[4,2]"]
    out, _ = works("run", *QUICK, *few, "--seeds", "0,1", "--out", "there")
    folder = tmp_path / "there"
    names = [f"lucir+cwd-glyphs-sizes4-2{CHANGED}", f"lucir-glyphs-sizes4-2{CHANGED}"]
    assert sorted(path.name for path in folder.iterdir()) == ["curves.png", *names, "report.html", "results.md"]
    for name in names:
        for seed in (0, 1):
            assert json.loads((folder / name / f"seed{seed}" / "record.json").read_text())["seed"] == seed
            assert (folder / name / f"seed{seed}" / "config.yaml").exists()
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "there/curves.png" in out
    assert "page: there/report.html" in out
    assert "<title>phasezero: there</title>" in (folder / "report.html").read_text()
    assert "lucir+cwd seed 1  phase 1/1    6 classes  accuracy " in out
    assert "4 records: there" in out

    out, _ = works("show", "there")
    assert "lucir+cwd " in out
    assert "METHOD/glyphs/sizes4-2,epochs=1" in out  # what the names share
    assert "±" in out  # two seeds: mean and sample deviation
    out, _ = works("show", "there", "--format", "markdown", "--nearest-mean", "--figure", "again.svg")
    assert out.startswith("|")
    assert "<svg" in (tmp_path / "again.svg").read_text()
    assert works("report", "there", "-o", "pages/two.html", "--title", "Two & two")[0] == "pages/two.html\n"
    page = (tmp_path / "pages" / "two.html").read_text()
    assert "<h1>Two &amp; two</h1>" in page
    assert all(f"{label}/glyphs/sizes4-2,epochs=1" in page for label in ("lucir", "lucir+cwd"))
    for name, complaint in (("page.pdf", "must end in .html"), ("again.svg/page.html", "cannot be written")):
        code, out, err = command("report", "there", "-o", name)
        assert (code, out) == (2, "")
        assert complaint in err

    code, _, err = command("run", *QUICK, *few, "--out", "there")
    assert code == 2
    assert "--overwrite" in err
    # A written configuration can be run.
    again = folder / names[0] / "seed1" / "config.yaml"
    out, _ = works("run", "--config", again, "--out", "there", "--overwrite")
    assert "seed 1, into there" in out  # the file's seed

    damaged = folder / names[1] / "seed0" / "record.json"
    damaged.unlink()
    works("run", *QUICK, *few, "--seeds", "0,1", "--out", "there", "--resume")
    assert damaged.exists()


def test_dry_run_prints_the_whole_configuration(works: Works) -> None:
    words = ["run", "lucir+cwd/imagenet100-cwd/b50s5", "--set", "initial.0.form=equation", "--dry-run"]
    out, _ = works(*words, "--memory", "total:2000")
    config = yaml.safe_load(out)
    assert config["initial"] == [{"name": "cwd", "weight": 0.75, "form": "equation", "normalize": True}]
    assert config["protocol"]["memory"] == "total:2000"
    assert config["protocol"]["step"] == 5


def test_a_term_on_a_preset_has_the_weight_published_for_the_data(command: Command) -> None:
    _, out, _ = command("run", "lucir/imagenet/b100s50", "--initial", "cwd", "--dry-run")
    assert yaml.safe_load(out)["initial"][0]["weight"] == 1.5
    _, out, _ = command("run", "lucir+cwd/cifar100/b50s10", "--initial", "none", "--dry-run")
    assert yaml.safe_load(out)["initial"] == []


def test_reproduce_lists_and_plans(works: Works, tmp_path: Path) -> None:
    out, _ = works("reproduce")
    assert "table1" in out
    assert "fig11" in out
    words = ["table1", "--data", "glyphs", "--method", "lucir", "--step", "10,2", "--seeds", "0", "--dry-run"]
    out, _ = works("reproduce", *words)
    assert out.startswith("4 runs, ")  # the total comes first
    assert "to run: " not in out
    listed, _ = works("reproduce", *words, "--list")
    assert listed.count("to run: ") == 4
    assert "lucir+cwd/glyphs/b50s2,later.epochs=2 seed 0, about" in listed
    assert "CIFAR100" in out
    assert list(tmp_path.iterdir()) == []


def test_data_tells_what_is_there(works: Works) -> None:
    out, _ = works("data", "--root", "nowhere")
    rows = {line.split()[0]: line.split()[1] for line in out.splitlines() if line.strip()}
    assert rows["glyphs"] == "found"
    assert rows["cifar100"] == "missing"


BAD = {
    "unknown preset": (["run", "lucir/glyphs"], "write METHOD"),
    "a step that does not fit": (["run", "lucir/glyphs/b50s11"], "step 11 do not fit 100 classes"),
    "unknown method": (["run", "--method", "lucyr"], "did you mean 'lucir'"),
    "unknown term": (["run", "--initial", "cdw:0.5"], "did you mean 'cwd'"),
    "unknown order": (["run", "--class-order", "seed1994"], "did you mean 'seed1993'"),
    "unknown key": (["run", "--set", "training.first.learning_rate=1"], "unknown key in training.first"),
    "unknown engine": (["run", "--engine", "turbo"], "engine.engine"),
    "bad seeds": (["run", "--seeds", "0,x"], "whole numbers"),
    "a seed twice": (["run", "--seeds", "1,1"], "given twice"),
    "base and step": (["run", "--base", "50", "--step", "7"], "base 50 and step 7 do not fit 100 classes"),
    "sizes and base": (
        ["run", "lucir/glyphs/b50s10", "--set", "protocol.phase_sizes=[5,2]", "--base", "5"],
        "protocol.phase_sizes=[]",
    ),
    "sizes that are no list": (["run", "--set", "protocol.phase_sizes=5", "--base", "5"], "a list is expected"),
    "an order without an end": (["run", "--class-order", "[1,2"], "unknown class order '[1,2'"),
    "base too large": (["run", "--base", "101"], "between 1 and 100"),
    "too many exemplars": (["run", "--memory", "per_class:169"], "has only 168 training images"),
    "more than there is": (["run", "--memory", "total:99999"], "only 16800 training images"),
    "another device": (["run", "--device", "mps"], "not supported"),
    "a date that is none": (["run", "--set", "name=2026-13-45"], "the value cannot be read"),
    "a seed without end": (["run", "--seeds", "9" * 5000], "whole numbers"),
    "runs without end": (["run", "--parallel", "9" * 5000], "a number of runs"),
    "epochs without end": (["run", "--epochs", "9" * 400], "at most 300 digits"),
    "a field without end": (["run", "--set", f"seed={'9' * 400}"], "seed: a number of at most 300 digits"),
    "a rate without end": (["run", "--set", f"training.first.lr={'9' * 400}"], "at most 300 digits"),
    "both ways to go on": (["run", "--out", "x", "--resume", "--overwrite"], "choose one"),
    "resume where": (["run", "--resume"], "--out"),
    "long name": (["run", "--out", "x" * 300], "too long"),
    "a store that cannot be": (["run", "--store", "/proc/phasezero"], "/proc/phasezero"),
    "results nowhere to go": (["results", ".", "-o", "/proc/x.md"], "phasezero: /proc/"),
    "no store": (["store", "nowhere"], "no such folder"),
    "missing data": (["run", "--data", "cifar100", "--root", "empty"], "phasezero data get cifar100"),
    "missing folder": (["run", "--data", "folder:none", "--base", "2", "--step", "1"], "none"),
    "folder without B": (["run", "--data", "folder:none"], "--base B and --step S"),
    "missing file": (["run", "--config", "none.yaml"], "none.yaml"),
    "both": (["run", "lucir/glyphs/b50s10", "--data", "glyphs"], "leave them out, or the preset"),
    "no run": (["show", "nowhere"], "nowhere"),
    "unknown format": (["show", "nowhere", "--format", "latx"], "did you mean 'latex'"),
    "unknown target": (["reproduce", "table11"], "did you mean 'table1'"),
    "endless duration": (["reproduce", "table1", "--time-limit", "9" * 400 + "m"], "30m"),
    "another script's digit": (["reproduce", "table1", "--time-limit", "\u0663m"], "30m"),
    "a target's data set": (["reproduce", "table1", "--set", "protocol.data=glyphs"], "use --data"),
    "a target's name set": (["reproduce", "table1", "--set", "name=mine"], "names its runs itself"),
    "numbers into a folder": (["bench", "--out", "."], "this is a folder"),
    "target without data": (["reproduce", "table2", "--root", "empty"], "--data glyphs"),
    "results into a folder": (["results", ".", "-o", "/"], "--out /: this is a folder"),
    "a page into a folder": (["report", "nowhere", "-o", "."], "this is a folder"),
    "a figure into a folder": (["show", "nowhere", "--figure", "."], "this is a folder"),
    "no results": (["results", "nowhere"], "nowhere is not a folder"),
    "no download": (["data", "get", "imagenet"], "cannot be downloaded"),
    "a page of no run": (["report", "nowhere"], "nowhere: no record to read"),
    "a page of an empty folder": (["report", "."], ".: no record.json in this folder"),
    "unknown kind": (["list", "method"], "did you mean 'methods'"),
    "unknown network": (["bench", "--network", "resnet18-cifr"], "did you mean 'resnet18-cifar'"),
    "numbers into no folder": (["bench", "--out", "no/x.json"], "the folder no does not exist"),
    "a folder that cannot be": (["run", "--out", "/proc/phasezero"], "cannot be written"),
    **{
        f"an unset variable, {words[0]}": (["run", *words], f"{words[0].rstrip('=')}: empty argument (unset shell")
        for words in (["--out", ""], ["--store="], ["--data", ""], ["--method", ""])
    },
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str, command: Command, tmp_path: Path) -> None:
    words, message = BAD[case]
    code, _, err = command(*words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_damaged_data_is_refused_before_it_is_unpickled(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "cifar-100-python"
    folder.mkdir(parents=True)
    for name in ("train", "test", "meta"):
        (folder / name).write_bytes(b"not a pickle")
    code, _, err = command("run", "--data", "cifar100")
    assert code == 2
    assert "md5" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_an_output_folder_that_cannot_be_written(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, err = command("run", "--out", "file/below/it")
    assert code == 2
    assert "cannot be written" in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_phases_that_were_not_kept_give_a_warning(command: Command, tmp_path: Path) -> None:
    words = ["run", *QUICK, "--set", "protocol.phase_sizes=[2,1,1]", "--method", "lucir", "--out", "x"]
    assert command(*words) == (0, ANY, "")
    lost = (
        f"phasezero: warning: x/lucir-glyphs-sizes2-1-1{CHANGED}/seed0: phase 0, 1 was finished without --keep-phases"
    )
    code, _, err = command(*words, "--resume", "--keep-phases")
    assert (code, err) == (0, f"{lost}, so its state is gone\n")
    assert command(*words, "--overwrite", "--keep-phases") == (0, ANY, "")


def test_a_full_disk_is_told_with_the_file_that_found_no_room(command: Command, works: Works, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    words = ["run", *QUICK, "--set", "protocol.phase_sizes=[3,1]", "--method", "lucir", "--out", "full", "--resume"]
    whole = resource.getrlimit(resource.RLIMIT_FSIZE)

    def told_with_room_for(size: int) -> tuple[int, str]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, whole[1]))
        try:
            code, _, err = command(*words)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, whole)
        assert not list(tmp_path.rglob(".*.tmp"))
        return code, err

    run = f"full/lucir-glyphs-sizes3-1{CHANGED}/seed0"
    assert told_with_room_for(2000) == (2, f"phasezero: {run}/checkpoint.safetensors: File too large\n")
    works(*words)
    (tmp_path / run / "record.json").unlink()
    assert told_with_room_for(2000) == (2, f"phasezero: {run}/record.json: File too large\n")


def test_a_diverging_run_says_so_and_leaves_nothing(command: Command, tmp_path: Path) -> None:
    code, _, err = command("run", *QUICK, "--set", "training.first.lr=1e12", "--out", "x/y")
    assert code == 1
    assert "training diverged" in err
    assert list(tmp_path.iterdir()) == []


def test_the_installed_command_answers() -> None:
    words = [sys.executable, "-c", "from phasezero.cli.main import main; main()", "run", "--memory", "x"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("phasezero: ")


def test_a_run_is_called_what_it_is(command: Command, tmp_path: Path) -> None:
    """An automatic name follows the settings, a chosen name stays."""
    _, text, _ = command("run", "lucir+cwd/glyphs/b50s10", "--dry-run")
    (tmp_path / "c.yaml").write_text(text)
    (tmp_path / "mine.yaml").write_text(text.replace("lucir+cwd/glyphs/b50s10", "mine"))
    for file, options, name in (
        ("c.yaml", ["--base", "10"], "lucir+cwd/glyphs/b10s10"),
        ("c.yaml", ["--initial", "sdc"], "lucir+sdc/glyphs/b50s10"),
        ("mine.yaml", ["--initial", "sdc"], "mine"),
    ):
        _, out, _ = command("run", "--config", str(tmp_path / file), *options, "--dry-run")
        assert yaml.safe_load(out)["name"] == name


def test_phase_sizes_are_enough_for_a_folder(command: Command, works: Works) -> None:
    sizes = ["--set", "protocol.phase_sizes=[2,1]"]
    out, _ = works("run", "--method", "lucir", "--data", "folder:photos", *sizes, "--dry-run")
    assert yaml.safe_load(out)["protocol"]["phase_sizes"] == [2, 1]
    assert command("run", "--method", "lucir", *sizes, "--base", "2", "--dry-run")[0] == 2
