"""`phasezero analyze`: files, tables and figures of small runs, and from the files alone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from phasezero.cli.main import app
from phasezero.cli.report import report
from phasezero.records.analysis import read_analysis

Command = Callable[..., tuple[int, str, str]]
Works = Callable[..., tuple[str, str]]
CHANGED = "-epochs-1-training.first.batch_size-512-training.later.batch_size-512"
PLAIN, CWD = f"lucir-glyphs-sizes4-2{CHANGED}", f"lucir+cwd-glyphs-sizes4-2{CHANGED}"
ENDS = (".png", ".svg", ".pdf", "-caption.txt", "-figure.tex")  # of the files of a figure


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LUCIR and LUCIR+CwD on 4 + 2 glyphs, two seeds each, every phase kept."""
    folder = tmp_path_factory.mktemp("runs")
    words = ["run", "--parallel", "1", "--epochs", "1", "--seeds", "0,1", "--out", str(folder), "--keep-phases"]
    for setting in ("protocol.phase_sizes=[4,2]", "training.first.batch_size=512", "training.later.batch_size=512"):
        words += ["--set", setting]
    assert app(words, standalone_mode=False) is None
    return folder


@pytest.fixture
def one(runs: Path, tmp_path: Path) -> Path:
    """Return a copy of a run, to write next to its record."""
    return Path(shutil.copytree(runs / PLAIN / "seed0", tmp_path / "one"))


def told(text: str) -> str:
    """Return the words of a caption, regardless of line breaks."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_runs_then_files_alone(command: Command, works: Works, runs: Path, tmp_path: Path) -> None:
    out, _ = works("analyze", runs, "--phase", "0", "--phase", "1", "--out", "there", "--future", "--k", "1,3")
    there = tmp_path / "there"
    files = sorted(path.relative_to(there) for path in there.rglob("analysis-*.json"))
    assert len(files) == 8
    assert Path(CWD) / "seed1" / "analysis-phase0.json" in files
    assert "phase=0" in out
    assert "alpha_3" in out
    assert "larger eta" in out
    comparison = json.loads((there / "comparison-phase0-phase1.json").read_text())
    assert (comparison["phases"], comparison["later"]) == ([0, 1], False)
    assert {one["k"] for one in comparison["findings"]} == {1, 3, None}  # None: of the information proxy
    assert "more information" in out
    assert {one["classes"] for one in comparison["findings"]} == {4, 6}
    for name in ("alpha", "information", "overlap"):
        for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
            file = f"{name}-phase0-phase1{suffix}"
            assert (there / file).read_bytes().startswith(start)
            assert f"wrote there/{file}" in out
    # Table, findings and figures over the same classes: the four that models after either phase have seen.
    assert "alpha_k and information: means over the 4 classes that the models are compared on" in told(out)
    for name in ("alpha", "information"):
        words = (there / f"{name}-phase0-phase1-caption.txt").read_text()
        assert "Models after phase 0, 1. Means over the 4 classes that all of them have seen" in words
    assert "Over all classes that each has seen" in (there / "overlap-phase0-phase1-caption.txt").read_text()
    assert not list(runs.rglob("analysis-*.json"))

    # The analyses are enough, without record, checkpoint and data.
    kept = tmp_path / "kept"
    for file in files:
        (kept / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(there / file, kept / file)
    again, _ = works("analyze", kept, "--read", "--k", "1,3")
    assert again.splitlines()[:10] == out.splitlines()[:10]
    assert json.loads((kept / "comparison-phase0-phase1.json").read_text()) == comparison
    alpha = "alpha-phase0-phase1.png"
    assert (kept / alpha).read_bytes() == (there / alpha).read_bytes()
    before = contents(kept)
    works("analyze", *kept.rglob("analysis-phase1.json"), "--read")  # one of each run
    assert json.loads((kept / "comparison.json").read_text())["phases"] == [1]

    out, err = works("analyze", kept, "--read", "--phase", "1", "--later", "--features", "unit", "--split", "test")
    assert "unit features of the test images" in out
    assert "means over the 2 classes after phase 0 that the models are compared on" in told(out)
    assert "classes that the models share, of those after phase 0" in told(out)
    later = json.loads((kept / "comparison-phase1-later-test-unit.json").read_text())
    assert (later["phases"], later["later"]) == ([1], True)
    assert {one["classes"] for one in later["findings"]} == {2}
    for name in ("alpha", "information"):
        words = (kept / f"{name}-phase1-later-test-unit-caption.txt").read_text()
        assert "Models after phase 1. Means over the 2 classes that came after phase 0" in words
    assert "overlap is measured among all classes seen, so it is not drawn" in err
    after = contents(kept)
    assert {name: after[name] for name in before} == before  # the files of the first view are still there
    assert not [name for name in after if name.startswith("overlap") and "later" in name]
    code, _, err = command("analyze", kept, "--read", "--phase", "7")
    assert code == 2
    assert "phase 7" in err


def test_one_run_beside_its_record(works: Works, one: Path, tmp_path: Path) -> None:
    works("analyze", one, "--floor", "1e-6")
    figures = ["alpha-caption.txt", "alpha-figure.tex", "alpha.pdf", "alpha.png", "alpha.svg"]
    assert sorted(path.name for path in one.glob("a*")) == [*figures, "analysis-phase1.json"]
    analysis = read_analysis(one / "analysis-phase1.json")
    assert analysis["train"]["raw"]["information"]["floor"] == 1e-6

    report([one], tmp_path / "page.html")  # finds the analysis next to the record
    text = (tmp_path / "page.html").read_text().partition('id="content">')[2].partition("</script>")[0]
    (group,) = (one["all"] for one in json.loads(text)["groups"])
    shares = [100 * share for share in analysis["test"]["raw"]["alpha_mean"]]
    assert [mean for mean, _ in group["spectra"]["1"]["test"]] == pytest.approx(shares)

    (one / "analysis-phase0.json").write_text((one / "analysis-phase1.json").read_text()[:1000])
    out, err = works("report", one, "-o", "again.html")
    assert out.endswith("again.html\n")
    assert err.startswith(f"phasezero: warning: {one / 'analysis-phase0.json'}: not JSON")
    assert err.endswith("; left out\n")
    assert (tmp_path / "again.html").read_text() == (tmp_path / "page.html").read_text()


def test_what_it_left_beside_runs_does_not_stop_the_next_command(works: Works, runs: Path, tmp_path: Path) -> None:
    for name in (PLAIN, CWD):
        shutil.copytree(runs / name, tmp_path / "there" / name)

    def all_that_lies_there() -> list[Path]:
        return sorted((tmp_path / "there").iterdir())

    works("analyze", *all_that_lies_there())
    left = all_that_lies_there()
    assert {"alpha.pdf", "comparison.json"} < {path.name for path in left}
    for words in (["analyze", *left], ["analyze", "--read", *left], ["show", *left]):
        works(*words)


def test_later_classes_that_are_not_there_give_a_warning(works: Works, runs: Path, tmp_path: Path) -> None:
    one = runs / PLAIN / "seed0"
    out, err = works("analyze", one, "--phase", "0", "--later", "--out", "there")
    assert "phasezero: warning: --later: these models have no class in common that came after phase 0" in err
    assert "alpha_1" in out  # the table of the model is still printed
    assert not list((tmp_path / "there").glob("alpha*"))
    assert works("analyze", one, "--phase", "1", "--later", "--out", "there")[1] == ""
    assert (tmp_path / "there" / "alpha-phase1-later.png").exists()


def test_information_with_different_floors_is_left_out_with_a_warning(works: Works, runs: Path, tmp_path: Path) -> None:
    for name, floor in ((PLAIN, "1e-3"), (CWD, "1e-12")):
        works("analyze", runs / name / "seed0", "--out", "there", "--floor", floor)
    there = tmp_path / "there"
    for old in there.glob("alpha*"):
        old.unlink()
    out, err = works("analyze", there, "--read", "--features", "unit")
    assert "more information" in err
    assert err.count("different floors (1e-12 and 0.001)") == 2  # the statement and the figure
    assert "more information" not in out
    assert "Information with different floors cannot be compared." in told(out)
    findings = json.loads((there / "comparison-unit.json").read_text())["findings"]
    assert {one["claim"] for one in findings} == {"larger eta"}
    names = {name.partition(".")[0] for name in contents(there)}
    assert {name for name in names if not name.endswith(("-caption", "-figure"))} == {
        "alpha-unit",
        "comparison-unit",
        "overlap-unit",
    }


def test_models_without_a_common_seed_are_drawn_all_the_same(works: Works, runs: Path, tmp_path: Path) -> None:
    pair = [runs / PLAIN / "seed0", runs / CWD / "seed1"]
    out, err = works("analyze", *pair, "--out", "there")
    for claim in ("larger eta", "more information"):
        assert f"warning: {claim}: lucir/glyphs/sizes4-2" in err
    assert err.count("have no seed in common; left out") == 2
    assert "alpha_1" in out
    figures = ("alpha", "information", "overlap")
    assert contents(tmp_path / "there").keys() == {f"{name}{end}" for name in figures for end in ENDS}


def test_a_k_beyond_the_features_is_one(command: Command, works: Works, runs: Path, tmp_path: Path) -> None:
    out, err = works("analyze", runs / PLAIN / "seed0", runs / CWD / "seed0", "--out", "there", "--k", "1,1000")
    assert "alpha_1000" in out
    assert "larger eta: alpha_1000 is 1 in every model of 64 features; left out" in err
    comparison = json.loads((tmp_path / "there" / "comparison.json").read_text())
    assert {one["k"] for one in comparison["findings"]} == {1, None}
    before = contents(tmp_path / "there")
    code, out, err = command("analyze", "there", "--read", "--k", "11")  # not measured: refused before anything
    assert (code, out) == (2, "")
    assert "alpha_11 was not measured" in err
    assert contents(tmp_path / "there") == before


BAD = {
    "no such run": (["nowhere"], "nowhere: no such file or folder"),
    "no such analysis": (["nowhere", "--read"], "nowhere: no such file or folder"),
    "no run": (["RUN/config.yaml"], "config.yaml: a run's folder is expected"),
    "no such phase": (["RUN", "--phase", "2"], "phases 0 to 1"),
    "bad k": (["RUN", "--k", "1,x"], "separated by commas"),
    "k of zero": (["RUN", "--k", "0"], "number 1"),
    "bad floor": (["RUN", "--floor", "0"], "above zero"),
    "endless floor": (["RUN", "--floor", "inf"], "finite"),
    "no floor": (["RUN", "--floor", "nan"], "finite"),
    "bad split": (["RUN", "--split", "val"], "'train'"),
    "nothing to read": (["RUN", "--read"], "analysis-phaseN.json"),
    "no device": (["RUN", "--device", "abacus"], "abacus"),
    "read from the end": (["RUN", "--read", "--phase", "-1"], "--phase -1 with --read: name the phase itself"),
    **{
        f"read with {words[0]}": (["RUN", "--read", *words], f"{words[0]} has no effect with --read")
        for words in (["--root", "data"], ["--future"], ["--floor", "1e-12"], ["--store", "s"], ["--device", "cpu"])
    },
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_costs_a_message_and_leaves_nothing(
    command: Command, runs: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    one = str(runs / PLAIN / "seed0")
    code, _, err = command("analyze", *[word.replace("RUN", one) for word in words], "--out", "out")
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_a_store_in_the_environment_does_not_hinder_reading(
    works: Works, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHASEZERO_STORE", "s")
    works("analyze", runs / PLAIN / "seed0", "--out", "there")
    assert works("analyze", "there", "--read")[1] == ""


def test_a_report_takes_no_analysis_for_a_runs_own_that_is_not(
    command: Command, works: Works, runs: Path, one: Path, tmp_path: Path
) -> None:
    other = runs / CWD / "seed0"
    for run in (one, other, runs / PLAIN / "seed1"):
        works("analyze", run, "--phase", "0", "--out", f"from {run.parent.name} {run.name}")
    (own,) = tmp_path.glob(f"from {tmp_path.name} one/**/analysis-phase0.json")
    strangers = [path for path in tmp_path.glob("from */**/analysis-phase0.json") if path != own]
    assert len(strangers) == 2
    shutil.copy(own, one)
    assert command("report", one, "-o", "page.html") == (0, "page.html\n", "")
    copied = one / "analysis-phase0-copied.json"
    shutil.copy(own, copied)
    _, err = works("report", one, "-o", "again.html")
    message = "an analysis of phase 0, which should be named analysis-phase0.json; left out"
    assert err == f"phasezero: warning: {copied}: {message}\n"
    assert (tmp_path / "again.html").read_text() == (tmp_path / "page.html").read_text()
    copied.unlink()
    for stranger in strangers:
        shutil.copy(stranger, one)
        _, err = works("report", one, "-o", "without.html")
        assert err.endswith("not from the run of the record.json next to it; left out\n")
        assert '"spectra":{}' in (tmp_path / "without.html").read_text()


def test_a_phase_that_is_named_twice_is_one(works: Works, runs: Path, tmp_path: Path) -> None:
    run = runs / PLAIN / "seed0"
    once, twice = (["analyze", run, "--phase", "0", *more] for more in ([], ["--phase", "0", "--phase", "-2"]))
    works(*once, "--out", "once")
    assert works(*twice, "--out", "twice")[1] == ""
    assert contents(tmp_path / "once").keys() == contents(tmp_path / "twice").keys()


def test_without_the_model(command: Command, one: Path) -> None:
    (one / "checkpoint-phase0.safetensors").unlink()
    code, _, err = command("analyze", one, "--phase", "0")
    assert code == 2
    assert "--keep-phases" in err
    (one / "checkpoint-phase1.safetensors").write_bytes(b"no")
    code, _, err = command("analyze", one)
    assert code == 2
    assert "is damaged, or not a checkpoint" in err


def test_a_run_anew_takes_the_old_models_and_their_analyses_away(works: Works, runs: Path, tmp_path: Path) -> None:
    one = tmp_path / "again" / PLAIN / "seed0"
    shutil.copytree(runs / PLAIN / "seed0", one)
    works("analyze", one, "--phase", "0")
    assert {"analysis-phase0.json", "checkpoint-phase1.safetensors"} <= contents(one).keys()
    works("run", "--config", one / "config.yaml", "--out", "again", "--overwrite")
    figures = {f"alpha-phase0{end}" for end in ENDS}
    assert contents(one).keys() == {*figures, "checkpoint.safetensors", "config.yaml", "record.json"}
