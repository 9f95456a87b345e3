"""`phasezero bench` measures what it claims, here on the CPU. No test asserts times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from phasezero.benchmarks.suite import BATCH, Comparison, Suite, bench_config, full_batches
from phasezero.cli.main import app
from phasezero.initial.cwd import class_wise_decorrelation
from phasezero.methods.stage import Batch


def test_the_command_writes_its_numbers(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    words = ["bench", "--device", "cpu", "--seconds", "0", "--images", "20", "--out", str(out)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert report["format"] == "phasezero-bench-1"
    names = [one["name"] for one in report["comparisons"]]
    assert len(names) == len(set(names)) == 7
    for one in report["comparisons"]:
        assert one["ours"] > 0
        assert (one["ratio"] is None) == (one["published"] is None)
        if one["ratio"] is not None:
            assert one["ratio"] == pytest.approx(one["published"] / one["ours"])
    assert report["environment"]["device"] == "cpu"
    plain, with_cwd = report["comparisons"][1:3]
    for way in ("published", "ours"):
        assert report["cost_of_cwd"][way] == pytest.approx((with_cwd[way] - plain[way]) / plain[way])
    assert "CwD adds" in result.output
    assert "matrix" in result.output


@pytest.fixture(scope="module")
def suite() -> Suite:
    return Suite(bench_config("resnet-glyphs", {"engine.device": "cpu"}), images_per_class=30, seconds=0)


def test_a_pass_has_the_images_of_a_run(suite: Suite) -> None:
    assert [len(suite.make_pass(phase).indices) for phase in (0, 1)] == [50 * 30, 10 * 30 + 50 * 20]


def test_operations_are_those_of_the_convolutions(suite: Suite) -> None:
    forward = []

    def count(module: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        assert isinstance(module, torch.nn.Conv2d)
        forward.append(2 * output.numel() * module.in_channels * module.kernel_size[0] * module.kernel_size[1])

    network = suite.make_trainer(0).model.backbone
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(count)  # type: ignore[arg-type]
    network(torch.zeros(1, 3, 32, 32))
    head = 2 * 64 * 50
    expected = BATCH * (3 * sum(forward) - forward[0])  # no gradient for the images
    assert suite.step_flops(0) == pytest.approx(expected + BATCH * head, rel=0.01)
    assert suite.step_flops(1) == pytest.approx(expected + BATCH * sum(forward), rel=0.01)


def test_steps_with_and_without_cwd_differ_in_it_alone(suite: Suite) -> None:
    losses = []
    for terms in (True, False):
        one = suite.make_pass(0, terms=terms)
        images, labels = one.source.prepare(next(full_batches(one)))
        output = one.model(images)
        losses.append(one.program.loss(Batch(images, labels, output, None)))
    term = class_wise_decorrelation(output.features, labels)
    assert (losses[0] - losses[1]).item() == pytest.approx(0.5 * term.item(), rel=1e-3)


def test_a_ratio_is_published_over_ours() -> None:
    assert Comparison("x", 3.0, 1.5).ratio == 2
    assert Comparison("x", None, 1.5).ratio is None
