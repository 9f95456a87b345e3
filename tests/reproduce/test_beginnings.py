"""Models after phase 0 that figures take from runs which went on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from phasezero.analysis.record import analysis_name, write_analysis
from phasezero.config import RunConfig
from phasezero.presets import preset
from phasezero.reproduce.conduct import Wish, attach, plan
from phasezero.reproduce.pictures import Folders, damaged_analyses, draw
from phasezero.results.grid import markdown
from phasezero.results.record import Record
from samples import analysis_of

Make = Callable[..., Record]


def test_a_longer_run_stands_in_for_one_of_phase_0_alone(record_of: Make, tmp_path: Path) -> None:
    """The model of 50 classes: from any run with B=50 whose phase 0 was analysed, and by that analysis alone."""
    wish = Wish(("fig3",), ("cifar100",), seeds=(0, 1))
    longer = [
        (tmp_path / str(seed) / "record.json", record_of(preset("lucir/cifar100/b50s5", seed=seed)))
        for seed in (0, 1, 2)
    ]
    for path, _ in longer:
        path.parent.mkdir()
        (path.parent / "checkpoint.safetensors").touch()  # of the end, not of phase 0
    lines = attach(plan(wish), longer)[0].lines
    assert all(not line.records for line in lines)
    for path, record in longer[1:]:
        config = RunConfig.from_dict(record["config"])
        write_analysis(path.parent / analysis_name(0), analysis_of(config, [0.5] * 50))
    by_name = {line.config.name: line.records for line in attach(plan(wish), longer)[0].lines}
    assert {name for name, records in by_name.items() if records} == {"lucir/cifar100/sizes50"}
    ((seed, (path, cut)),) = by_name["lucir/cifar100/sizes50"].items()  # seed 2 was not asked for
    assert (seed, path, len(cut["phases"])) == (1, longer[1][0], 1)
    assert cut["summary"]["head"]["average_incremental_accuracy"] == cut["phases"][0]["accuracy"]["head"]
    assert len(longer[1][1]["phases"]) == 2  # the record itself stays whole
    (own,) = (line for line in plan(wish)[0].lines if line.config.name == "lucir/cifar100/sizes50")
    alone = (tmp_path / "own" / "record.json", record_of(own.seeded(1)))
    alone[0].parent.mkdir()
    (alone[0].parent / "checkpoint.safetensors").touch()
    lines = attach(plan(wish), [*longer, alone])[0].lines
    assert [line.records[1][0] for line in lines if line.records] == [
        alone[0]
    ]  # a run of its own comes first
    exact = Wish(("fig3",), ("cifar100",), seeds=(1,), settings={"engine.precision": "fp16"})
    assert all(not line.records for line in attach(plan(exact), longer)[0].lines)  # those are in bf16
    (sphere,) = attach(plan(Wish(("fig1",), ("cifar100",))), longer)  # shows classes to come, too
    assert all(not line.records for line in sphere.lines)


def test_of_phase_0_alone_it_does_not_matter_how_later_ones_would_be(record_of: Make, tmp_path: Path) -> None:
    wish = Wish(("fig3",), ("cifar100",), seeds=(0,), settings={"training.later.epochs": 1})
    (usual,) = (line for line in plan(wish)[0].lines if line.config.name == "lucir/cifar100/sizes50")
    config, path = usual.config.override({"training.later.epochs": 2}), tmp_path / "record.json"
    write_analysis(tmp_path / analysis_name(0), analysis_of(config, [0.5] * 50))
    record = record_of(config)
    there = [(path, {**record, "phases": record["phases"][:1]})]
    assert [line.config.name for line in attach(plan(wish), there)[0].lines if line.records] == [
        usual.config.name
    ]


def test_their_seeds_are_shown_as_one_model(record_of: Make, tmp_path: Path) -> None:
    """Seed 0 from a run with S=10, seed 1 from one with S=5: as two seeds of the run of phase 0 alone."""
    there = []
    for seed, name in enumerate(("b50s10", "b50s5")):
        for term, alpha in (("", 0.6), ("+cwd", 0.5)):
            config = preset(f"lucir{term}/cifar100/{name}", seed=seed)
            path = tmp_path / f"{name}{term}" / "record.json"
            made = analysis_of(config, [alpha] * 50, information=-100.0 - 100.0 * alpha, name=config.name)
            write_analysis(path.parent / analysis_name(0), made)
            there.append((path, record_of(config)))
    (shown,) = attach(plan(Wish(("fig7",), ("cifar100",), seeds=(0, 1))), there)
    drawn = draw(shown, Folders(tmp_path), tmp_path / "fig7")
    text = markdown(drawn.grid)
    assert len(drawn.grid.rows) == 2  # and not four
    assert "| lucir/cifar100/sizes50 | 2 | 50 |" in text
    assert "| lucir+cwd/cifar100/sizes50 | 2 | 50 |" in text
    (findings,) = drawn.further
    assert "100 of 100" in markdown(findings)  # classes times seeds


def test_of_two_precisions_the_one_asked_for_or_the_usual(record_of: Make, tmp_path: Path) -> None:
    """The model without CwD was trained in both, the others in fp16 alone."""
    there = []
    for name, precision in (("lucir", "bf16"), ("lucir", "fp16"), ("lucir+cwd", "fp16")):
        config = preset(f"{name}/cifar100/b50s10")
        path = tmp_path / f"{name}-{precision}" / "record.json"
        write_analysis(path.parent / analysis_name(0), analysis_of(config, [0.5] * 50, name=config.name))
        there.append((path, record_of(config, precision=precision)))

    def used(settings: dict[str, object]) -> list[str]:
        (shown,) = attach(plan(Wish(("fig7",), ("cifar100",), settings=settings)), there)
        return [path.parent.name for line in shown.lines for path, _ in line.records.values()]

    assert used({}) == ["lucir-fp16", "lucir+cwd-fp16"]
    assert used({"engine.precision": "bf16"}) == ["lucir-bf16"]


def test_aanets_phase_0_stands_in_for_lucirs_but_not_in_place_of_it(record_of: Make, tmp_path: Path) -> None:
    """They are the same by their settings: seed 0 was trained for both, seed 1 for AANet alone."""
    there = []
    for name, seed in (("aanet", 0), ("aanet", 1), ("lucir", 0)):
        for term, alpha in (("", 0.6), ("+cwd", 0.5)):
            config = preset(f"{name}{term}/cifar100/b50s10", seed=seed)
            path = tmp_path / f"{name}{term}-{seed}" / "record.json"
            write_analysis(
                path.parent / analysis_name(0), analysis_of(config, [alpha] * 50, name=config.name)
            )
            there.append((path, record_of(config)))
    (shown,) = attach(plan(Wish(("fig7",), ("cifar100",), seeds=(0, 1))), there)
    used = [path.parent.name for line in shown.lines for path, _ in line.records.values()]
    assert used == ["lucir-0", "aanet-1", "lucir+cwd-0", "aanet+cwd-1"]
    drawn = draw(shown, Folders(tmp_path), tmp_path / "fig7")
    assert len(drawn.grid.rows) == 2
    (findings,) = drawn.further
    assert "of 100" in markdown(findings)  # classes times seeds


def test_a_damaged_analysis_counts_as_none(record_of: Make, tmp_path: Path) -> None:
    config = preset("lucir/cifar100/b50s10")
    there = [(tmp_path / "record.json", record_of(config))]
    (tmp_path / analysis_name(0)).write_text('{"format": "phasezero-analysis-1"')
    (shown,) = attach(plan(Wish(("fig3",), ("cifar100",))), there)
    assert all(not line.records for line in shown.lines)
    (told,) = damaged_analyses(there)
    assert analysis_name(0) in told
