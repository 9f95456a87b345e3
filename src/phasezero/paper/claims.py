"""The paper's claims about CwD and the oracle, checked by fixed rules on existing runs and analyses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise, product
from pathlib import Path
from statistics import fmean

from phasezero.analysis import compare
from phasezero.config import RunConfig
from phasezero.identity import once_per_seed
from phasezero.paper.plan import Index, RecordIndex, as_run, expand, nearest, usual_precision, with_records
from phasezero.paper.tables import Comparison, Row, Table, compare_row, method_label, paper_name, precision_of, signed
from phasezero.paper.targets import CIFAR100, TARGETS
from phasezero.records.analysis import FORMS, SPLITS, Analysis, Form, Split, shared_classes
from phasezero.records.run import Record
from phasezero.report.analyses import analysis_grid, findings_grid
from phasezero.report.grid import NOTHING, Cell, Grid
from phasezero.report.tables import spread

CLAIMS = {
    "cwd-gain": ("CwD in phase 0 gains accuracy, and gains more where S is smaller (Table 1)", "fig5"),
    "more-classes": ("alpha_k falls as the model has 10, 25, 50, 100 classes (Fig. 3, Fig. 9)", "fig3"),
    "larger-eta": ("Larger eta lowers alpha_k (Fig. 4)", "fig4"),
    "nearer-oracle": ("CwD brings alpha_k nearer to that of the oracle, the model of all classes (Fig. 4)", ""),
    "later-lower": ("CwD in phase 0 also lowers alpha_k of classes that come later (Fig. 10)", "fig10"),
    "later-nearer": ("CwD in phase 0 brings alpha_k of later classes nearer to that of the oracle (Fig. 10)", ""),
    "information": ("The information proxy rises with eta (Fig. 7)", "fig7"),
    "mimic": ("Mimicking the oracle lifts later phases, while phase 0 hardly changes (Fig. 2, Fig. 11)", "fig2"),
    "eta-curve": ("The average incremental accuracy over eta rises and then falls (Fig. 6)", "fig6"),
}
"""The title of each claim, and the figure of the paper that is drawn for it."""

HOLDS, DOES_NOT_HOLD, NO_RECORD = "holds", "does not hold", "no record yet"
HARDLY = 1.0
"""Points by which phase 0 may change and still "hardly change". The paper gives no number."""

Analyses = Sequence[tuple[Path, Analysis]]
Model = tuple[Row, Analyses]
"""A model of a figure, with an analysis for each seed."""


@dataclass(frozen=True)
class CheckedClaim:
    key: str
    verdict: str
    sentences: Sequence[str]
    grids: Sequence[Grid]
    sources: Sequence[Path]
    """The records and analyses that the verdict is based on."""


def check_claims(table1: Sequence[Table], index: RecordIndex, analyses: Analyses) -> list[CheckedClaim]:
    """Check every claim. Models count only if they were trained in the precision that most of them have."""
    folders = {path.parent for path, _ in analyses}
    trained = [run for run in index.all if run[0].parent in folders]
    usual = usual_precision(trained)
    other = {run[0].parent for run in trained if precision_of(run) != usual}
    known = [(path, analysis) for path, analysis in analyses if path.parent not in other]
    # Figs. 3, 4 and 7 show models after phase 0, from any run with that phase 0; Fig. 10 models of all classes.
    started = [(path, analysis) for path, analysis in known if analysis["phase"] == 0]
    ended = [(path, analysis) for path, analysis in known if analysis["seen_classes"] == analysis["data"]["classes"]]
    first = _models(("fig3", "fig4", "fig7"), started, Index.same_phase_zero)
    last = _models(("fig10",), ended, Index.runs)
    with_cwd = {_sizes(model) for model in first if model[0].config.initial}
    oracle = [model for model in first if _sizes(model) == max(map(_sizes, first))]
    return [
        _check_gains(table1),
        _check_models("more-classes", "more classes", [model for model in first if not model[0].config.initial]),
        _check_models("larger-eta", "larger eta", [model for model in first if _sizes(model) in with_cwd]),
        # Without the oracle, the largest model that exists would be taken for it.
        _check_models("nearer-oracle", "nearer to the oracle", first if any(found for _, found in oracle) else oracle),
        _check_models("later-lower", "larger eta", [model for model in last if len(_sizes(model)) != 1], later=True),
        _check_models("later-nearer", "nearer to the oracle", last, later=True),
        _check_models("information", "more information", [model for model in first if _sizes(model) == (50,)], "unit"),
        _check_mimic(index),
        _check_eta_curve(index),
    ]


def verdict_of(found: Iterable[bool], *, on_average: bool = False) -> str:
    """Return the verdict over several cases, or over comparisons of means, of which more than half must agree."""
    cases = list(found)
    if not cases:
        return NO_RECORD
    if not any(cases) or all(cases):
        return HOLDS if all(cases) else DOES_NOT_HOLD
    if not on_average:
        return f"{HOLDS} in {sum(cases)} of {len(cases)} cases"
    counted = f"on average in {sum(cases)} of {len(cases)} comparisons"
    return f"{HOLDS} {counted}" if 2 * sum(cases) > len(cases) else f"{DOES_NOT_HOLD} ({counted})"


def so_far(verdict: str, known: Sequence[bool], what: str) -> str:
    """Add to a verdict the share of the paper's cases that it is based on, if some are missing."""
    return verdict if verdict == NO_RECORD or all(known) else f"{verdict} (so far {sum(known)} of {len(known)} {what})"


def _check_gains(table1: Sequence[Table]) -> CheckedClaim:
    """Check that CwD's gain in Table 1 is positive, and grows from each S to the next smaller S in one precision."""
    families: dict[str, list[tuple[Row, Comparison]]] = {}
    for table in table1:
        for row in (row for row in table.rows if [term.name for term in row.config.initial] == ["cwd"]):
            name = f"{method_label(row.config)} on {paper_name(table.data)}"
            families.setdefault(name, []).append((row, compare_row(table, row)))
    lines: list[list[Cell]] = []
    sources: list[Path] = []
    sentences, missing, uneven, positive, grows = [], [], [], [], {}
    for name, family in families.items():
        gains: list[tuple[str, str, float]] = []  # precision, S and gain
        for row, compared in family:
            step, precision, plain = row.sizes[1], row.precision or NOTHING, compared.plain
            n = [len(plain.averages) if plain else 0, len(compared.ours)]
            if any(n):
                run = [paper_name(row.config.protocol.data), method_label(row.config), step, precision]
                numbers = [signed(compared.gain), "{} and {}".format(*n), signed(compared.published_gain)]
                lines.append([*run, *numbers])
            if plain and compared.gain is not None:
                gains.append((precision, step, compared.gain))
                sources += [*row.paths, *plain.paths]
        published = {row.sizes[1]: compared.published_gain or 0.0 for row, compared in family}
        uneven += [name] if not _rises(list(published.values())) else []
        if not gains:
            missing.append(name)
            continue
        positive.append(all(gain > 0 for *_, gain in gains))
        precisions = {precision for precision, *_ in gains}
        curves = [[gain for other, _, gain in gains if other == precision] for precision in precisions]
        growth = "whether it grows as S shrinks is not known yet"
        if any(len(curve) > 1 for curve in curves):
            grows[name] = all(map(_rises, curves))
            growth = "it grows as S shrinks" if grows[name] else "it does not grow at every step to a smaller S"
        sign = "positive" if positive[-1] else "not positive everywhere"
        ours = ", ".join(f"{gain:+.2f} at S={step}" for _, step, gain in gains)
        theirs = ", ".join(f"{gain:+.2f} at S={step}" for step, gain in published.items())
        sentences.append(f"{name}: the gain is {sign} ({ours}), and {growth}. The paper's: {theirs}.")
    if missing:
        sentences.append(f"No pair of runs yet for {', '.join(missing)}.")
    if uneven:
        sentences.append(f"In the paper's own table the gain does not grow at every step for {', '.join(uneven)}.")
    verdict = f"gains: {verdict_of(positive)}; gains more: {verdict_of(grows.values())}"
    if 0 < len(grows) < len(families):
        verdict += f" (so far {', '.join(grows)})"
    header = ["data", "method", "S", "precision", "gain of CwD", "n without and with", "paper's gain"]
    about = "Gain: our mean with CwD minus our mean without, both in one precision."
    return CheckedClaim("cwd-gain", verdict, sentences, [Grid(header, lines, about, words=2)], sources)


def _rises(curve: Sequence[float]) -> bool:
    return all(before < after for before, after in pairwise(curve))


def on_cifar100(target: str, index: RecordIndex) -> tuple[list[Row], str]:
    """Return a target's rows with the records of the precision that most of them have, and a remark on it."""
    rows = expand(TARGETS[target], CIFAR100)
    usual = usual_precision(run for row in rows for run in index.runs(row.config))
    chosen = [[run for run in index.runs(row.config) if precision_of(run) == usual] for row in rows]
    return list(map(with_records, rows, chosen)), f" Runs in {usual}." * bool(usual)


def _measures(record: Record) -> dict[str, float]:
    curve = [head for phase in record["phases"] if (head := phase["accuracy"]["head"]) is not None]
    return {"phase 0": curve[0], "later phases": fmean(curve[1:]), "last": curve[-1], "average": fmean(curve)}


def _check_mimic(index: RecordIndex) -> CheckedClaim:
    """Check that each beta lifts the mean of later phases and the last, and moves phase 0 by at most HARDLY.

    Each beta is compared with beta 0 over the seeds that both have.
    """
    rows, precision = on_cifar100("fig11", index)
    measures = ("phase 0", "later phases", "last", "average")
    sentences, used, lifts, stays = [], list[Row](), list[bool](), list[bool]()
    lines: list[list[Cell]] = []
    for panel, planned in groupby(rows, key=lambda row: row.panel):
        where, known = panel.partition(": ")[2], [row for row in planned if row.records]
        runs = {row.weight: {seed: _measures(run) for seed, (_, run) in row.records.items()} for row in known}
        plain, changes = runs.get(0.0, {}), {}
        for beta, own in runs.items():
            if beta and (seeds := own.keys() & plain.keys()):
                changes[beta] = {key: fmean(own[seed][key] - plain[seed][key] for seed in seeds) for key in measures}
            numbers = [spread([run[name] for run in own.values()]) for name in measures]
            moved = [signed(changes.get(beta, {}).get(name)) for name in measures]
            lines.append([str(known[0].config.protocol.base), f"{beta:g}", str(len(own)), *numbers, *moved])
        if not changes:
            both = "a seed that both have" if len(runs) > 1 else "beta above 0"
            sentences.append(f"{where}: no record yet of {both if plain else 'beta 0'}.")
            continue
        lifted = {beta: min(change["later phases"], change["last"]) > 0 for beta, change in changes.items()}
        lifts += lifted.values()
        stays += [abs(change["phase 0"]) <= HARDLY for change in changes.values()]
        used += known
        but = ", ".join(f"{beta:g}" for beta, is_lifted in lifted.items() if not is_lifted)
        betas = f"{'every' if any(lifted.values()) else 'no'} beta above 0 that was run"
        betas += f", except {but}" if but and any(lifted.values()) else ""
        most = max((change["phase 0"] for change in changes.values()), key=abs)
        moves = f"{most:+.2f} at most ({'within' if abs(most) <= HARDLY else 'beyond'} {HARDLY:g} point)"
        sentences.append(f"{where}: later phases are lifted by {betas}; phase 0 changes by {moves}.")
    header = ["B", "beta", "n", *measures, *(f"{name}: change" for name in measures)]
    about = "Accuracy in percent. Later phases: the mean of all but phase 0. Change: from beta 0, over common seeds."
    verdict = f"lifts: {verdict_of(lifts)}; phase 0 hardly changes: {verdict_of(stays)}" if used else NO_RECORD
    verdict = so_far(verdict, [row in used for row in rows], "settings")
    grids = [Grid(header, lines, about + precision)] if used else []
    return CheckedClaim("mimic", verdict, sentences, grids, [path for row in used for path in row.paths])


def _check_eta_curve(index: RecordIndex) -> CheckedClaim:
    """Check that of three or more etas, with 0 among them, the best is neither the first nor the last.

    Etas are compared over the seeds that all have. There is no verdict while the largest that was run is the best.
    """
    rows, precision = on_cifar100("fig6", index)
    sentences, verdicts, used = [], [], []
    lines: list[list[Cell]] = []
    for step, rows_of_step in groupby(rows, key=lambda row: row.config.protocol.step):
        planned = list(rows_of_step)
        known = sorted((row for row in planned if row.records), key=lambda row: row.weight)
        seeds = set.intersection(*(set(row.records) for row in known)) if known else set()
        shared = [replace(row, records={seed: row.records[seed] for seed in seeds}) for row in known if seeds]
        etas, means = [row.weight for row in shared], [fmean(row.averages) for row in shared]
        lines += [[str(step), f"{row.weight:g}", str(len(row.records)), spread(row.averages)] for row in known]
        if len(etas) < 3 or etas[0] != 0:
            had = ", ".join(f"{row.weight:g}" for row in known) or "none"
            apart = ", without a seed that all have" if known and not seeds else ""
            sentences.append(f"S={step}: no record yet of three etas with 0 among them (found: {had}{apart}).")
            continue
        best = means.index(max(means))
        rise, fall = f"{means[best] - means[0]:+.2f}", f"{means[-1] - means[best]:+.2f}"
        if etas[best] == etas[-1] < max(row.weight for row in planned):
            sentences.append(f"S={step}: rises so far ({rise} at eta {etas[best]:g}); no record yet of a larger eta.")
            continue
        verdicts.append(0 < best < len(etas) - 1)
        sentences.append(
            f"S={step}: the best eta is {etas[best]:g} (n={len(seeds)}), {rise} from eta 0, and {fall} from there to "
            f"eta {etas[-1]:g}: it {'rises and then falls' if verdicts[-1] else 'does not rise and then fall'}."
        )
        used += known
    verdict = so_far(verdict_of(verdicts), [row in used for row in rows], "settings")
    grid = Grid(["S", "eta", "n", "average"], lines, f"Average incremental accuracy in percent.{precision}")
    return CheckedClaim("eta-curve", verdict, sentences, [grid], [path for row in used for path in row.paths])


def _sizes(model: Model) -> tuple[int, ...]:
    return model[0].config.protocol.phase_sizes


def _models(
    targets: Sequence[str], analyses: Analyses, find: Callable[[Index[Analysis], RunConfig], Analyses]
) -> list[Model]:
    """Return the models of some figures with their analyses, each seed once."""
    index, seeds = Index(analyses), sorted({analysis["seed"] for _, analysis in analyses})
    rows = {row.config.name: row for name in targets for row in expand(TARGETS[name], CIFAR100)}
    models: list[Model] = []
    for row in rows.values():
        alike = [entry for seed in seeds for entry in find(index, row.seeded(seed))]
        found = []
        for seed, (path, analysis) in once_per_seed(alike, nearest(row.config)).items():
            counts = ((size, len(list(phases))) for size, phases in groupby(analysis["phase_sizes"]))
            sizes = " + ".join(f"{count} x {size}" if count > 1 else str(size) for size, count in counts)
            name = f"{method_label(row.config)}, {sizes} classes, eta {row.weight:g}"
            found.append((path, as_run(analysis, row.seeded(seed), name)))
        models.append((row, found))
    return models


def _check_models(
    key: str, claim: compare.Claim, models: Sequence[Model], form: Form = "raw", *, later: bool = False
) -> CheckedClaim:
    """Check a statement on every pair of neighbouring models with a common seed; `later`: on classes after phase 0.

    The paper does not say which features and images its spectra use, so the other choices are also counted.
    """
    analyses = [analysis for _, found in models for _, analysis in found]
    # The paper speaks of every fixed k: every k counts that was measured in all of them.
    ks = sorted(set.intersection(*(set(analysis["k"]) for analysis in analyses))) if analyses else []

    def check(form: Form, split: Split) -> tuple[list[compare.Finding], str, str]:
        """Return the findings, how many cases agree, and how many means."""
        found = compare.compare(analyses, ks=ks, form=form, split=split, later=later, claims=[claim], left_out=[])
        agreeing, cases = sum(finding.holds for finding in found), sum(finding.cases for finding in found)
        means = sum(finding.holds_on_average for finding in found)
        return found, f"{agreeing} of {cases} cases", f"{means} of {len(found)} comparisons"

    findings, cases, means = check(form, "train")
    sentences, grids, information = [], [], claim == "more information"
    compared = {name for finding in findings for name in finding.models}
    if findings:
        few = len(ks) <= len(compare.TABLE_K)
        times = f" times k={', '.join(map(str, ks))}" if few else f" times {len(ks)} k from {ks[0]} to {ks[-1]}"
        what = f"classes times seeds{'' if information else times}"
        sentences.append(f"{cases} ({what}) agree; the mean over classes and seeds agrees in {means}.")
        for split, other in (pair for pair in product(SPLITS, FORMS) if pair != ("train", form)):
            found, cases, means = check(other, split)
            if found:
                sentences.append(f"With {other} features of {split} images: {cases} agree, and the mean in {means}.")
        measures = ["information", "floored", "constant"] if information else [f"alpha_{k}" for k in compare.TABLE_K]
        classes = shared_classes(analyses, later=later)
        columns = ["model", "n", "accuracy", *measures]
        grids.append(analysis_grid(analyses, form=form, classes=classes, later=later, columns=columns))
        grids.append(findings_grid([finding for finding in findings if finding.k in (None, *compare.TABLE_K)]))
    if missing := [row.config.name for row, found in models if not found]:
        sentences.append(f"Not analysed yet: {', '.join(missing)}.")
    alone = dict.fromkeys(analysis["name"] for analysis in analyses if analysis["name"] not in compared)
    if alone and claim != "nearer to the oracle":  # does not compare neighbours
        same = "seed and floor" if information else "seed"
        sentences.append(f"Analysed, but without a neighbour of the same {same}: {'; '.join(alone)}.")
    known = [any(analysis["name"] in compared for _, analysis in found) for _, found in models]
    sources = [path for _, found in models for path, analysis in found if analysis["name"] in compared]
    verdict = verdict_of((finding.holds_on_average for finding in findings), on_average=True)
    if verdict == HOLDS and any(finding.exceptions for finding in findings):
        verdict += " on average, not in every case"
    return CheckedClaim(key, so_far(verdict, known, "models"), sentences, grids, sources)
