"""Finished phase-0 states: used again, but never when damaged. test_store_key.py tests who shares them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from phasezero.data.images import ImageData, ImageSplit
from phasezero.engine.checkpoint import read_facts
from phasezero.engine.store import PhaseZeroStore, phase_zero_key
from phasezero.engine.trainer import Trainer
from phasezero.errors import UserError
from phasezero.records.run import comparable_part
from samples import Make, StopAfter, StoppedError, key_of, train


def test_a_stored_phase_zero_gives_the_same_record(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    alone = train(toy_config(), data=toy_data)
    first, second = (train(toy_config(), data=toy_data, store=tmp_path) for _ in range(2))
    assert [r["timing"]["reused_phase_zero"] for r in (alone, first, second)] == [False, False, True]
    assert comparable_part(alone) == comparable_part(first) == comparable_part(second)
    other_step = train(toy_config(protocol__step=1), data=toy_data, store=tmp_path)
    assert other_step["timing"]["reused_phase_zero"]
    assert other_step["phases"][0]["accuracy"] == alone["phases"][0]["accuracy"]
    (entry,) = PhaseZeroStore(tmp_path).entries()
    PhaseZeroStore(tmp_path).remove(entry)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_continues_knows_where_its_phase_0_came_from(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    places = {"store": tmp_path / "store", "checkpoint": tmp_path / "checkpoint"}
    train(toy_config(), data=toy_data, store=places["store"])
    with pytest.raises(StoppedError):
        train(toy_config(), data=toy_data, callback=StopAfter(2), **places)
    assert train(toy_config(), data=toy_data, **places)["timing"]["reused_phase_zero"]


def test_seconds_are_those_of_computing(
    toy_config: Make, toy_data: ImageData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of all sessions count; a phase 0 from the store, and waiting for it, count nothing."""
    config, path, store = (toy_config(protocol__phase_sizes=[4]), tmp_path / "a.safetensors", tmp_path / "store")
    train(config, data=toy_data, checkpoint=path, store=store)
    computed = read_facts(path)["seconds"]
    assert 0 < computed <= train(config, data=toy_data, checkpoint=path)["timing"]["seconds_total"]

    waited = [0.0]
    clock = time.perf_counter

    @contextlib.contextmanager
    def wait(store: PhaseZeroStore, key: str, say: object) -> Iterator[None]:
        waited[0] = 1000.0
        yield

    monkeypatch.setattr(PhaseZeroStore, "claim", wait)
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + waited[0])
    reused = train(config, data=toy_data, checkpoint=tmp_path / "b.safetensors", store=store)
    assert read_facts(tmp_path / "b.safetensors")["seconds"] < 1000
    assert reused["timing"]["seconds_total"] < 1000


def test_a_damaged_entry_is_never_used(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    first = train(toy_config(), data=toy_data, store=tmp_path)
    (entry,) = PhaseZeroStore(tmp_path).entries()
    content = bytearray(entry.path.read_bytes())
    content[-5] ^= 1  # one bit of one weight: safetensors itself would not notice
    entry.path.write_bytes(content)
    assert not entry.sound
    again = train(toy_config(), data=toy_data, store=tmp_path)
    assert not again["timing"]["reused_phase_zero"]
    assert comparable_part(again) == comparable_part(first)
    (mended,) = PhaseZeroStore(tmp_path).entries()
    assert mended.sound


def test_an_entry_whose_images_have_other_indices_is_never_used(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    """An image of a later class is gone: phase 0 and its key are the same, but exemplars are kept as indices."""
    train(toy_config(), data=toy_data, store=tmp_path)
    later = Trainer(toy_config(), toy_data).stream.order[-1]
    gone = np.flatnonzero(toy_data.train.labels == later)[0]
    split = ImageSplit(np.delete(toy_data.train.images, gone, 0), np.delete(toy_data.train.labels, gone))
    fewer = replace(toy_data, train=split)
    assert key_of(toy_config(), fewer) == key_of(toy_config(), toy_data)
    again = train(toy_config(), data=fewer, store=tmp_path)
    assert not again["timing"]["reused_phase_zero"]
    assert comparable_part(again) == comparable_part(train(toy_config(), data=fewer))
    assert train(toy_config(), data=fewer, store=tmp_path)["timing"]["reused_phase_zero"]  # made again


def test_an_entry_under_anothers_key_is_never_used(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    """Intact files in a wrong place were copied or renamed by hand."""
    train(toy_config(), data=toy_data, store=tmp_path)
    (entry,) = PhaseZeroStore(tmp_path).entries()
    other = toy_config(seed=1)
    key = key_of(other, toy_data)
    for suffix in (".json", ".safetensors"):
        (tmp_path / f"{key}{suffix}").write_bytes(entry.path.with_suffix(suffix).read_bytes())
    states = {one.key: one.sound for one in PhaseZeroStore(tmp_path).entries()}
    assert states == {entry.key: True, key: False}
    assert PhaseZeroStore(tmp_path).find(key, Trainer(other, toy_data)) is None
    assert not train(other, data=toy_data, store=tmp_path)["timing"]["reused_phase_zero"]


def test_what_lies_alone_is_listed_as_damaged(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    train(toy_config(), data=toy_data, store=tmp_path)
    store = PhaseZeroStore(tmp_path)
    (entry,) = store.entries()
    alone, note = "a" * 64, "b" * 64
    (tmp_path / f"{alone}.safetensors").write_bytes(b"x")
    (tmp_path / f"{note}.json").write_text("[]")
    others = {tmp_path / "record.json", tmp_path / "checkpoint.safetensors"}  # the user's own files
    for path in others:
        path.write_text("{}")
    assert {one.key: one.sound for one in store.entries()} == {entry.key: True, alone: False, note: False}
    for one in store.entries():
        if not one.sound:
            store.remove(one)
    assert [one.key for one in store.entries()] == [entry.key]
    assert all(path.exists() for path in others)
    with pytest.raises(UserError, match="no such folder"):
        list(PhaseZeroStore(tmp_path / "mistyped").entries())


@pytest.mark.parametrize("note", ["{", "[]", '{"sha256": "0"}', "[" * 100_000])
def test_a_note_that_cannot_be_trusted_is_passed_over(
    note: str, toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    trainer = Trainer(toy_config(), toy_data)
    key = phase_zero_key(trainer)
    (tmp_path / f"{key}.json").write_text(note)
    assert PhaseZeroStore(tmp_path).find(key, trainer) is None


def test_what_a_killed_writer_left_goes_with_the_next_entry(
    toy_config: Make, toy_data: ImageData, tmp_path: Path
) -> None:
    left, other = (tmp_path / f".{key}.safetensors.1.tmp" for key in (key_of(toy_config(), toy_data), "0" * 64))
    for path in (left, other):
        path.write_text("half an ent")
        os.utime(path, (time.time() - 100, time.time() - 100))
    train(toy_config(), data=toy_data, store=tmp_path)
    assert not left.exists()
    assert other.exists()  # another run may be making that one


def test_a_run_says_that_it_waits_for_the_phase_0_of_another(tmp_path: Path) -> None:
    store, waits, done = PhaseZeroStore(tmp_path), threading.Event(), threading.Event()

    def other() -> None:
        with store.claim("key", lambda _: waits.set()):
            done.set()

    with store.claim("key", lambda _: pytest.fail("nobody holds the claim")):
        thread = threading.Thread(target=other)
        thread.start()
        assert waits.wait(10)
        assert not done.is_set()
    thread.join(10)
    assert done.is_set()


def test_what_killed_runs_left_is_removed_unless_a_run_uses_it(tmp_path: Path) -> None:
    store, used, left = PhaseZeroStore(tmp_path), "a" * 64, "b" * 64
    names = [
        f"{start}{key}{end}"
        for key in (used, left)
        for start, end in ((".", ".json.7.tmp"), ("", "-within.safetensors"))
    ]
    others = ["notes.txt", ".other.tmp"]
    for name in [*names, *others]:
        (tmp_path / name).write_text("x")
    with store.claim(used):
        store.clean(states=False)
        assert {path.name for path in tmp_path.iterdir()} == {*names, *others, f".{used}.lock"} - {
            f".{left}.json.7.tmp"
        }
        store.clean(states=True)
    assert {path.name for path in tmp_path.iterdir()} == {*names[:2], *others}
