"""The paper's claims on made-up records and analyses, where every answer is known."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from phasezero.analysis.record import write_analysis
from phasezero.config import RunConfig
from phasezero.presets import build_config, preset
from phasezero.reproduce.claims import CLAIM_KEYS
from phasezero.reproduce.curves import check_mimic
from phasezero.reproduce.ledger import write_results
from phasezero.reproduce.plan import Shelf
from phasezero.results.record import Record, summarise, write_record
from samples import analysis_of

Make = Callable[..., Record]


def section(folder: Path, start: str) -> str:
    """From a claim's heading to the next one."""
    text = write_results(folder, folder)
    after = text[text.index(f"### {start}") + 4 :]
    ends = [place for mark in ("\n### ", "\n## ") if (place := after.find(mark)) >= 0]
    return after[: min(ends)]


def verdict(text: str) -> str:
    """Without how many models it stands on."""
    return re.sub(r" \(so far \d+ of \d+ (models|settings)\)", "", text.split("**")[1])


@pytest.fixture
def keep(record_of: Make, tmp_path: Path) -> Callable[..., None]:
    def write(
        config: RunConfig, values: Sequence[float], precision: str = "fp16", first: float | None = None
    ) -> None:
        """One run a seed, its phases all at the value, or phase 0 at `first`."""
        for seed, value in enumerate(values):
            record = record_of(config.override({"seed": seed}), value, precision)
            if first is not None:
                record["phases"][0]["accuracy"]["head"] = first
                record["summary"] = summarise(record["phases"])
            weight = config.initial[0].weight if config.initial else 0
            name = f"{config.method.name}-{weight:g}-{config.protocol.base}-{config.protocol.step}"
            write_record(tmp_path / f"{name}-{precision}" / f"seed{seed}" / "record.json", record)

    return write


def lucir(step: int, *terms: str, method: str = "lucir", base: int = 50) -> RunConfig:
    return build_config(method, "cifar100", initial=terms, base=base, step=step)


GAIN = "CwD in phase 0 gains"


def test_gains_are_differences_of_means_and_growth_needs_two_steps(
    keep: Callable[..., None], tmp_path: Path
) -> None:
    assert verdict(section(tmp_path, GAIN)) == "Gains: no record yet; gains more: no record yet."
    keep(lucir(10), [66.0, 67.0])
    keep(lucir(10, "cwd"), [67.0, 67.0, 68.2])
    text = section(tmp_path, GAIN)
    assert verdict(text) == "Gains: holds; gains more: no record yet."
    # 67.4 - 66.5; the paper's 67.26 - 66.27
    assert "| CIFAR100 | LUCIR | 10 | fp16 | +0.90 | 2 and 3 | +0.99 |" in text
    assert "No record yet for S=5, S=2. The paper's: +0.99, +2.09, +3.85." in text
    assert "`lucir-0-50-10-fp16/seed{0,1}/record.json`" in text

    keep(lucir(2), [50.0])
    keep(lucir(2, "cwd"), [53.0])
    assert verdict(section(tmp_path, GAIN)) == "Gains: holds; gains more: holds (so far LUCIR on CIFAR100)."
    keep(lucir(5), [60.0])
    keep(lucir(5, "cwd"), [63.5])  # more than at S=2
    text = section(tmp_path, GAIN)
    assert verdict(text) == "Gains: holds; gains more: does not hold (so far LUCIR on CIFAR100)."
    assert "(+0.90 at S=10, +3.50 at S=5, +3.00 at S=2), and it does not grow" in text
    keep(lucir(5, method="podnet"), [60.0])
    keep(lucir(5, "cwd", method="podnet"), [59.0])
    text = section(tmp_path, GAIN)
    assert verdict(text).startswith("Gains: holds in 1 of 2 cases; gains more: does not hold (so far")
    # By the paper: +0.96, +1.05, +0.90 and +1.02, +0.62.
    assert "does not grow at every step for LUCIR on ImageNet, AANet on ImageNet100." in text


def test_gains_of_different_precision_are_none(keep: Callable[..., None], tmp_path: Path) -> None:
    keep(lucir(10), [66.0], "fp16")
    keep(lucir(10, "cwd"), [68.0], "bf16")
    text = section(tmp_path, GAIN)
    assert "| CIFAR100 | LUCIR | 10 | bf16 | - | 0 and 1 | +0.99 |" in text
    assert verdict(text).startswith("Gains: no record yet")
    keep(lucir(10, "cwd"), [67.0], "fp16")  # now S=10 has a gain, whatever bf16 lacks
    text = section(tmp_path, GAIN)
    assert "(+1.00 at S=10)" in text
    assert "No record yet for S=5, S=2." in text
    keep(lucir(5), [60.0], "bf16")
    keep(lucir(5, "cwd"), [63.0], "bf16")  # more, but of another precision
    assert verdict(section(tmp_path, GAIN)) == "Gains: holds; gains more: no record yet."


def test_no_gain_and_an_equal_one_are_none(keep: Callable[..., None], tmp_path: Path) -> None:
    for step in (10, 5):
        keep(lucir(step), [60.0])
        keep(lucir(step, "cwd"), [60.0])
    found = verdict(section(tmp_path, GAIN))
    assert found.startswith("Gains: does not hold; gains more: does not hold")


def spectrum(
    folder: Path, config: RunConfig, alpha: Sequence[float], seed: int = 0, information: float = -300.0
) -> None:
    """The analysis of a model of as many classes as there are alphas, padded in its configuration to `config`."""
    first = config.protocol.phase_sizes[0] if config.protocol.phase_sizes else config.protocol.base
    padded = [*alpha, *[alpha[-1]] * (first - len(alpha))]
    made = analysis_of(config.override({"seed": seed}), padded, information=information, name=config.name)
    weight = config.initial[0].weight if config.initial else 0
    write_analysis(folder / f"{first}-{weight:g}-{config.name.count('b50')}-{seed}.json", made)


def alone(size: int, *terms: str) -> RunConfig:
    return build_config("lucir", "cifar100", initial=terms).override({"protocol.phase_sizes": [size]})


def test_more_classes_over_all_shared_classes(tmp_path: Path) -> None:
    start = "alpha_k falls"
    spectrum(tmp_path, alone(10), [0.6])
    assert "**No record yet.**" in section(tmp_path, start)
    spectrum(tmp_path, alone(25), [0.5])
    text = section(tmp_path, start)
    assert verdict(text) == "Holds."
    for words in (
        "**Holds (so far 2 of 4 models).**",
        "30 of 30 cases (classes times seeds times k=1, 2, 5) agree",
        "Not analysed yet: lucir/cifar100/sizes50, lucir/cifar100/sizes100.",
        "| LUCIR, 10 classes, eta 0 | 1 | 80.00 | 0.600 | 0.700 | 0.800 |",
        "alpha_k: means over the 10 classes",
    ):
        assert words in text
    spectrum(tmp_path, alone(50), [0.7, 0.4])  # class 0 rises; the mean of the rest falls
    text = section(tmp_path, start)
    assert verdict(text) == "Holds on average, not in every case."
    # 10 -> 25: 10 classes; 25 -> 50: 25 classes, of which one is an exception; three k each.
    assert "102 of 105 cases" in text
    assert "class 0" in text
    spectrum(tmp_path, alone(100), [0.9])  # three comparisons of neighbours by three k, and the last rise
    assert verdict(section(tmp_path, start)) == "Holds on average in 6 of 9 comparisons."


def test_only_k_that_all_models_have_are_compared(tmp_path: Path) -> None:
    spectrum(tmp_path, alone(10), [0.6])
    (path,) = tmp_path.iterdir()
    few = json.loads(path.read_text())
    few["k"].pop()
    for split, form in itertools.product(("train", "test"), ("raw", "unit")):
        for row in (few[split][form]["alpha_mean"], *few[split][form]["alpha"]):
            row.pop()
    path.write_text(json.dumps(few))
    spectrum(tmp_path, alone(25), [0.5])
    text = section(tmp_path, "alpha_k falls")
    assert "20 of 20 cases (classes times seeds times k=1, 2) agree" in text


def test_a_phase_0_counts_whatever_came_after_it_and_once(tmp_path: Path) -> None:
    """Seed 0 from the run of phase 0 alone, seed 1 from a whole run; seed 0 of the latter is the same model."""
    spectrum(tmp_path, alone(50), [0.6], 0)
    spectrum(tmp_path, preset("lucir/cifar100/b50s10"), [0.6], 0)
    spectrum(tmp_path, preset("lucir/cifar100/b50s5"), [0.6], 1)
    later = analysis_of(preset("lucir/cifar100/b50s10"), [0.1] * 60, sizes=(50, 10))
    write_analysis(tmp_path / "0-later.json", later)  # the first by its path
    for seed in (0, 1):
        spectrum(tmp_path, alone(50, "cwd:0.5"), [0.6 if seed else 0.5], seed, information=-200.0)
    text = section(tmp_path, "Larger eta")
    assert "| LUCIR, 50 classes, eta 0 | 2 |" in text  # the model after a later phase is another
    assert "150 of 300 cases" in text  # of 50 classes, 2 seeds, 3 k: with seed 1 nothing falls
    assert verdict(text) == "Holds on average, not in every case."

    text = section(tmp_path, "The information proxy")
    assert verdict(text) == "Holds."
    assert "Of raw features and train images" in text  # so that the verdict is of unit features
    assert "Of unit features and train images" not in text
    assert "eigenvalues below 1e-12 are raised to it" in text
    assert "| LUCIR, 50 classes, eta 0.5 | 2 | 80.50 ± 0.71 | -200.0 ± 0.0 | 2.0 (of 64) |" in text
    assert "| +100.0 ± 0.0 | 100 of 100 | none |" in text
    assert "Of raw features and test images: 100 of 100 cases agree, and the mean does in 1 of 1" in text
    assert "alpha" not in text


def test_aanets_phase_0_stands_in_for_lucirs_but_not_in_place_of_it(tmp_path: Path) -> None:
    """They are the same by their settings: seed 0 was trained for both, seed 1 for AANet alone."""
    for seed in (0, 1):
        spectrum(tmp_path / "a", preset("aanet+cwd/cifar100/b50s5"), [0.5 if seed else 0.9], seed)
        spectrum(tmp_path / "b", alone(50), [0.6], seed)
    spectrum(tmp_path / "b", preset("lucir+cwd/cifar100/b50s10"), [0.5], 0)
    text = section(tmp_path, "Larger eta")
    assert "| LUCIR, 50 classes, eta 0.5 | 2 |" in text
    assert "300 of 300 cases" in text  # of 50 classes, 2 seeds, 3 k
    assert verdict(text) == "Holds."


def test_information_that_falls_and_models_of_changed_training(tmp_path: Path) -> None:
    spectrum(tmp_path, alone(50), [0.6])
    changed = alone(50, "cwd:0.5").override({"training.first.lr": 0.05})
    spectrum(tmp_path, changed, [0.5], information=-400.0)
    assert verdict(section(tmp_path, "The information proxy")) == "No record yet."
    spectrum(tmp_path, alone(50, "cwd:0.5"), [0.5], information=-400.0)
    assert verdict(section(tmp_path, "The information proxy")) == "Does not hold."


def test_a_verdict_by_its_share_of_comparisons(tmp_path: Path) -> None:
    """Three means over eta: the first falls, the second rises, the third falls; information the other way round."""
    for eta, alpha, information in (
        (0, 0.6, -100.0),
        (0.25, 0.5, -200.0),
        (0.5, 0.7, -90.0),
        (0.75, 0.3, -300.0),
    ):
        spectrum(tmp_path, alone(50, *([f"cwd:{eta}"] if eta else [])), [alpha], information=information)
    assert verdict(section(tmp_path, "Larger eta")) == "Holds on average in 6 of 9 comparisons."
    told = verdict(section(tmp_path, "The information proxy"))
    assert told == "Does not hold (on average in 1 of 3 comparisons)."
    spectrum(tmp_path, alone(50, "cwd:0.75"), [0.3], information=-50.0)  # now one comparison alone disagrees
    told = verdict(section(tmp_path, "The information proxy"))
    assert told == "Holds on average in 2 of 3 comparisons."


def test_nearer_to_the_oracle_or_past_it(tmp_path: Path) -> None:
    """The oracle's alpha_1 is 0.4; 0.6 without CwD, 0.5 with a little, and 0.1, which is farther, with much."""
    start = "CwD brings alpha_k nearer"
    spectrum(tmp_path, alone(50), [0.6])
    spectrum(tmp_path, alone(50, "cwd:0.5"), [0.5])
    spectrum(tmp_path, alone(10), [0.6])
    spectrum(tmp_path, alone(10, "cwd:0.5"), [0.5])
    text = section(tmp_path, start)
    assert verdict(text) == "No record yet."  # of an oracle: a model of 50 classes is none
    assert "Not analysed yet: lucir/cifar100/sizes100." in text
    spectrum(tmp_path, alone(100), [0.4])
    for path in tmp_path.glob("10-*.json"):
        path.unlink()
    text = section(tmp_path, start)
    assert verdict(text) == "Holds."
    assert "(so far 3 of" in text
    spectrum(tmp_path, alone(50, "cwd:1"), [0.1])
    text = section(tmp_path, start)
    assert verdict(text) == "Does not hold (on average in 3 of 6 comparisons)."
    assert "150 of 300 cases" in text


LOWER, NEARER = (f"CwD in phase 0 {does} alpha_k of classes that come later" for does in ("lowers", "brings"))


def at_the_end(
    folder: Path, config: RunConfig, first: float, later: float, sizes: Sequence[int] = ()
) -> None:
    """The analysis of a model that was to see 100 classes: alpha_1 of the first 50 and of the others."""
    made = analysis_of(config, [first] * 50 + [later] * 50, sizes=sizes or (50, 10, 10, 10, 10, 10))
    weight = config.initial[0].weight if config.initial else 0
    write_analysis(folder / f"{len(made['phase_sizes'])}-{weight:g}-{config.seed}.json", made)


def test_classes_that_come_later(tmp_path: Path) -> None:
    """Below the one without CwD and nearer to the oracle; of the first 50 both would be wrong."""
    for sizes in ((50, 10), ()):
        assert [verdict(section(tmp_path, start)) for start in (LOWER, NEARER)] == ["No record yet."] * 2
        at_the_end(tmp_path, lucir(10), 0.5, 0.5, sizes)
        at_the_end(tmp_path, lucir(10, "cwd"), 0.8, 0.4, sizes)
    at_the_end(tmp_path / "again", lucir(10, "cwd"), 0.8, 0.9)  # a seed counts once
    text = section(tmp_path, LOWER)
    assert text.split("**")[1] == "Holds."
    assert "150 of 150 cases (classes times seeds times k=1, 2, 5) agree" in text
    assert "| LUCIR, 50 + 5 x 10 classes, eta 0.5 | 1 | 80.00 | 0.400 |" in text
    assert "| 1 | 0.500 -> 0.400 | -0.1000 | 50 of 50 |" in text
    assert "Stands on `6-0-0.json`, `6-0.5-0.json`." in text
    assert "Not analysed yet: lucir/cifar100/sizes100." in section(tmp_path, NEARER)
    at_the_end(tmp_path, alone(100), 0.3, 0.3, (100,))
    text = section(tmp_path, NEARER)
    assert text.split("**")[1] == "Holds."
    assert "| LUCIR, 100 classes, eta 0 | 1 | 80.00 | 0.300 |" in text
    at_the_end(tmp_path, lucir(10, "cwd"), 0.3, 0.7)
    assert [verdict(section(tmp_path, start)) for start in (LOWER, NEARER)] == ["Does not hold."] * 2


def test_models_of_another_precision_are_left_out(record_of: Make, tmp_path: Path) -> None:
    """By the record beside an analysis: seed 1 was trained in another than the other models."""
    for terms, seed, precision in (
        ((), 0, "fp16"),
        (("cwd:0.5",), 0, "fp16"),
        ((), 1, "bf16"),
        (("cwd:0.5",), 1, "fp16"),
    ):
        config = alone(50, *terms).override({"seed": seed})
        folder = tmp_path / f"{seed}-{len(terms)}"
        write_record(folder / "record.json", record_of(config, precision=precision))
        spectrum(folder, config, [0.5 if terms else 0.6], seed)
    assert "150 of 150 cases" in section(tmp_path, "Larger eta")  # of one seed, 50 classes, 3 k


def test_models_without_a_common_seed_are_not_compared(tmp_path: Path) -> None:
    spectrum(tmp_path, alone(50), [0.6], 0)
    spectrum(tmp_path, alone(50, "cwd:0.5"), [0.5], 1)
    text = section(tmp_path, "Larger eta")
    assert text.split("**")[1] == "No record yet."
    assert (
        "without a neighbour of the same seed: LUCIR, 50 classes, eta 0; LUCIR, 50 classes, eta 0.5." in text
    )


def test_mimicking_the_oracle(keep: Callable[..., None], tmp_path: Path) -> None:
    start = "Mimicking the oracle"
    keep(lucir(10), [60.0, 65.5], first=80.0)  # seed 1 is ahead of beta 5's seed 0, which says nothing
    assert verdict(section(tmp_path, start)) == "No record yet."
    keep(lucir(10, "mimic:5"), [62.0], first=80.5)
    keep(lucir(10, "mimic:10"), [64.0, 66.0], first=79.5)
    text = section(tmp_path, start)
    assert verdict(text) == "Lifts: holds; phase 0 hardly changes: holds."
    assert (
        "lifted by every beta above 0 that was run; phase 0 changes by +0.50 at most (within 1 point)" in text
    )
    # B, beta, n, phase 0, later phases, last, average: (79.5 + 64) / 2 and (79.5 + 66) / 2; then changes,
    # of later phases by 4 and 0.5.
    values = "79.50 ± 0.00 | 65.00 ± 1.41 | 65.00 ± 1.41 | 72.25 ± 0.71"
    assert f"| 50 | 10 | 2 | {values} | -0.50 | +2.25 | +2.25 | +0.88 |" in text
    assert "| 50 | 5 | 1 | 80.50 | 62.00 | 62.00 | 71.25 | +0.50 | +2.00 | +2.00 | +1.25 |" in text
    assert "10 classes first, then 10 at a time: no record yet of beta 0" in text
    keep(lucir(10, "mimic:15"), [70.0], first=82.0)
    text = section(tmp_path, start)
    assert verdict(text) == "Lifts: holds; phase 0 hardly changes: holds in 2 of 3 cases."
    assert "+2.00 at most (beyond 1 point)" in text
    keep(lucir(10, "mimic:15"), [70.0], first=77.0)
    text = section(tmp_path, start)
    assert verdict(text) == "Lifts: holds; phase 0 hardly changes: holds in 2 of 3 cases."
    assert "-3.00 at most (beyond 1 point)" in text
    assert "| 10 | 10 |" not in text


def test_a_beta_that_lowers_later_phases(keep: Callable[..., None], tmp_path: Path) -> None:
    keep(lucir(10, base=10), [60.0])
    keep(lucir(10, "mimic:1", base=10), [59.9])
    text = section(tmp_path, "Mimicking the oracle")
    assert verdict(text) == "Lifts: does not hold; phase 0 hardly changes: holds."
    assert "lifted by no beta above 0 that was run;" in text
    keep(lucir(10, "mimic:5", base=10), [60.1])
    text = section(tmp_path, "Mimicking the oracle")
    assert verdict(text) == "Lifts: holds in 1 of 2 cases; phase 0 hardly changes: holds."
    assert "lifted by every beta above 0 that was run but 1;" in text
    keep(lucir(10, "mimic:10", base=10), [60.0])  # no change is no lift
    text = section(tmp_path, "Mimicking the oracle")
    assert "lifted by every beta above 0 that was run but 1, 10;" in text


def test_a_lift_that_the_last_phase_lost_is_none(record_of: Make) -> None:
    def made(config: RunConfig, *accuracies: float) -> tuple[Path, Record]:
        record = record_of(config)
        first, later = record["phases"]
        record["phases"] = [first, later, copy.deepcopy(later)]
        for phase, accuracy in zip(record["phases"], accuracies, strict=True):
            phase["accuracy"]["head"] = accuracy
        return Path(config.name) / "record.json", record

    plain = made(lucir(10), 80.0, 60.0, 60.0)
    for accuracies in ((80.0, 70.0, 59.0), (80.0, 50.0, 61.0)):
        found = check_mimic(Shelf([plain, made(lucir(10, "mimic:5"), *accuracies)]))
        assert found.verdict.startswith("lifts: does not hold; phase 0 hardly changes: holds")


def test_the_curve_over_eta(keep: Callable[..., None], tmp_path: Path) -> None:
    start = "The average incremental accuracy over eta"
    keep(lucir(10), [66.0])
    keep(lucir(10, "cwd:0.5"), [67.0])
    text = section(tmp_path, start)
    assert verdict(text) == "No record yet."
    assert "(there: 0, 0.5)" in text
    keep(lucir(10, "cwd:0.75"), [67.2])
    text = section(tmp_path, start)
    assert verdict(text) == "No record yet."
    assert "S=10: rises so far (+1.20 at eta 0.75); no record yet of a larger eta." in text
    keep(lucir(10, "cwd:1.25"), [67.5])
    assert verdict(section(tmp_path, start)) == "Does not hold."  # it only rises
    keep(lucir(10, "cwd:1"), [68.0, 68.4])
    text = section(tmp_path, start)
    assert verdict(text) == "Holds."
    # Of seed 0, which all have: 68.0 - 66.0 and 67.5 - 68.0.
    assert "the best eta is 1 (n=1), +2.00 from eta 0, and -0.50 from there to eta 1.25" in text
    assert "| 10 | 1 | 2 | 68.20 ± 0.28 |" in text
    assert "**Holds (so far 5 of 12 settings).**" in text
    assert "## Records that are no cell" not in write_results(tmp_path, tmp_path)
    keep(lucir(10, "cwd:0.25"), [10.0], "tf32")  # another precision does not come in
    assert "| 10 | 0.25 |" not in section(tmp_path, start)
    keep(lucir(5), [60.0])  # a setting that nothing is said of is not counted
    assert "**Holds (so far 5 of 12 settings).**" in section(tmp_path, start)
    keep(lucir(10), [66.0, 90.0, 90.0])  # seeds that eta 0 alone has decide nothing
    assert "the best eta is 1 (n=1), +2.00 from eta 0" in section(tmp_path, start)


def test_a_curve_needs_eta_0_and_does_not_hold_where_that_is_best(
    keep: Callable[..., None], tmp_path: Path
) -> None:
    start = "The average incremental accuracy over eta"
    for eta, value in ((0.25, 67.0), (0.5, 68.0), (1, 66.0)):
        keep(lucir(10, f"cwd:{eta}"), [value])
    assert verdict(section(tmp_path, start)) == "No record yet."
    keep(lucir(10), [69.0])
    text = section(tmp_path, start)
    assert verdict(text) == "Does not hold."
    assert "the best eta is 0 (n=1), +0.00 from eta 0, and -3.00 from there" in text


def test_etas_without_a_common_seed_are_no_curve(record_of: Make, tmp_path: Path) -> None:
    for seed, eta in enumerate((0, 0.5, 1.25)):
        config = lucir(10, *([f"cwd:{eta}"] if eta else [])).override({"seed": seed})
        write_record(tmp_path / f"{eta}" / "record.json", record_of(config, precision="fp16"))
    text = section(tmp_path, "The average incremental accuracy over eta")
    assert verdict(text) == "No record yet."
    assert "(there: 0, 0.5, 1.25, without a seed that all have)" in text


def test_every_claim_has_its_key(tmp_path: Path) -> None:
    (tmp_path / "notes.yaml").write_text(
        "claims:\n" + "".join(f"  {key}: Told of {key}.\n" for key in CLAIM_KEYS)
    )
    text = write_results(tmp_path, tmp_path)
    assert [key for key in CLAIM_KEYS if f"Note: Told of {key}." in text] == list(CLAIM_KEYS)
