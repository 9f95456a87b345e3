"""The paper's claims about what CwD and the oracle do, held against the CIFAR100 runs and analyses that are there.

The paper made these on ImageNet100. Each claim is checked on the runs of a figure of the paper, by rules that are
written down here; nothing is decided by looking.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from phasezero.analysis import compare
from phasezero.analysis.record import Analysis, shared_classes
from phasezero.analysis.spectra import Form
from phasezero.analysis.tables import (
    analysis_caption,
    analysis_cells,
    chosen_columns,
    findings_grid,
)
from phasezero.config import RunConfig
from phasezero.errors import UserError
from phasezero.reproduce.plan import Line, Shelf, expand, phase_zero_of, with_records
from phasezero.reproduce.targets import CIFAR100, TARGETS
from phasezero.reproduce.verdicts import DOES_NOT_HOLD, HOLDS, NO_RECORD, ON_AVERAGE, Checked, verdict_of
from phasezero.reproduce.views import NAMES, averages
from phasezero.results.grid import Cell, Grid, Spread
from phasezero.results.metrics import mean_and_deviation
from phasezero.results.record import class_hash
from phasezero.results.tables import spread

HARDLY = 1.0
"""Points by which phase 0 may change and still "hardly change"; the paper gives no number."""

CLAIM_KEYS = ("cwd-gain", "more-classes", "larger-eta", "information", "mimic", "eta-curve")


def check_claims(shelf: Shelf, analyses: Sequence[tuple[Path, Analysis]]) -> list[Checked]:
    models = models_of_figures(analyses)
    return [
        _more_classes(models),
        _larger_eta(models),
        _information(models),
        _mimic(shelf),
        _eta_curve(shelf),
    ]


@dataclass(frozen=True)
class Model:
    """A model after phase 0 that Figs. 3, 4 and 7 are about, and its analysis, if there is one."""

    line: Line
    found: tuple[tuple[Path, Analysis], ...]
    """One for each seed."""


def models_of_figures(analyses: Iterable[tuple[Path, Analysis]]) -> list[Model]:
    """A phase 0 is the same whatever follows it: the model of 50 classes may come from any run with B=50.

    Its analysis is told as that of the run of phase 0 alone, so that seeds from different runs stand together.
    """
    by_phase_zero: dict[str, tuple[Path, Analysis]] = {}
    for path, analysis in analyses:
        if analysis["phase"] == 0:
            with contextlib.suppress(UserError):  # of another version, with settings that are no more
                config = RunConfig.from_dict(analysis["config"])
                by_phase_zero.setdefault(phase_zero_of(config), (path, analysis))
    seeds = sorted({analysis["seed"] for _, analysis in by_phase_zero.values()})
    lines = {line.config.name: line for name in ("fig3", "fig4", "fig7") for line in _lines(name)}
    models = []
    for line in lines.values():
        found = [by_phase_zero.get(phase_zero_of(line.seeded(seed))) for seed in seeds]
        models.append(Model(line, tuple(_told_as(line, *one) for one in found if one)))
    return models


def _lines(target: str) -> list[Line]:
    return expand(TARGETS[target], CIFAR100, {})


def _told_as(line: Line, path: Path, analysis: Analysis) -> tuple[Path, Analysis]:
    config = line.seeded(analysis["seed"])
    name = f"{NAMES[config.method.name]}, {analysis['seen_classes']} classes, eta {line.weight:g}"
    seen = class_hash(analysis["classes"][: analysis["seen_classes"]])  # not of classes that only came later
    changed = {"name": name, "config": config.to_dict(), "data": {**analysis["data"], "class_hash": seen}}
    return path, cast(Analysis, {**analysis, **changed})


def _more_classes(models: Sequence[Model]) -> Checked:
    return _spectra(
        "more-classes",
        "more classes",
        "alpha_k falls as the model has 10, 25, 50, 100 classes (Fig. 3, Fig. 9)",
        [model for model in models if not model.line.config.initial],
        "raw",
    )


def _larger_eta(models: Sequence[Model]) -> Checked:
    title = "Larger eta lowers alpha_k (Fig. 4)"
    return _spectra("larger-eta", "larger eta", title, models, "raw")


def _information(models: Sequence[Model]) -> Checked:
    return _spectra(
        "information",
        "more information",
        "The information proxy rises with eta (Fig. 7)",
        [model for model in models if model.line.config.protocol.phase_sizes == (50,)],
        "unit",
    )


def _spectra(key: str, claim: compare.Claim, title: str, models: Sequence[Model], form: Form) -> Checked:
    """A statement that `compare` knows, over every pair of neighbouring models with a seed in common."""
    found = [one for model in models for one in model.found]
    analyses = [analysis for _, analysis in found]
    compared = compare.compare(analyses, form=form, unpaired="leave out")
    findings = [finding for finding in compared if finding.claim == claim]
    missing = [model.line.config.name for model in models if not model.found]
    sentences = [f"Not analysed yet: {', '.join(missing)}."] if missing else []
    grids = []
    if findings:
        cases, exceptions = (
            sum(finding.cases for finding in findings),
            sum(len(finding.exceptions) for finding in findings),
        )
        worst = [finding for finding in findings if not finding.holds_on_average]
        told = f"{cases - exceptions} of {cases} cases (classes times seeds{_times_k(findings)}) agree"
        told += f"; the mean over classes and seeds disagrees in {len(worst)} of {len(findings)} comparisons."
        sentences.insert(0, told)
        grids.append(_analysis_grid(analyses, form, claim))
        grids.append(findings_grid(findings))
    return Checked(
        key, title, _verdict_of(findings), sentences, grids, [path for path, _ in found] if findings else []
    )


def _times_k(findings: Sequence[compare.Finding]) -> str:
    ks = sorted({finding.k for finding in findings if finding.k is not None})
    return f" times k={', '.join(map(str, ks))}" if ks else ""


def _analysis_grid(analyses: Sequence[Analysis], form: Form, claim: compare.Claim) -> Grid:
    about = claim == "more information"
    columns = ["information", "floored"] if about else [f"alpha_{k}" for k in compare.TABLE_K]
    classes = shared_classes(analyses)
    cells = analysis_cells(analyses, form=form, classes=classes)
    caption = analysis_caption(analyses, "train", form, classes=classes, information=about)
    return Grid(*chosen_columns(cells, ["model", "n", "accuracy", *columns]), caption)


def _verdict_of(findings: Sequence[compare.Finding]) -> str:
    if not findings:
        return NO_RECORD
    if not all(finding.holds_on_average for finding in findings):
        return DOES_NOT_HOLD
    return ON_AVERAGE if any(finding.exceptions for finding in findings) else HOLDS


def _of_one_precision(target: str, shelf: Shelf) -> tuple[list[Line], str]:
    """A target's lines with the records of the precision that has most of them: they are not averaged together."""
    counts = Counter(
        record["environment"]["precision"] for line in _lines(target) for _, record in shelf.of(line.config)
    )
    if not counts:
        return _lines(target), ""
    precision = min(counts, key=lambda name: (-counts[name], name))
    some = Shelf(one for one in shelf.records if one[1]["environment"]["precision"] == precision)
    seeds = {record["seed"] for _, record in some.records}
    return [with_records(line, seeds, some) for line in _lines(target)], precision


def _paths(lines: Iterable[Line]) -> list[Path]:
    return [path for line in lines for path, _ in line.records.values()]


def _mimic(shelf: Shelf) -> Checked:
    """Later phases: their mean and the last one, both above those of beta 0; phase 0 within HARDLY of it."""
    lines, precision = _of_one_precision("fig11", shelf)
    measures: dict[str, Callable[[list[float]], float]] = {
        "phase 0": lambda run: run[0],
        "later phases": lambda run: sum(run[1:]) / len(run[1:]),
        "last": lambda run: run[-1],
        "average": lambda run: sum(run) / len(run),
    }
    rows: list[list[Cell]] = []
    sentences, verdicts, used = [], [], []
    for panel in dict.fromkeys(line.panel for line in lines):
        there = [line for line in lines if line.panel == panel and line.records]
        means = {}
        for line in there:
            runs = [
                [phase["accuracy"]["head"] for phase in record["phases"]]
                for _, (_, record) in sorted(line.records.items())
            ]
            values = {name: [measure(run) for run in runs] for name, measure in measures.items()}
            means[line.weight] = {name: mean_and_deviation(some)[0] for name, some in values.items()}
            size = str(line.config.protocol.base)
            rows.append([size, f"{line.weight:g}", str(len(runs)), *map(spread, values.values())])
        plain = means.pop(0.0, None)
        where = panel.partition(": ")[2]
        if plain is None or not means:
            sentences.append(f"{where}: no record yet of beta {'above 0' if plain else '0'}.")
            continue
        lifts = all(some[name] > plain[name] for some in means.values() for name in ("later phases", "last"))
        change = max((some["phase 0"] - plain["phase 0"] for some in means.values()), key=abs)
        sentences.append(
            f"{where}: later phases are {'' if lifts else 'not '}lifted by every beta above 0 that was run; "
            f"phase 0 changes by {change:+.2f} at most ({'within' if abs(change) <= HARDLY else 'beyond'} "
            f"{HARDLY:g} point)."
        )
        verdicts.append(lifts and abs(change) <= HARDLY)
        used += there
    header = ["B", "beta", "n", *measures]
    caption = "Accuracy in percent; later phases: the mean of all but phase 0." + _in(precision)
    return Checked(
        "mimic",
        "Mimicking the oracle in phase 0 lifts later phases, while phase 0 hardly changes (Fig. 2, Fig. 11)",
        verdict_of(verdicts),
        sentences,
        [Grid(header, rows, caption)] if verdicts else [],
        _paths(used),
    )


def _eta_curve(shelf: Shelf) -> Checked:
    """Rises and then falls: of three etas or more, 0 among them, the best is neither the first nor the last."""
    lines, precision = _of_one_precision("fig6", shelf)
    rows: list[list[Cell]] = []
    sentences, verdicts, used = [], [], []
    for step in dict.fromkeys(line.config.protocol.step for line in lines):
        there = sorted(
            (line for line in lines if line.config.protocol.step == step and line.records),
            key=lambda line: line.weight,
        )
        curve = [(line.weight, mean_and_deviation(averages(line))[0]) for line in there]
        rows += [
            [str(step), f"{line.weight:g}", str(len(line.records)), spread(averages(line))] for line in there
        ]
        used += there
        if len(curve) < 3 or curve[0][0] != 0:
            had = ", ".join(f"{eta:g}" for eta, _ in curve) or "none"
            sentences.append(f"S={step}: no record yet of three etas with 0 among them (there: {had}).")
            continue
        best, most = max(curve, key=lambda point: point[1])
        inside = curve[0][0] < best < curve[-1][0]
        first, last = Spread(most - curve[0][1], sign=True), Spread(curve[-1][1] - most, sign=True)
        sentences.append(
            f"S={step}: the best eta is {best:g}, {first} from eta 0, and {last} from there to eta "
            f"{curve[-1][0]:g}: it {'rises and then falls' if inside else 'does not rise and then fall'}."
        )
        verdicts.append(inside)
    caption = "Average incremental accuracy in percent." + _in(precision)
    return Checked(
        "eta-curve",
        "The average incremental accuracy over eta rises and then falls (Fig. 6)",
        verdict_of(verdicts),
        sentences,
        [Grid(["S", "eta", "n", "average"], rows, caption)],
        _paths(used),
    )


def _in(precision: str) -> str:
    return f" Runs in {precision}." if precision else ""
