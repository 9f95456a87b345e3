"""The paper's claims about accuracy on CIFAR100, held against the records: the oracle, and the curve over eta."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from phasezero.reproduce.plan import Line, Shelf, expand, usual_precision, with_records
from phasezero.reproduce.targets import CIFAR100, TARGETS
from phasezero.reproduce.verdicts import NO_RECORD, Checked, so_far, verdict_of
from phasezero.reproduce.views import averages
from phasezero.results.grid import NOTHING, Cell, Grid, Spread
from phasezero.results.record import Record
from phasezero.results.tables import spread

HARDLY = 1.0
"""Points by which phase 0 may change and still "hardly change"; the paper gives no number."""


def on_cifar100(target: str) -> list[Line]:
    return expand(TARGETS[target], CIFAR100, {})


def _of_one_precision(target: str, shelf: Shelf) -> tuple[list[Line], str]:
    """A target's lines with the records of the precision that has most of them: they are not averaged together."""
    lines = on_cifar100(target)
    precision = usual_precision(one for line in lines for one in shelf.of(line.config))
    usual = Shelf(one for one in shelf.records if one[1]["environment"]["precision"] == precision)
    seeds = {record["seed"] for _, record in usual.records}
    return [with_records(line, seeds, usual.of(line.config)) for line in lines], precision


def _checked(
    key: str,
    title: str,
    lines: Sequence[Line],
    verdict: str,
    sentences: list[str],
    grids: list[Grid],
    used: Sequence[Line],
) -> Checked:
    """What came of a claim that all `lines` are about, and that stands on the records of those `used`."""
    paths = [path for line in used for path, _ in line.records.values()]
    configs = [line.config for line in used]
    counted = so_far(verdict, [line.config in configs for line in lines], "settings")
    return Checked(key, title, counted, sentences, grids, paths)


def accuracies(record: Record) -> list[float]:
    """After each phase, by the head."""
    return [phase["accuracy"]["head"] for phase in record["phases"]]


MEASURES: dict[str, Callable[[list[float]], float]] = {
    "phase 0": lambda run: run[0],
    "later phases": lambda run: fmean(run[1:]),
    "last": lambda run: run[-1],
    "average": fmean,
}
"""Of a run's accuracies after each phase."""

Measured = dict[int, dict[str, float]]
"""By seed and measure."""


def check_mimic(shelf: Shelf) -> Checked:
    """Of each beta: later phases, their mean and the last one, above those of beta 0; phase 0 within HARDLY of it.

    Each is compared with beta 0 over the seeds that both have.
    """
    lines, precision = _of_one_precision("fig11", shelf)
    rows: list[list[Cell]] = []
    sentences, used = [], []
    lifts: list[bool] = []
    stays: list[bool] = []
    for panel in dict.fromkeys(line.panel for line in lines):
        there = [line for line in lines if line.panel == panel and line.records]
        by_beta = {line.weight: _measured(line) for line in there}
        changes = _changes(by_beta)
        for line in there:
            runs = by_beta[line.weight].values()
            change = changes.get(line.weight)
            rows.append([str(line.config.protocol.base), f"{line.weight:g}", str(len(runs))])
            rows[-1] += [spread([run[name] for run in runs]) for name in MEASURES]
            rows[-1] += [Spread(change[name], sign=True) if change else NOTHING for name in MEASURES]
        where = panel.partition(": ")[2]
        if not changes:
            both = "a seed that both have" if len(by_beta) > 1 else "beta above 0"
            sentences.append(f"{where}: no record yet of {both if 0.0 in by_beta else 'beta 0'}.")
            continue
        lifted = {beta: min(change["later phases"], change["last"]) > 0 for beta, change in changes.items()}
        not_lifted = [f"{beta:g}" for beta, found in lifted.items() if not found]
        by = "every" if any(lifted.values()) else "no"
        but = f" but {', '.join(not_lifted)}" if by == "every" and not_lifted else ""
        most = max((change["phase 0"] for change in changes.values()), key=abs)
        sentences.append(
            f"{where}: later phases are lifted by {by} beta above 0 that was run{but}; "
            f"phase 0 changes by {most:+.2f} at most "
            f"({'within' if abs(most) <= HARDLY else 'beyond'} {HARDLY:g} point)."
        )
        lifts += lifted.values()
        stays += [abs(change["phase 0"]) <= HARDLY for change in changes.values()]
        used += there
    header = ["B", "beta", "n", *MEASURES, *(f"{name}: change" for name in MEASURES)]
    caption = (
        "Accuracy in percent; later phases: the mean of all but phase 0. Change: from beta 0, over the seeds that "
        "both have." + _in(precision)
    )
    title = (
        "Mimicking the oracle in phase 0 lifts later phases, while phase 0 hardly changes (Fig. 2, Fig. 11)"
    )
    grids = [Grid(header, rows, caption)] if used else []
    verdict = (
        f"lifts: {verdict_of(lifts)}; phase 0 hardly changes: {verdict_of(stays)}" if used else NO_RECORD
    )
    return _checked("mimic", title, lines, verdict, sentences, grids, used)


def _measured(line: Line) -> Measured:
    return {
        seed: {name: measure(accuracies(record)) for name, measure in MEASURES.items()}
        for seed, (_, record) in sorted(line.records.items())
    }


def _changes(by_beta: Mapping[float, Measured]) -> dict[float, dict[str, float]]:
    """From beta 0 to each other beta, in the mean over the seeds that both have; none where they have none."""
    plain = by_beta.get(0.0, {})
    return {
        beta: {name: fmean(some[seed][name] - plain[seed][name] for seed in seeds) for name in MEASURES}
        for beta, some in by_beta.items()
        if beta and (seeds := some.keys() & plain.keys())
    }


def check_eta_curve(shelf: Shelf) -> Checked:
    """Rises and then falls: of three etas or more, 0 among them, the best is neither the first nor the last, over
    the seeds that all of them have.

    Where the largest eta that was run is the best, and the paper has larger ones, nothing is said yet.
    """
    lines, precision = _of_one_precision("fig6", shelf)
    rows: list[list[Cell]] = []
    sentences, verdicts, used = [], [], []
    for step in dict.fromkeys(line.config.protocol.step for line in lines):
        there = sorted(
            (line for line in lines if line.config.protocol.step == step and line.records),
            key=lambda line: line.weight,
        )
        seeds = set.intersection(*(set(line.records) for line in there)) if there else set()
        shared = [
            replace(line, records={seed: line.records[seed] for seed in sorted(seeds)}) for line in there
        ]
        curve = [(line.weight, fmean(averages(line))) for line in shared] if seeds else []
        rows += [
            [str(step), f"{line.weight:g}", str(len(line.records)), spread(averages(line))] for line in there
        ]
        if len(curve) < 3 or curve[0][0] != 0:
            had = ", ".join(f"{line.weight:g}" for line in there) or "none"
            apart = ", without a seed that all have" if there and not seeds else ""
            sentences.append(
                f"S={step}: no record yet of three etas with 0 among them (there: {had}{apart})."
            )
            continue
        best, most = max(curve, key=lambda point: point[1])
        inside = curve[0][0] < best < curve[-1][0]
        planned = max(line.weight for line in lines if line.config.protocol.step == step)
        first, last = Spread(most - curve[0][1], sign=True), Spread(curve[-1][1] - most, sign=True)
        if best == curve[-1][0] < planned:
            sentences.append(
                f"S={step}: rises so far ({first} at eta {best:g}); no record yet of a larger eta."
            )
            continue
        sentences.append(
            f"S={step}: the best eta is {best:g} (n={len(seeds)}), {first} from eta 0, and {last} from there to eta "
            f"{curve[-1][0]:g}: it {'rises and then falls' if inside else 'does not rise and then fall'}."
        )
        verdicts.append(inside)
        used += there
    caption = "Average incremental accuracy in percent." + _in(precision)
    title = "The average incremental accuracy over eta rises and then falls (Fig. 6)"
    grids = [Grid(["S", "eta", "n", "average"], rows, caption)]
    return _checked("eta-curve", title, lines, verdict_of(verdicts), sentences, grids, used)


def _in(precision: str) -> str:
    return f" Runs in {precision}." if precision else ""
