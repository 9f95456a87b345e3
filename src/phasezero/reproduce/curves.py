"""The paper's claims about accuracy on CIFAR100, held against the records: the oracle, and the curve over eta."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from phasezero.reproduce.plan import Line, Shelf, expand, usual_precision, with_records
from phasezero.reproduce.targets import CIFAR100, TARGETS
from phasezero.reproduce.verdicts import Checked, so_far, verdict_of
from phasezero.reproduce.views import averages
from phasezero.results.grid import Cell, Grid, Spread
from phasezero.results.metrics import mean_and_deviation
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
    verdicts: Sequence[bool],
    sentences: list[str],
    grids: list[Grid],
    used: Iterable[Line],
) -> Checked:
    """What came of a claim that all `lines` are about, and that stands on the records of those `used`."""
    paths = [path for line in used for path, _ in line.records.values()]
    verdict = so_far(verdict_of(verdicts), [line.records for line in lines], "settings")
    return Checked(key, title, verdict, sentences, grids, paths)


def accuracies(record: Record) -> list[float]:
    """After each phase, by the head."""
    return [phase["accuracy"]["head"] for phase in record["phases"]]


def check_mimic(shelf: Shelf) -> Checked:
    """Later phases: their mean and the last one, both above those of beta 0; phase 0 within HARDLY of it.

    Each beta is compared with beta 0 over the seeds that both have.
    """
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
        by_beta: dict[float, dict[int, dict[str, float]]] = {}
        for line in there:
            of_seed = by_beta[line.weight] = {
                seed: {name: measure(accuracies(record)) for name, measure in measures.items()}
                for seed, (_, record) in sorted(line.records.items())
            }
            values = [spread([one[name] for one in of_seed.values()]) for name in measures]
            rows.append([str(line.config.protocol.base), f"{line.weight:g}", str(len(of_seed)), *values])
        plain = by_beta.pop(0.0, {})
        where = panel.partition(": ")[2]
        rises = [
            {name: fmean(some[seed][name] - plain[seed][name] for seed in seeds) for name in measures}
            for some in by_beta.values()
            if (seeds := some.keys() & plain.keys())
        ]
        if not rises:
            what = "beta 0" if not plain else "a seed that both have" if by_beta else "beta above 0"
            sentences.append(f"{where}: no record yet of {what}.")
            continue
        lifts = all(rise[name] > 0 for rise in rises for name in ("later phases", "last"))
        change = max((rise["phase 0"] for rise in rises), key=abs)
        sentences.append(
            f"{where}: later phases are {'' if lifts else 'not '}lifted by every beta above 0 that was run; "
            f"phase 0 changes by {change:+.2f} at most ({'within' if abs(change) <= HARDLY else 'beyond'} "
            f"{HARDLY:g} point)."
        )
        verdicts.append(lifts and abs(change) <= HARDLY)
        used += there
    header = ["B", "beta", "n", *measures]
    caption = "Accuracy in percent; later phases: the mean of all but phase 0. Compared seed by seed."
    caption += _in(precision)
    title = (
        "Mimicking the oracle in phase 0 lifts later phases, while phase 0 hardly changes (Fig. 2, Fig. 11)"
    )
    grids = [Grid(header, rows, caption)] if verdicts else []
    return _checked("mimic", title, lines, verdicts, sentences, grids, used)


def check_eta_curve(shelf: Shelf) -> Checked:
    """Rises and then falls: of three etas or more, 0 among them, the best is neither the first nor the last.

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
        planned = max(line.weight for line in lines if line.config.protocol.step == step)
        first, last = Spread(most - curve[0][1], sign=True), Spread(curve[-1][1] - most, sign=True)
        if best == curve[-1][0] < planned:
            sentences.append(
                f"S={step}: rises so far ({first} at eta {best:g}); no record yet of a larger eta."
            )
            continue
        sentences.append(
            f"S={step}: the best eta is {best:g}, {first} from eta 0, and {last} from there to eta "
            f"{curve[-1][0]:g}: it {'rises and then falls' if inside else 'does not rise and then fall'}."
        )
        verdicts.append(inside)
    caption = "Average incremental accuracy in percent." + _in(precision)
    title = "The average incremental accuracy over eta rises and then falls (Fig. 6)"
    grids = [Grid(["S", "eta", "n", "average"], rows, caption)]
    return _checked("eta-curve", title, lines, verdicts, sentences, grids, used)


def _in(precision: str) -> str:
    return f" Runs in {precision}." if precision else ""
