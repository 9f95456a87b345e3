"""Finished phase-0 states: shared where they must be, never where anything differs, never when damaged."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phasezero import run
from phasezero.config import RunConfig
from phasezero.data.images import ImageData, ImageSplit
from phasezero.data.stream import Phase
from phasezero.engine.checkpoint import read_facts
from phasezero.engine.device import environment
from phasezero.engine.store import PhaseZeroStore, phase_zero_key
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.results.record import comparable_part

Make = Callable[..., RunConfig]


def key_of(config: RunConfig, data: ImageData) -> str:
    return phase_zero_key(config, data, Trainer(config, data))


def test_a_stored_phase_zero_gives_the_same_record(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    alone = run(toy_config(), data=toy_data)
    first = run(toy_config(), data=toy_data, store=tmp_path)
    second = run(toy_config(), data=toy_data, store=tmp_path)
    assert [r["timing"]["reused_phase_zero"] for r in (alone, first, second)] == [False, False, True]
    assert comparable_part(alone) == comparable_part(first) == comparable_part(second)
    other_step = run(toy_config(protocol__step=1), data=toy_data, store=tmp_path)
    assert other_step["timing"]["reused_phase_zero"]
    assert other_step["phases"][0]["accuracy"] == alone["phases"][0]["accuracy"]
    assert len(list(PhaseZeroStore(tmp_path).entries())) == 1


@pytest.mark.parametrize(
    "setting",
    [
        {"seed": 1},
        {"training.first.lr": 0.2},
        {"initial.0.weight": 0.3},
        {"initial.0.form": "equation"},
        {"initial": []},
        {"network.last_relu": True},
        {"protocol.base": 2},
        {"protocol.class_order": "natural"},
        {"protocol.memory": "per_class:2"},
        {"protocol.selection": "random"},
        {"engine.precision": "bf16"},
        {"engine.threads": 7},
        {"training.brightness": 0.25},
    ],
    ids=str,
)
def test_what_goes_into_phase_zero_changes_the_key(
    setting: dict[str, Any], toy_config: Make, toy_data: ImageData
) -> None:
    config = toy_config(engine__device="cpu")
    assert key_of(config.override(setting), toy_data) != key_of(config, toy_data)


@pytest.mark.parametrize(
    "setting",
    [{"protocol.step": 1}, {"training.later.lr": 0.2}, {"method.lambda_base": 9.0}, {"method.imprint": True}],
    ids=str,
)
def test_what_only_later_phases_see_does_not(
    setting: dict[str, Any], toy_config: Make, toy_data: ImageData
) -> None:
    assert key_of(toy_config().override(setting), toy_data) == key_of(toy_config(), toy_data)


@pytest.mark.parametrize(
    ("name", "later", "first"),
    [
        ("podnet", {"method.finetune_statistics": False, "method.flat": 2.0}, {"method.proxies": 5}),
        ("bic", {"method.bias_epochs": 2, "method.keep_pairs": False}, {"method.set_aside": 0.5}),
    ],
)
def test_options_of_later_phases_leave_the_key_as_it_is(
    name: str, later: dict[str, Any], first: dict[str, Any], toy_config: Make, toy_data: ImageData
) -> None:
    config = toy_config(f"{name}/glyphs/b50s10")
    assert key_of(config.override(later), toy_data) == key_of(config, toy_data)
    assert key_of(config.override(first), toy_data) != key_of(config, toy_data)


def test_lucir_and_aanet_share_their_phase_zero(toy_config: Make, toy_data: ImageData) -> None:
    shared = toy_config("lucir/glyphs/b50s10"), toy_config("aanet/glyphs/b50s10")
    assert len({key_of(config, toy_data) for config in shared}) == 1
    assert key_of(toy_config("podnet/glyphs/b50s10"), toy_data) != key_of(shared[0], toy_data)


def test_an_oracle_belongs_to_the_key(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    """Mimicking a model of other classes, or another file, is another phase 0."""
    oracle = tmp_path / "oracle.safetensors"
    oracle.write_bytes(b"one")

    def key(sizes: list[int], **mimic: Any) -> str:
        term = {"name": "mimic", "weight": 1.0, **mimic}
        return key_of(toy_config().override({"initial": [term], "protocol.phase_sizes": sizes}), toy_data)

    assert key([3, 1]) == key([3, 1])
    assert key([3, 1]) != key([3, 2])
    with_file = key([3, 1], oracle=str(oracle))
    assert with_file == key([3, 2], oracle=str(oracle))
    assert with_file != key([3, 1])
    oracle.write_bytes(b"two")
    assert key([3, 1], oracle=str(oracle)) != with_file


def test_the_classes_and_images_that_an_oracle_is_trained_on_belong_to_the_key(
    toy_config: Make, toy_data: ImageData
) -> None:
    config = toy_config(initial=[{"name": "mimic", "weight": 1.0}], protocol__class_order=list(range(8)))
    swapped = config.override({"protocol.class_order": [*range(6), 7, 6]})
    images = np.array(toy_data.train.images)
    images[np.flatnonzero(toy_data.train.labels == 7)[0], 0, 0, 0] ^= 1
    changed = replace(toy_data, train=ImageSplit(images, toy_data.train.labels))
    assert len({key_of(config, toy_data), key_of(swapped, toy_data), key_of(config, changed)}) == 3
    plain, plainly_swapped = (one.override({"initial": []}) for one in (config, swapped))
    same = key_of(plain, toy_data), key_of(plainly_swapped, toy_data), key_of(plain, changed)
    assert len(set(same)) == 1


@pytest.mark.parametrize(
    "fact", ["phasezero", "torch", "device_name", "precision", "engine", "threads", "photos"]
)
def test_what_it_was_computed_with_changes_the_key(fact: str, toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy_config(engine__device="cpu"), toy_data)
    here = environment(trainer.device, trainer.photos)
    elsewhere: Any = {**here, fact: "resident" if fact == "photos" else "another"}
    one, other = (phase_zero_key(trainer.config, toy_data, trainer, made) for made in (here, elsewhere))
    assert one != other


def test_other_data_change_the_key(toy_config: Make, toy_data: ImageData) -> None:
    def key(data: ImageData) -> str:
        return key_of(toy_config(), data)

    assert key(replace(toy_data, name="another")) != key(toy_data)
    assert key(replace(toy_data, preparation=replace(toy_data.preparation, flip=False))) != key(toy_data)
    brighter = replace(toy_data.test, images=np.array(toy_data.test.images) + np.uint8(1))
    assert key(replace(toy_data, test=brighter)) != key(toy_data)  # its accuracy is kept, too


def test_one_changed_pixel_changes_the_key(toy_config: Make, toy_data: ImageData) -> None:
    images = np.array(toy_data.train.images)
    phase_zero_class = Trainer(toy_config(), toy_data).stream.order[0]
    images[np.flatnonzero(toy_data.train.labels == phase_zero_class)[0], 0, 0, 0] ^= 1
    changed = replace(toy_data, train=ImageSplit(images, toy_data.train.labels))
    assert key_of(toy_config(), changed) != key_of(toy_config(), toy_data)


def test_a_removed_entry_leaves_nothing(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    run(toy_config(protocol__phase_sizes=[4]), data=toy_data, store=tmp_path)
    store = PhaseZeroStore(tmp_path)
    (entry,) = store.entries()
    store.remove(entry)
    assert list(tmp_path.iterdir()) == []


def test_seconds_are_those_of_computing(
    toy_config: Make, toy_data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all sittings; a phase 0 out of the store, and waiting for it, count nothing."""
    config, path, store = (
        toy_config(protocol__phase_sizes=[4]),
        tmp_path / "a.safetensors",
        tmp_path / "store",
    )
    run(config, data=toy_data, checkpoint=path, store=store)
    computed = read_facts(path)["seconds"]
    assert 0 < computed <= run(config, data=toy_data, checkpoint=path)["timing"]["seconds_total"]

    @contextlib.contextmanager
    def wait(store: PhaseZeroStore, key: str) -> Iterator[None]:
        time.sleep(1)
        yield

    monkeypatch.setattr(PhaseZeroStore, "claim", wait)
    reused = run(config, data=toy_data, checkpoint=tmp_path / "b.safetensors", store=store)
    assert read_facts(tmp_path / "b.safetensors")["seconds"] == 0
    assert reused["timing"]["seconds_total"] < 1


def test_a_damaged_entry_is_never_used(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    first = run(toy_config(), data=toy_data, store=tmp_path)
    (entry,) = PhaseZeroStore(tmp_path).entries()
    content = bytearray(entry.path.read_bytes())
    content[-5] ^= 1  # one bit of one weight: safetensors itself would not notice
    entry.path.write_bytes(content)
    assert not entry.sound
    again = run(toy_config(), data=toy_data, store=tmp_path)
    assert not again["timing"]["reused_phase_zero"]
    assert comparable_part(again) == comparable_part(first)
    (mended,) = PhaseZeroStore(tmp_path).entries()
    assert mended.sound


def test_an_entry_whose_images_got_other_numbers_is_never_used(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    """An image of a later class is gone: phase 0 and its key are the same, but exemplars are kept by number."""
    run(toy_config(), data=toy_data, store=tmp_path)
    later = Trainer(toy_config(), toy_data).stream.order[-1]
    gone = np.flatnonzero(toy_data.train.labels == later)[0]
    split = ImageSplit(np.delete(toy_data.train.images, gone, 0), np.delete(toy_data.train.labels, gone))
    fewer = replace(toy_data, train=split)
    assert key_of(toy_config(), fewer) == key_of(toy_config(), toy_data)
    again = run(toy_config(), data=fewer, store=tmp_path)
    assert not again["timing"]["reused_phase_zero"]
    assert comparable_part(again) == comparable_part(run(toy_config(), data=fewer))
    assert run(toy_config(), data=fewer, store=tmp_path)["timing"]["reused_phase_zero"]  # made anew


def test_an_entry_under_anothers_key_is_never_used(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    """Sound files, wrong place: copied or renamed by hand."""
    run(toy_config(), data=toy_data, store=tmp_path)
    (entry,) = PhaseZeroStore(tmp_path).entries()
    other = toy_config(seed=1)
    key = key_of(other, toy_data)
    for suffix in (".json", ".safetensors"):
        (tmp_path / f"{key}{suffix}").write_bytes(entry.path.with_suffix(suffix).read_bytes())
    states = {one.key: one.sound for one in PhaseZeroStore(tmp_path).entries()}
    assert states == {entry.key: True, key: False}
    assert PhaseZeroStore(tmp_path).find(key, Trainer(other, toy_data)) is None
    assert not run(other, data=toy_data, store=tmp_path)["timing"]["reused_phase_zero"]


def test_what_lies_alone_is_listed_as_damaged(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    run(toy_config(), data=toy_data, store=tmp_path)
    (entry,) = PhaseZeroStore(tmp_path).entries()
    alone, note = "a" * 64, "b" * 64
    (tmp_path / f"{alone}.safetensors").write_bytes(b"x")
    (tmp_path / f"{note}.json").write_text("[]")
    (tmp_path / "record.json").write_text("{}")  # somebody's own files
    (tmp_path / "checkpoint.safetensors").write_bytes(b"y")
    store = PhaseZeroStore(tmp_path)
    assert {one.key: one.sound for one in store.entries()} == {entry.key: True, alone: False, note: False}
    for one in store.entries():
        if not one.sound:
            store.remove(one)
    assert [one.key for one in store.entries()] == [entry.key]
    assert (tmp_path / "record.json").exists()
    assert (tmp_path / "checkpoint.safetensors").exists()
    with pytest.raises(UserError, match="no such folder"):
        list(PhaseZeroStore(tmp_path / "mistyped").entries())


def test_a_note_that_is_no_json_or_lies_alone_is_passed_over(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    key = key_of(toy_config(), toy_data)
    store = PhaseZeroStore(tmp_path)
    for text in ("{", "[]", '{"sha256": "0"}'):
        (tmp_path / f"{key}.json").write_text(text)
        assert store.find(key, Trainer(toy_config(), toy_data)) is None


def test_what_a_killed_writer_left_goes_with_the_next_entry(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    left, other = (
        tmp_path / f".{key}.safetensors.1.tmp" for key in (key_of(toy_config(), toy_data), "0" * 64)
    )
    for path in (left, other):
        path.write_text("half an ent")
        os.utime(path, (time.time() - 100, time.time() - 100))
    run(toy_config(), data=toy_data, store=tmp_path)
    assert not left.exists()
    assert other.exists()  # another run may be making that one


def test_a_run_that_goes_on_remembers_where_its_phase_0_came_from(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    class StopAfterPhase1:
        def reused(self, phase: object) -> None: ...

        def started(self, phases: int, total_images: int) -> None: ...

        def epoch(self, phase: Phase, *facts: object) -> None:
            if phase.index == 2:
                raise KeyboardInterrupt

        def phase(self, result: object) -> None: ...

    store, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    run(toy_config(), data=toy_data, store=store)
    with pytest.raises(KeyboardInterrupt):
        run(toy_config(), data=toy_data, store=store, checkpoint=checkpoint, listener=StopAfterPhase1())
    resumed = run(toy_config(), data=toy_data, store=store, checkpoint=checkpoint)
    assert resumed["timing"]["reused_phase_zero"]
