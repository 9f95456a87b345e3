"""The paper's claims on made-up records and analyses, where every answer is known."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from phasezero.config import RunConfig
from phasezero.paper.claims import CLAIMS, check_claims
from phasezero.paper.plan import RecordIndex
from phasezero.paper.results import paper_table
from phasezero.presets import build_config, preset
from phasezero.records.analysis import Analysis
from phasezero.records.run import Record
from phasezero.report.grid import markdown
from samples import analysis_of

Records = list[tuple[Path, Record]]
Runs = Callable[..., Records]
Analyses = Sequence[tuple[Path, Analysis]]
NONE = "no record yet"


def check(key: str, records: Sequence[tuple[Path, Record]] = (), analyses: Analyses = ()) -> tuple[str, str]:
    """A claim's verdict, without how many models it is based on; and all that is said about it."""
    index = RecordIndex(records, dict(analyses))
    claims = check_claims([paper_table("table1", data, index) for data in ("cifar100", "imagenet")], index, analyses)
    assert [claim.key for claim in claims] == list(CLAIMS)
    (claim,) = (claim for claim in claims if claim.key == key)
    parts = [claim.verdict, *claim.sentences, *map(markdown, claim.grids), *map(str, claim.sources)]
    return re.sub(r" \(so far \d+ of \d+ (models|settings)\)", "", claim.verdict), "\n".join(parts)


@pytest.fixture
def runs(record_of: Callable[..., Record]) -> Runs:
    def make(name: str, values: Sequence[float], precision: str = "fp16", first: float | None = None) -> Records:
        """A run of a preset on CIFAR100 for each seed, its phases all at the value, or phase 0 at `first`."""
        found = []
        for seed, value in enumerate(values):
            record = record_of(preset(name.replace("/", "/cifar100/"), seed=seed), value, precision)
            if first is not None:
                record["phases"][0]["accuracy"]["head"] = first
            found.append((Path(f"{name.replace('/', '-')}-{precision}/seed{seed}/record.json"), record))
        return found

    return make


SO_FAR = " (so far LUCIR on CIFAR100)"
EQUAL = ([60.0], [60.0])


@pytest.mark.parametrize(
    ("steps", "gains", "more", "words"),
    [
        ({}, NONE, NONE, "No pair of runs yet for LUCIR on CIFAR100"),
        # 67.4 - 66.5; the paper's 67.26 - 66.27
        ({10: ([66.0, 67.0], [67.0, 67.0, 68.2])}, "holds", NONE, "| 10 | fp16 | +0.90 | 2 and 3 | +0.99 |"),
        ({10: ([66.0], [67.0])}, "holds", NONE, "The paper's: +0.99 at S=10, +2.09 at S=5, +3.85 at S=2."),
        ({10: ([66.0], [67.0]), 2: ([50.0], [53.0])}, "holds", f"holds{SO_FAR}", "it grows as S shrinks"),
        ({5: ([60.0], [63.5]), 2: ([50.0], [53.0])}, "holds", f"does not hold{SO_FAR}", "(+3.50 at S=5, +3.00 at S=2)"),
        # No difference is no gain, and an equal gain no growth. By the paper LUCIR gains 1.02 and 0.62 on ImageNet.
        ({10: EQUAL, 5: EQUAL}, "does not hold", f"does not hold{SO_FAR}", "for LUCIR on ImageNet."),
    ],
)
def test_gains_of_cwd(
    runs: Runs, steps: Mapping[int, tuple[list[float], list[float]]], gains: str, more: str, words: str
) -> None:
    made = []
    for step, (without, with_cwd) in steps.items():
        made += runs(f"lucir/b50s{step}", without) + runs(f"lucir+cwd/b50s{step}", with_cwd)
    found, text = check("cwd-gain", made)
    assert found == f"gains: {gains}; gains more: {more}"
    assert words in text


def test_gains_are_within_one_precision(runs: Runs) -> None:
    made = [*runs("lucir/b50s10", [66.0]), *runs("lucir+cwd/b50s10", [68.0], "bf16")]
    found, text = check("cwd-gain", made)
    assert "| CIFAR100 | LUCIR | 10 | bf16 | - | 0 and 1 | +0.99 |" in text
    assert found.startswith(f"gains: {NONE}")
    made += runs("lucir+cwd/b50s10", [67.0])  # now S=10 has a gain, whatever bf16 lacks
    found, text = check("cwd-gain", made)
    assert "(+1.00 at S=10)" in text
    assert text.endswith("lucir+cwd-b50s10-fp16/seed0/record.json\nlucir-b50s10-fp16/seed0/record.json")
    made += runs("lucir/b50s5", [60.0], "bf16") + runs("lucir+cwd/b50s5", [63.0], "bf16")  # more, but in bf16
    assert check("cwd-gain", made)[0] == f"gains: holds; gains more: {NONE}"


def model(size: int, alpha: Any, eta: float = 0, seed: int = 0, **facts: Any) -> tuple[Path, Analysis]:
    """The analysis of a model of phase 0 alone, of so many classes with these alpha_1 (the last for all others)."""
    config = build_config("lucir", "cifar100", initial=[f"cwd:{eta}"] if eta else [])
    return after_phase_0(config.override({"protocol.phase_sizes": [size]}), alpha, seed, **facts)


def after_phase_0(config: RunConfig, alpha: Any, seed: int = 0, path: str = "", **facts: Any) -> tuple[Path, Analysis]:
    some, size = [alpha] if isinstance(alpha, float) else alpha, config.protocol.first_classes
    made = analysis_of(config.override({"seed": seed}), [*some, *[some[-1]] * (size - len(some))], **facts)
    return Path(path or f"{size}-{alpha}-{seed}") / "a.json", made


HALF = "on average in 3 of 6 comparisons"
TWO = [model(10, 0.6), model(25, 0.5)]
THREE = [*TWO, model(50, [0.7, 0.4])]  # class 0 rises, the mean falls
ORACLE = [model(50, 0.6), model(50, 0.5, 0.5), model(100, 0.4)]
SEEDS = [model(50, 0.6), model(50, 0.6, seed=1), model(50, 0.5, 0.5, information=-200.0)]
SEEDS += [model(50, 0.6, 0.5, seed=1, information=-200.0)]  # with seed 1 nothing falls
UP_AND_DOWN = [model(50, 0.1 * n, eta, information=-100.0 * n) for n, eta in ((6, 0), (5, 0.25), (7, 0.5), (3, 0.75))]


@pytest.mark.parametrize(
    ("key", "analyses", "verdict", "words"),
    [
        ("more-classes", TWO[:1], NONE, "Not analysed yet: lucir/cifar100/sizes25"),
        ("more-classes", TWO, "holds", "holds (so far 2 of 4 models)"),
        ("more-classes", TWO, "holds", "30 of 30 cases (classes times seeds times k=1, 2, 5)"),
        ("more-classes", TWO, "holds", "| LUCIR, 10 classes, eta 0 | 1 | 80.00 | 0.600 | 0.700 | 0.800 |"),
        # From 10 to 25 classes 10 are shared, from 25 to 50 classes 25; three k each.
        ("more-classes", THREE, "holds on average, not in every case", "102 of 105 cases"),
        ("more-classes", [*THREE, model(100, 0.9)], "holds on average in 6 of 9 comparisons", "agrees in 6 of 9"),
        ("larger-eta", [SEEDS[0], SEEDS[3]], NONE, "without a neighbour of the same seed: LUCIR, 50 classes, eta 0;"),
        ("larger-eta", SEEDS, "holds on average, not in every case", "150 of 300 cases"),  # 50 classes, 2 seeds, 3 k
        ("larger-eta", UP_AND_DOWN, "holds on average in 6 of 9 comparisons", "| LUCIR, 50 classes, eta 0.25 | 1 |"),
        ("information", SEEDS, "holds", "eta 0.5 | 2 | 80.50 ± 0.71 | -200.0 ± 0.0 | 2.0 (of 64) |"),
        ("information", SEEDS, "holds", "With raw features of train images"),  # so the verdict is about unit features
        ("information", UP_AND_DOWN, "holds on average in 2 of 3 comparisons", "100 of 150 cases"),
        ("information", UP_AND_DOWN[1:3], "does not hold", "0 of 50 cases"),
        ("nearer-oracle", [*SEEDS, *TWO], NONE, "Not analysed yet: lucir/cifar100/sizes100."),  # no smaller replaces it
        ("nearer-oracle", ORACLE, "holds", "150 of 150 cases"),
        # 0.1 is past the oracle's 0.4, and farther from it than 0.6.
        ("nearer-oracle", [*ORACLE, model(50, 0.1, 1)], f"does not hold ({HALF})", "150 of 300"),
    ],
)
def test_models_after_phase_0(key: str, analyses: Analyses, verdict: str, words: str) -> None:
    found, text = check(key, (), analyses)
    assert found == verdict
    assert words in text


def test_a_phase_0_counts_once_whatever_came_after_it(record_of: Callable[..., Record]) -> None:
    """Seed 0 from the run of phase 0 alone, seed 1 from a whole run; seed 0 of the latter is the same model."""
    whole = analysis_of(preset("lucir/cifar100/b50s10"), [0.1] * 60, sizes=(50, 10))
    changed = preset("lucir+cwd/cifar100/b50s10").override({"training.first.lr": 0.05})
    made = [
        (Path("0"), whole),  # the model after a later phase is another
        after_phase_0(changed, 0.1),  # as is one of changed training
        model(50, 0.6),
        after_phase_0(preset("lucir/cifar100/b50s10"), 0.9),
        after_phase_0(preset("lucir/cifar100/b50s5"), 0.6, 1),
        *(model(50, 0.5, 0.5, seed=seed, path=f"cwd{seed}") for seed in (0, 1)),
    ]
    found, text = check("larger-eta", (), made)
    assert found == "holds"
    assert "| LUCIR, 50 classes, eta 0 | 2 |" in text
    assert "300 of 300 cases" in text  # 50 classes, 2 seeds, 3 k
    fp16, bf16 = (record_of(preset("lucir/cifar100/b50s10"), precision=one) for one in ("fp16", "bf16"))
    records = [(path.parent / "record.json", bf16 if path.parent.name == "cwd1" else fp16) for path, _ in made]
    assert "150 of 150 cases" in check("larger-eta", records, made)[1]  # seed 1 was trained in another precision


def test_only_k_that_all_models_have_are_compared() -> None:
    few, more = (copy.deepcopy(one) for one in (model(10, 0.6), model(25, 0.5)))
    few[1]["k"] = few[1]["k"][:-1]
    assert "20 of 20 cases (classes times seeds times k=1, 2) agree" in check("more-classes", (), [few, more])[1]


def test_classes_that_come_later() -> None:
    """Below the model without CwD and nearer to the oracle; for the first 50 classes both would be wrong."""

    def at_the_end(name: str, first: float, later: float, sizes: Any = (50, *[10] * 5)) -> tuple[Path, Analysis]:
        return Path(name) / "a.json", analysis_of(preset(name), [first] * 50 + [later] * 50, sizes=sizes)

    plain, cwd = (f"{name}/cifar100/b50s10" for name in ("lucir", "lucir+cwd"))
    stopped = [at_the_end(name, 0.5, 0.5, (50, 10)) for name in (plain, cwd)]
    made = [at_the_end(plain, 0.5, 0.5), at_the_end(cwd, 0.8, 0.4), at_the_end(cwd, 0.8, 0.9)]  # a seed counts once
    oracle = at_the_end("lucir/cifar100/sizes100", 0.3, 0.3, (100,))
    for key in ("later-lower", "later-nearer"):
        assert check(key, (), stopped)[0] == NONE
        assert check(key, (), [made[0], made[2], oracle])[0] == "does not hold"
    found, text = check("later-lower", (), made)
    assert found == "holds"
    assert "150 of 150 cases" in text
    assert "| LUCIR, 50 + 5 x 10 classes, eta 0.5 | 1 | 80.00 | 0.400 |" in text
    assert "| 1 | 0.500 -> 0.400 | -0.1000 | 50 of 50 |" in text
    found, text = check("later-nearer", (), [*made, oracle])
    assert found == "holds"
    assert "| LUCIR, 100 classes, eta 0 | 1 | 80.00 | 0.300 |" in text


STAYS = "phase 0 hardly changes"
# Later phases rise by 4 and 0.5. B, beta, n; phase 0, later phases, last, average (71.75 and 72.75); then the changes.
LINE = "| 50 | 10 | 2 | 79.50 ± 0.00 | 65.00 ± 1.41 | 65.00 ± 1.41 | 72.25 ± 0.71 | -0.50 | +2.25 | +2.25 | +0.88 |"


@pytest.mark.parametrize(
    ("base", "values", "lifts", "stays", "words"),
    [
        (50, {0: ([60.0, 65.5], 80.0)}, NONE, "", "50 classes first, then 10 at a time: no record yet of beta above 0"),
        (50, {0: ([60.0], 80.0), 5: ([62.0], 80.5)}, "holds", "holds", "then 10 at a time: no record yet of beta 0"),
        (50, {0: ([60.0, 65.5], 80.0), 10: ([64.0, 66.0], 79.5)}, "holds", "holds", LINE),
        # Over seed 0, which both have.
        (50, {0: ([60.0, 75.5], 80.0), 5: ([62.0], 77.0)}, "holds", "does not hold", "-3.00 at most (beyond"),
        (10, {0: ([60.0], 80.0), 1: ([59.9], 80.0)}, "does not hold", "holds", "lifted by no beta"),
        # No change is no lift.
        (10, {0: ([60.0], 80.0), 1: ([60.0], 80.0), 5: ([60.1], 80.0)}, "holds in 1 of 2 cases", "holds", "except 1;"),
    ],
)
def test_mimicking_the_oracle(
    runs: Runs, base: int, values: Mapping[int, tuple[list[float], float]], lifts: str, stays: str, words: str
) -> None:
    names = {beta: f"lucir+mimic:{beta}/b{base}s10" if beta else f"lucir/b{base}s10" for beta in values}
    made = [one for beta, (some, first) in values.items() for one in runs(names[beta], some, first=first)]
    found, text = check("mimic", made)
    assert found == (f"lifts: {lifts}; {STAYS}: {stays}" if stays else lifts)
    assert words in text


@pytest.mark.parametrize("accuracies", [(80.0, 70.0, 59.0), (80.0, 50.0, 61.0)])
def test_a_lift_needs_the_mean_of_later_phases_and_the_last(runs: Runs, accuracies: Sequence[float]) -> None:
    made = [*runs("lucir/b50s10", [60.0], first=80.0), *runs("lucir+mimic:5/b50s10", [60.0])]
    for values, (_, record) in zip(((80.0, 60.0, 60.0), accuracies), made, strict=True):
        record["phases"].append(copy.deepcopy(record["phases"][-1]))
        for phase, accuracy in zip(record["phases"], values, strict=True):
            phase["accuracy"]["head"] = accuracy
    assert check("mimic", made)[0] == f"lifts: does not hold; {STAYS}: holds"


CURVE = {0: [66.0], 0.5: [67.0], 0.75: [67.2], 1.25: [67.5]}


@pytest.mark.parametrize(
    ("values", "verdict", "words"),
    [
        ({0: [66.0], 0.5: [67.0]}, NONE, "(found: 0, 0.5)"),
        ({0.25: [67.0], 0.5: [68.0], 1: [66.0]}, NONE, "no record yet of three etas with 0 among them"),
        ({0: [66.0], 0.5: [67.0], 0.75: [67.2]}, NONE, "rises so far (+1.20 at eta 0.75)"),
        (CURVE, "does not hold", "the best eta is 1.25 (n=1), +1.50 from eta 0, and +0.00"),  # it only rises
        ({**CURVE, 0: [69.0]}, "does not hold", "the best eta is 0 (n=1), +0.00 from eta 0, and -1.50 from there"),
        # Over seed 0, which all have: 68.0 - 66.0 and 67.5 - 68.0.
        ({**CURVE, 0: [66.0, 90.0], 1: [68.0, 68.4]}, "holds", "eta is 1 (n=1), +2.00 from eta 0, and -0.50"),
        ({**CURVE, 1: [68.0, 68.4]}, "holds", "| 10 | 1 | 2 | 68.20 ± 0.28 |"),
        ({**CURVE, 1: [68.0, 68.4]}, "holds", "holds (so far 5 of 12 settings)"),  # S=5 has no verdict
    ],
)
def test_the_curve_over_eta(runs: Runs, values: Mapping[float, Sequence[float]], verdict: str, words: str) -> None:
    names = {eta: f"lucir+cwd:{eta}/b50s10" if eta else "lucir/b50s10" for eta in values}
    made = [one for eta, some in values.items() for one in runs(names[eta], some)]
    made += runs("lucir/b50s5", [60.0]) + runs("lucir+cwd:0.25/b50s5", [90.0], "tf32")  # another precision
    found, text = check("eta-curve", made)
    assert found == verdict
    assert words in text
    assert "| 5 | 0.25 |" not in text
    seeds = [(path, {**record, "seed": place}) for place, (path, record) in enumerate(made)]
    if len(values) > 2:
        assert "without a seed that all have" in check("eta-curve", seeds)[1]  # type: ignore[arg-type]
