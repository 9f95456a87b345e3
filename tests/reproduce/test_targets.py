"""Every table and figure expands to the runs that the paper describes, and meets the paper's own cells."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from phasezero.analysis.sphere import sphere_configs
from phasezero.data.catalog import load_data
from phasezero.presets import preset
from phasezero.reproduce.plan import Line, expand, run_key, stand_in
from phasezero.reproduce.targets import TARGETS
from phasezero.reproduce.views import Shown, cells_grid, label, published
from phasezero.results.paper import published_cells
from phasezero.session import planned_images, slug

# Counted by hand from the paper: rows times columns of a table, lines of a figure.
RUNS = {
    ("table1", "cifar100"): 9 * 3,
    ("table1", "imagenet100-cwd"): 9 * 3,
    ("table1", "imagenet"): 9 * 2,
    ("table1", "glyphs"): 9 * 3,
    ("table2", "imagenet100-cwd"): 2 * 5 * 2,
    ("table3", "imagenet100-cwd"): 2 * 5 * 2,
    ("table4", "imagenet100-cwd"): 4,
    ("fig1", "cifar100"): 4,
    ("fig2", "imagenet100-cwd"): 2 * 5,
    ("fig3", "imagenet100-cwd"): 4,
    ("fig4", "imagenet100-cwd"): 3 * 3 + 1,
    ("fig5", "imagenet100-cwd"): 6,
    ("fig6", "imagenet100-cwd"): 6 * 2,
    ("fig7", "imagenet100-cwd"): 6,
    ("fig8", "cifar100"): 2,
    ("fig9", "imagenet100-cwd"): 4,
    ("fig10", "imagenet100-cwd"): 3,
    ("fig11", "imagenet100-cwd"): 2 * 6,
}


def lines_of(name: str, data: str) -> list[Line]:
    return expand(TARGETS[name], data, {})


@pytest.mark.parametrize(("name", "data"), RUNS)
def test_the_number_of_runs(name: str, data: str) -> None:
    lines = lines_of(name, data)
    assert len(lines) == RUNS[name, data]
    folders = Counter(slug(line.config.name) for line in lines)
    assert set(folders.values()) == {1}, "two runs of a target must not share a folder"


def test_every_table_and_figure_is_there() -> None:
    assert list(TARGETS) == [
        *(f"table{number}" for number in range(1, 5)),
        *(f"fig{number}" for number in range(1, 12)),
    ]
    assert {name for name, _ in RUNS} == set(TARGETS)


PRINTED = {"lwf": "lwf", "icarl": "icarl", "bic": "bic", "lucir": "lucir", "podnet": "podnet"}
DATA = {"cifar100": "CIFAR100", "imagenet100-cwd": "ImageNet100", "imagenet": "ImageNet"}
TABLE_NAMES = {
    "table1": "table1_main",
    "table2": "table2_ablation_B",
    "table3": "table3_ablation_R",
    "table4": "table4_decorrelation",
}


def test_the_tables_are_the_published_cells_and_nothing_else() -> None:
    ours = Counter()
    for name, table in TABLE_NAMES.items():
        for data in TARGETS[name].data:
            for line in lines_of(name, data):
                config = line.config
                terms = [term.name for term in config.initial]
                method = "aanet(lucir)" if config.method.name == "aanet" else PRINTED[config.method.name]
                method += {"decov": "+dc", "sdc": "+sdc"}.get("".join(terms), "")
                sizes = config.protocol.base, config.protocol.step, int(config.protocol.memory.split(":")[1])
                key = (table, DATA[data], method, terms == ["cwd"], *sizes)
                ours[key] += 1
                cell = published(Shown(TARGETS[name], data, [], {}, ()), config)
                assert cell is not None
                assert (cell.mean, cell.std) == (published_cells()[key].mean, published_cells()[key].std)
    assert ours == Counter(dict.fromkeys(published_cells(), 1))


def by_name(name: str, data: str) -> dict[str, Line]:
    return {line.config.name: line for line in lines_of(name, data)}


def test_a_cell_of_table_1_is_its_preset() -> None:
    lines = by_name("table1", "cifar100")
    for name in ("lwf", "icarl", "bic", "lucir", "lucir+cwd", "podnet", "podnet+cwd", "aanet", "aanet+cwd"):
        for step in (10, 5, 2):
            full = f"{name}/cifar100/b50s{step}"
            assert lines[full].config == preset(full)
    assert by_name("table1", "imagenet")["lucir/imagenet/b100s50"].config == preset("lucir/imagenet/b100s50")


def test_ablations_change_what_they_are_about() -> None:
    usual = preset("lucir+cwd/imagenet100-cwd/b50s5")
    fewer = by_name("table2", "imagenet100-cwd")["lucir+cwd/imagenet100-cwd/b10s5"].config
    assert fewer.protocol.base == 10
    assert fewer.override({"protocol.base": 50, "name": usual.name}) == usual
    more = by_name("table3", "imagenet100-cwd")["lucir+cwd/imagenet100-cwd/b50s5r40"].config
    assert more.override({"protocol.memory": "per_class:20", "name": usual.name}) == usual
    weak = by_name("fig6", "imagenet100-cwd")["lucir+cwd:0.25/imagenet100-cwd/b50s5"].config
    assert weak.override({"initial.0.weight": 0.75, "name": usual.name}) == usual
    oracle = by_name("fig11", "imagenet100-cwd")["lucir+mimic:30/imagenet100-cwd/b10s10"].config
    assert (oracle.initial[0].name, oracle.initial[0].weight) == ("mimic", 30.0)


def test_models_of_10_25_50_and_100_classes() -> None:
    sizes = [line.config.protocol.phase_sizes for line in lines_of("fig3", "cifar100")]
    assert sizes == [(10,), (25,), (50,), (100,)]
    later = lines_of("fig10", "cifar100")
    assert [line.config.label for line in later] == ["lucir", "lucir+cwd", "lucir"]
    assert later[2].config.protocol.phase_sizes == (100,)


def test_the_coefficient_is_named_only_where_it_is_unusual() -> None:
    names = [label(line.config) for line in lines_of("fig6", "imagenet100-cwd")][:4]
    assert names == ["LUCIR", "LUCIR + CwD (eta 0.25)", "LUCIR + CwD (eta 0.5)", "LUCIR + CwD"]


def test_a_curve_over_eta_names_every_eta() -> None:
    for data, usual in (("glyphs", "0.1"), ("cifar100", "0.5")):
        grid = cells_grid(Shown(TARGETS["fig6"], data, lines_of("fig6", data), {}, ()))
        names = [str(row[0]) for row in grid.rows]
        assert "LUCIR + CwD" not in names
        assert f"LUCIR + CwD (eta {usual})" in names
    plain = cells_grid(Shown(TARGETS["table2"], "glyphs", lines_of("table2", "glyphs"), {}, ()))
    assert {str(row[0]) for row in plain.rows} == {"LUCIR", "LUCIR + CwD"}


def test_models_stand_beside_no_accuracy_of_the_paper() -> None:
    for name in ("fig7", "fig10"):
        lines = lines_of(name, "imagenet100-cwd")
        grid = cells_grid(Shown(TARGETS[name], "imagenet100-cwd", lines, {}, ()))
        assert {str(row[grid.header.index("paper")]) for row in grid.rows} == {"-"}


def test_runs_of_full_length_are_not_called_short() -> None:
    for epochs, short in ((1, True), (2, True), (6, False)):
        (line, *_) = expand(TARGETS["table4"], "glyphs", {"training.later.epochs": epochs})
        assert line.config.name.endswith("/short") == short
        said = " ".join(Shown(TARGETS["table4"], "glyphs", [line], {}, ()).remarks)
        assert (f"trained for {epochs} epochs instead of" in said) == short


def test_unusual_coefficients_have_no_published_cell() -> None:
    shown = Shown(TARGETS["fig6"], "imagenet100-cwd", [], {}, ())
    found = [published(shown, line.config) for line in lines_of("fig6", "imagenet100-cwd")]
    assert [cell is not None for cell in found] == [True, False, False, True, False, False] * 2


def test_a_curve_over_eta_on_other_data_stands_beside_no_published_number() -> None:
    """ImageNet100's cell is of eta 0.75; CIFAR100's usual eta is 0.5."""
    shown = Shown(TARGETS["fig6"], "cifar100", [], {}, ())
    assert {published(shown, line.config) for line in lines_of("fig6", "cifar100")} == {None}


def test_glyphs_have_small_coefficients_too() -> None:
    for name in ("fig4", "fig6", "fig7"):
        small, usual = ({line.weight for line in lines_of(name, data)} for data in ("glyphs", "cifar100"))
        assert small - usual == {0.02, 0.05, 0.1}
        assert usual < small


def test_the_spheres_are_those_of_the_analysis() -> None:
    """One coefficient for two classes, wherever the picture is asked for."""
    for data in ("cifar100", "glyphs"):
        apart = [replace(config, name="") for config in sphere_configs(data).values()]
        ours = [replace(line.config, name="") for line in expand(TARGETS["fig1"], data, {}, full=True)]
        assert [run_key(one) for one in ours] == [run_key(one) for one in apart]
        assert run_key(lines_of("fig8", data)[1].config) == run_key(lines_of("fig1", data)[3].config)
    (term,) = ours[3].initial
    # The published form is about (C / N) (N / C - 1)^2 r^2 for a batch of N images of C classes.
    pressure = {classes: classes / 128 * (128 / classes - 1) ** 2 for classes in (2, 50)}
    assert term.weight == pytest.approx(0.5 * pressure[50] / pressure[2], rel=0.01)
    assert f"eta is {term.weight}" in TARGETS["fig1"].note


def test_glyphs_are_shortened_openly() -> None:
    short = by_name("table1", "glyphs")["lucir/glyphs/b50s2/short"].config
    usual = preset("lucir/glyphs/b50s2")
    assert short.training.later.epochs == 2
    assert short.training.first == usual.training.first
    assert by_name("fig3", "glyphs")["lucir/glyphs/sizes10"].config.training == usual.training
    whole = {line.config.name: line.config for line in expand(TARGETS["table1"], "glyphs", {}, full=True)}
    assert whole["lucir/glyphs/b50s2"] == usual
    said = "2 epochs instead of the preset's 6"
    assert said in Shown(TARGETS["table1"], "glyphs", lines_of("table1", "glyphs"), {}, ()).caption
    assert said not in Shown(TARGETS["fig3"], "glyphs", lines_of("fig3", "glyphs"), {}, ()).caption


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_can_run_on_glyphs_and_says_that_they_stand_in(name: str) -> None:
    data = load_data("glyphs")
    for line in lines_of(name, "glyphs"):
        assert planned_images(line.config, data) > 0
    assert stand_in(TARGETS[name], "glyphs").startswith("glyphs stands in for ")


def test_what_stands_in_for_what() -> None:
    assert "cifar100 stands in for ImageNet100" in stand_in(TARGETS["table2"], "cifar100")
    assert stand_in(TARGETS["table1"], "cifar100") == ""
    assert stand_in(TARGETS["table2"], "imagenet100-cwd") == ""
    other = "imagenet100-lucir is another choice of 100 classes than the paper's (imagenet100-cwd)."
    assert stand_in(TARGETS["table2"], "imagenet100-lucir") == other
    assert stand_in(TARGETS["fig1"], "cifar100") == ""
    for name in ("fig1", "fig8"):
        assert "imagenet100-cwd stands in for CIFAR100" in stand_in(TARGETS[name], "imagenet100-cwd")
    assert "another choice of 100 classes" in stand_in(TARGETS["table1"], "imagenet100-podnet")
    shown = Shown(TARGETS["table2"], "cifar100", [], {}, ())
    assert shown.dataset == "ImageNet100"
    assert "cifar100 stands in for ImageNet100" in shown.caption
