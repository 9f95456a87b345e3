"""`phasezero analyze`: files, tables and figures of small runs, and from the files alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from phasezero.analysis.record import load_analyses
from phasezero.cli import app
from phasezero.commands.report import report

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """LUCIR and LUCIR+CwD on 4 + 2 glyphs, two seeds each, every phase kept."""
    folder = tmp_path_factory.mktemp("runs")
    words = [
        "run",
        "--parallel",
        "1",
        "--epochs",
        "1",
        "--seeds",
        "0,1",
        "--out",
        str(folder),
        "--keep-phases",
    ]
    for setting in (
        "protocol.phase_sizes=[4,2]",
        "training.first.batch_size=512",
        "training.later.batch_size=512",
    ):
        words += ["--set", setting]
    assert app(words, standalone_mode=False) is None
    return folder


def test_runs_then_files_alone(command: Command, runs: Path, tmp_path: Path) -> None:
    code, out, err = command(
        "analyze", runs, "--phase", "0", "--phase", "1", "--out", "there", "--future", "--k", "1,3"
    )
    assert code == 0, err
    there = tmp_path / "there"
    files = sorted(path.relative_to(there) for path in there.rglob("analysis-*.json"))
    assert len(files) == 8
    assert Path("lucir+cwd-glyphs-sizes4-2/seed1/analysis-phase0.json") in files
    assert "lucir/glyphs/sizes4-2 (phase=0)" in out
    assert "alpha_3" in out
    assert "larger eta" in out
    comparison = json.loads((there / "comparison.json").read_text())
    assert {one["k"] for one in comparison["findings"]} == {1, 3, None}  # None: of the information proxy
    assert "more information" in out
    assert {one["classes"] for one in comparison["findings"]} == {4, 6}
    for name in ("alpha", "information", "overlap"):
        for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
            assert (there / f"{name}{suffix}").read_bytes().startswith(start)
            assert f"wrote {there / name}{suffix}" in out.replace("wrote there", f"wrote {there}")
    assert not list(runs.rglob("analysis-*.json"))

    # The numbers are enough: no record, no checkpoint, no data.
    kept = tmp_path / "kept"
    for file in files:
        (kept / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(there / file, kept / file)
    code, again, err = command("analyze", kept, "--read", "--k", "1,3")
    assert code == 0, err
    assert again.splitlines()[:10] == out.splitlines()[:10]
    assert json.loads((kept / "comparison.json").read_text()) == comparison
    assert (kept / "alpha.png").read_bytes() == (there / "alpha.png").read_bytes()

    code, out, err = command(
        "analyze", kept, "--read", "--phase", "1", "--later", "--features", "unit", "--split", "test"
    )
    assert code == 0, err
    assert "unit features of the test images" in out
    assert {one["classes"] for one in json.loads((kept / "comparison.json").read_text())["findings"]} == {2}
    code, _, err = command("analyze", kept, "--read", "--phase", "7")
    assert code == 2
    assert "phase 7" in err


def test_one_run_beside_its_record(command: Command, runs: Path, tmp_path: Path) -> None:
    one = tmp_path / "one"
    shutil.copytree(runs / "lucir-glyphs-sizes4-2" / "seed0", one)
    code, _, err = command("analyze", one, "--floor", "1e-6")
    assert code == 0, err
    figures = ["alpha.pdf", "alpha.png", "alpha.svg"]
    assert sorted(path.name for path in one.glob("a*")) == [*figures, "analysis-phase1.json"]
    (analysis,) = load_analyses([one])
    assert analysis["train"]["raw"]["information"]["floor"] == 1e-6

    report([one], tmp_path / "page.html")  # finds what lies beside the record
    text = (tmp_path / "page.html").read_text().partition('id="content">')[2].partition("</script>")[0]
    (group,) = json.loads(text)["groups"]
    shares = [100 * share for share in analysis["test"]["raw"]["alpha_mean"]]
    assert [mean for mean, _ in group["spectra"]["1"]["test"]] == pytest.approx(shares)


def test_later_classes_that_are_not_there_are_missed_aloud(
    command: Command, runs: Path, tmp_path: Path
) -> None:
    one = runs / "lucir-glyphs-sizes4-2" / "seed0"
    code, out, err = command("analyze", one, "--phase", "0", "--later", "--out", "there")
    assert code == 0
    assert "phasezero: warning: --later: these models have no class in common that came after phase 0" in err
    assert "alpha_1" in out  # the table of the model is there all the same
    assert not list((tmp_path / "there").glob("alpha.*"))
    code, _, err = command("analyze", one, "--phase", "1", "--later", "--out", "there")
    assert (code, err) == (0, "")
    assert (tmp_path / "there" / "alpha.png").exists()


BAD = {
    "no run": (["nowhere"], "nowhere: a run's folder is expected"),
    "no such phase": (["RUN", "--phase", "2"], "phases 0 to 1"),
    "bad k": (["RUN", "--k", "1,x"], "separated by commas"),
    "k of zero": (["RUN", "--k", "0"], "number 1"),
    "bad floor": (["RUN", "--floor", "0"], "above zero"),
    "bad split": (["RUN", "--split", "val"], "'train'"),
    "nothing to read": (["RUN", "--read"], "analysis-phaseN.json"),
    "no device": (["RUN", "--device", "abacus"], "abacus"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_costs_a_message_and_leaves_nothing(
    command: Command, runs: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    one = str(runs / "lucir-glyphs-sizes4-2" / "seed0")
    code, _, err = command("analyze", *[one if word == "RUN" else word for word in words], "--out", "out")
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_without_the_model(command: Command, runs: Path, tmp_path: Path) -> None:
    one = tmp_path / "one"
    shutil.copytree(runs / "lucir-glyphs-sizes4-2" / "seed0", one)
    (one / "checkpoint-phase0.safetensors").unlink()
    code, _, err = command("analyze", one, "--phase", "0")
    assert code == 2
    assert "--keep-phases" in err
    (one / "checkpoint-phase1.safetensors").write_bytes(b"no")
    code, _, err = command("analyze", one)
    assert code == 2
    assert "cannot be read" in err


def test_a_run_anew_takes_the_old_models_and_their_analyses_away(
    command: Command, runs: Path, tmp_path: Path
) -> None:
    one = tmp_path / "again" / "lucir-glyphs-sizes4-2" / "seed0"
    shutil.copytree(runs / "lucir-glyphs-sizes4-2" / "seed0", one)
    assert command("analyze", one, "--phase", "0")[0] == 0
    assert {"analysis-phase0.json", "checkpoint-phase1.safetensors"} <= {path.name for path in one.iterdir()}
    code, _, err = command("run", "--config", one / "config.yaml", "--out", "again", "--overwrite")
    assert code == 0, err
    left = {path.name for path in one.iterdir()}
    assert left == {
        "alpha.pdf",
        "alpha.png",
        "alpha.svg",
        "checkpoint.safetensors",
        "config.yaml",
        "record.json",
    }
