"""The paper's claims about what CwD and the oracle do, held against the CIFAR100 runs and analyses that are there.

The paper made these on ImageNet100. Each claim is checked on the runs of a figure of the paper, by rules that are
written down here and, where it is about accuracy, in `curves.py`; nothing is decided by looking.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from phasezero.analysis import compare
from phasezero.analysis.record import SPLITS, Analysis, Split, shared_classes
from phasezero.analysis.spectra import FORMS, Form
from phasezero.analysis.tables import (
    analysis_caption,
    analysis_cells,
    chosen_columns,
    findings_grid,
)
from phasezero.reproduce.beginnings import ByPhaseZero, told_alone, told_as
from phasezero.reproduce.curves import check_eta_curve, check_mimic, on_cifar100
from phasezero.reproduce.plan import Line, Shelf, by_configuration, run_key, usual_precision
from phasezero.reproduce.verdicts import DOES_NOT_HOLD, HOLDS, NO_RECORD, ON_AVERAGE, Checked, so_far
from phasezero.reproduce.views import NAMES
from phasezero.results.grid import Grid

CLAIM_KEYS = (
    "cwd-gain",
    "more-classes",
    "larger-eta",
    "nearer-oracle",
    "later-lower",
    "later-nearer",
    "information",
    "mimic",
    "eta-curve",
)


def check_claims(shelf: Shelf, analyses: Sequence[tuple[Path, Analysis]]) -> list[Checked]:
    comparable = _of_usual_precision(shelf, analyses)
    models, at_the_end = models_of_figures(comparable), models_at_the_end(comparable)
    return [
        _more_classes(models),
        _larger_eta(models),
        _nearer_to_the_oracle(models),
        _later_lower(at_the_end),
        _later_nearer(at_the_end),
        _information(models),
        check_mimic(shelf),
        check_eta_curve(shelf),
    ]


def _of_usual_precision(
    shelf: Shelf, analyses: Sequence[tuple[Path, Analysis]]
) -> list[tuple[Path, Analysis]]:
    """Of models trained in the precision that most were, by the records beside them (analyses are all in float32)."""
    folders = {path.parent for path, _ in analyses}
    beside = {path.parent: (path, record) for path, record in shelf.records if path.parent in folders}
    usual = usual_precision(beside.values())
    other = {folder for folder, (_, record) in beside.items() if record["environment"]["precision"] != usual}
    return [one for one in analyses if one[0].parent not in other]


@dataclass(frozen=True)
class Model:
    """A model that a figure is about, and its analysis, if there is one."""

    line: Line
    found: tuple[tuple[Path, Analysis], ...]
    """One for each seed."""


def models_of_figures(analyses: Iterable[tuple[Path, Analysis]]) -> list[Model]:
    """Those of Figs. 3, 4 and 7, after phase 0, which is the same whatever follows it.

    The model of 50 classes may come from any run with B=50; its analysis is told as that of the run of phase 0 alone.
    """
    of_phase_0 = [one for one in analyses if one[1]["phase"] == 0]
    there, seeds = ByPhaseZero(of_phase_0), sorted({analysis["seed"] for _, analysis in of_phase_0})
    lines = {line.config.name: line for name in ("fig3", "fig4", "fig7") for line in on_cifar100(name)}
    models = []
    for line in lines.values():
        found = [one for seed in seeds for one in there.of(line.seeded(seed))[:1]]
        models.append(Model(line, tuple(_named(line, *one) for one in found)))
    return models


def _named(line: Line, path: Path, analysis: Analysis) -> tuple[Path, Analysis]:
    config = line.seeded(analysis["seed"])
    name = f"{NAMES[config.method.name]}, {analysis['seen_classes']} classes, eta {line.weight:g}"
    return path, told_alone(analysis, config, name)


def models_at_the_end(analyses: Iterable[tuple[Path, Analysis]]) -> list[Model]:
    """Those of Fig. 10, which have seen all classes: LUCIR without CwD, with it in phase 0, and the oracle."""
    complete = (one for one in analyses if one[1]["seen_classes"] == one[1]["data"]["classes"])
    by_run = by_configuration(complete, run_key)
    models = []
    for line in on_cifar100("fig10"):
        seeds: dict[int, tuple[Path, Analysis]] = {}
        for path, one in by_run.get(run_key(line.config), []):
            told = told_as(one, line.seeded(one["seed"]), _name_at_the_end(line, one))
            seeds.setdefault(one["seed"], (path, told))
        models.append(Model(line, tuple(found for _, found in sorted(seeds.items()))))
    return models


def _name_at_the_end(line: Line, analysis: Analysis) -> str:
    sizes = " + ".join(
        f"{count} x {size}" if (count := len(list(some))) > 1 else str(size)
        for size, some in itertools.groupby(analysis["phase_sizes"])
    )
    return f"{NAMES[line.config.method.name]}, {sizes} classes, eta {line.weight:g}"


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
    sizes = {model.line.config.protocol.phase_sizes for model in models if model.line.config.initial}
    shown = [model for model in models if model.line.config.protocol.phase_sizes in sizes]
    return _spectra("larger-eta", "larger eta", title, shown, "raw")


def _nearer_to_the_oracle(models: Sequence[Model]) -> Checked:
    title = "CwD brings alpha_k nearer to that of the oracle, the model of all classes (Fig. 4)"
    most = max(model.line.config.protocol.phase_sizes for model in models)
    oracle = [model for model in models if model.line.config.protocol.phase_sizes == most]
    there = any(model.found for model in oracle)  # else the largest that is there would be taken for it
    return _spectra("nearer-oracle", "nearer to the oracle", title, models if there else oracle, "raw")


def _later_lower(models: Sequence[Model]) -> Checked:
    title = "CwD in phase 0 lowers alpha_k of classes that come later, too (Fig. 10)"
    pair = [model for model in models if len(model.line.config.protocol.phase_sizes) != 1]
    return _spectra("later-lower", "larger eta", title, pair, "raw", later=True)


def _later_nearer(models: Sequence[Model]) -> Checked:
    title = "CwD in phase 0 brings alpha_k of classes that come later nearer to that of the oracle (Fig. 10)"
    return _spectra("later-nearer", "nearer to the oracle", title, models, "raw", later=True)


def _information(models: Sequence[Model]) -> Checked:
    shown = [model for model in models if model.line.config.protocol.phase_sizes == (50,)]
    title = "The information proxy rises with eta (Fig. 7)"
    return _spectra("information", "more information", title, shown, "unit")


def _spectra(
    key: str, claim: compare.Claim, title: str, models: Sequence[Model], form: Form, *, later: bool = False
) -> Checked:
    """A statement that `compare` knows, over every pair of neighbouring models with a seed in common.

    The paper does not say which features and images its spectra are of; the other choices are told, too.
    With `later`, of classes that came after phase 0 alone.
    """
    analyses = [analysis for model in models for _, analysis in model.found]
    findings = _findings(claim, analyses, form, later=later)
    missing = [model.line.config.name for model in models if not model.found]
    sentences = [f"Not analysed yet: {', '.join(missing)}."] if missing else []
    names = {name for finding in findings for name in finding.models}
    alone = list(dict.fromkeys(one["name"] for one in analyses if one["name"] not in names))
    if alone and claim != "nearer to the oracle":  # which is not about neighbours
        same = "seed and floor" if claim == "more information" else "seed"
        sentences.append(f"Analysed, but without a neighbour of the same {same}: {'; '.join(alone)}.")
    grids = []
    if findings:
        cases, exceptions = (
            sum(finding.cases for finding in findings),
            sum(len(finding.exceptions) for finding in findings),
        )
        worst = [finding for finding in findings if not finding.holds_on_average]
        told = f"{cases - exceptions} of {cases} cases (classes times seeds{_times_k(findings)}) agree"
        told += f"; the mean over classes and seeds disagrees in {len(worst)} of {len(findings)} comparisons."
        sentences = [told, *_of_other_features(claim, analyses, form, later), *sentences]
        grids.append(_analysis_grid(analyses, form, claim, later))
        grids.append(findings_grid([one for one in findings if one.k is None or one.k in compare.TABLE_K]))
    return Checked(
        key,
        title,
        so_far(
            _verdict_of(findings), [any(one["name"] in names for _, one in model.found) for model in models]
        ),
        sentences,
        grids,
        [path for model in models for path, one in model.found if one["name"] in names],
    )


def _of_other_features(
    claim: compare.Claim, analyses: Sequence[Analysis], shown: Form, later: bool
) -> Iterable[str]:
    for split, form in itertools.product(SPLITS, FORMS):
        if (split, form) == ("train", shown):
            continue
        if found := _findings(claim, analyses, form, split, later=later):
            agreeing, cases = sum(one.holds for one in found), sum(one.cases for one in found)
            means = sum(one.holds_on_average for one in found)
            yield (
                f"Of {form} features and {split} images: {agreeing} of {cases} cases agree, and the mean does in "
                f"{means} of {len(found)} comparisons."
            )


def _findings(
    claim: compare.Claim, analyses: Sequence[Analysis], form: Form, split: Split = "train", *, later: bool
) -> list[compare.Finding]:
    """For every k that was measured in all of them: the paper speaks of every fixed k."""
    ks = sorted(set.intersection(*(set(one["k"]) for one in analyses))) if analyses else []
    return compare.compare(analyses, ks=ks, form=form, split=split, later=later, claims=[claim], left_out=[])


def _times_k(findings: Sequence[compare.Finding]) -> str:
    ks = sorted({finding.k for finding in findings if finding.k is not None})
    if len(ks) <= len(compare.TABLE_K):
        return f" times k={', '.join(map(str, ks))}" if ks else ""
    return f" times {len(ks)} k from {ks[0]} to {ks[-1]}"


def _analysis_grid(analyses: Sequence[Analysis], form: Form, claim: compare.Claim, later: bool) -> Grid:
    about = claim == "more information"
    columns = ["information", "floored", "constant"] if about else [f"alpha_{k}" for k in compare.TABLE_K]
    classes = shared_classes(analyses, later=later)
    cells = analysis_cells(analyses, form=form, classes=classes)
    caption = analysis_caption(analyses, "train", form, classes=classes, later=later, columns=columns)
    return Grid(*chosen_columns(cells, ["model", "n", "accuracy", *columns]), caption)


def _verdict_of(findings: Sequence[compare.Finding]) -> str:
    if not findings:
        return NO_RECORD
    holding = sum(finding.holds_on_average for finding in findings)
    told = f"on average in {holding} of {len(findings)} comparisons"
    if not holding:
        return DOES_NOT_HOLD
    if 2 * holding <= len(findings):
        return f"{DOES_NOT_HOLD} ({told})"
    if holding < len(findings):
        return f"{HOLDS} {told}"
    return ON_AVERAGE if any(finding.exceptions for finding in findings) else HOLDS
