"""TensorBoard: what is written, and what is said where it is missing."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from phasezero.config import RunConfig
from phasezero.data.images import ImageData
from phasezero.errors import UserError
from phasezero.records.run import Record
from phasezero.runs import tensorboard
from phasezero.runs.tensorboard import TensorBoard, tensorboard_callbacks
from samples import MINIMAL, StopAfter, StoppedError, train

Make = Callable[..., RunConfig]


def scalars(writer: Mock) -> dict[str, list[tuple[int, float]]]:
    """Return the points of each curve that a SummaryWriter was given."""
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for name, value, step in (call.args for call in writer.add_scalar.call_args_list):
        found[name].append((step, value))
    return found


def expected(record: Record) -> dict[str, list[tuple[int, float | None]]]:
    losses = [loss for phase in record["phases"] for loss in phase["loss"]["train"]]
    found = {"loss/train": list(enumerate(losses))}
    for classifier in ("head", "nearest_mean"):
        points = [(phase["seen_classes"], phase["accuracy"][classifier]) for phase in record["phases"]]
        found[f"accuracy/{classifier}"] = points
    return found


def test_losses_and_accuracies_are_written(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    """A phase 0 from the store is written, too; a run that was stopped continues its curves."""
    config, store, checkpoint = toy_config(), tmp_path / "store", tmp_path / "checkpoint"
    for _ in range(2):
        writer = Mock()
        record = train(config, data=toy_data, store=store, callback=TensorBoard(writer, config))
        assert scalars(writer) == expected(record)
        assert "phase_sizes" in writer.add_text.call_args.args[1]
        writer.close.assert_called_once()
    assert record["timing"]["reused_phase_zero"]
    with pytest.raises(StoppedError):
        train(config, data=toy_data, checkpoint=checkpoint, callback=StopAfter(2))
    writer = Mock()
    train(config, data=toy_data, checkpoint=checkpoint, callback=TensorBoard(writer, config))
    assert scalars(writer) == {
        name: points[-2 if name == "loss/train" else -1 :] for name, points in expected(record).items()
    }


def test_a_run_that_diverges_keeps_its_losses(toy_config: Make) -> None:
    writer = Mock()
    TensorBoard(writer, toy_config()).on_epoch_end(Mock(index=0), "train", 0, 2, loss=1.5, images=10)
    assert [call[0] for call in writer.method_calls[-2:]] == ["add_scalar", "flush"]  # nobody closes the file


def test_files_are_written_by_run_and_seed(toy_config: Make, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    tensorboard_callbacks(tmp_path)(toy_config(seed=3)).writer.close()
    assert list((tmp_path / "lucir+cwd-glyphs-b50s10" / "seed3").glob("events.*"))


def test_a_board_that_cannot_be_written_costs_no_earlier_run(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callbacks = lambda folder: lambda config: Path(folder, "x").mkdir()  # noqa: E731
    monkeypatch.setattr(tensorboard, "tensorboard_callbacks", callbacks)
    words = ["run", "--method", "lucir", "--parallel", "1", "--out", "out"]
    words += [part for name, value in MINIMAL.items() for part in ("--set", f"{name}={value}")]
    assert command(*words)[0] == 0
    before = sorted(tmp_path.rglob("*"))
    code, _, err = command(*words, "--overwrite", "--tensorboard", "out/results.md")
    assert code == 2
    assert err.endswith("choose another --tensorboard\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_without_tensorboard_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r"phasezero\[tensorboard\]"):
        tensorboard_callbacks(tmp_path / "board")
    assert list(tmp_path.iterdir()) == []
