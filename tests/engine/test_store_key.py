"""Which runs share a phase 0: only those that would train the same bits, and all that the registry says do."""

from __future__ import annotations

import sys
import threading
import time
import typing
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from phasezero import plugins
from phasezero.config import RunConfig, leaves
from phasezero.data.images import ImageData, ImageSplit
from phasezero.engine import store
from phasezero.engine.device import environment
from phasezero.engine.store import phase_zero_key, phase_zero_of
from phasezero.engine.trainer import Trainer
from phasezero.engine.within import trained_state
from phasezero.methods import METHODS, Method
from phasezero.presets import preset
from phasezero.schedule import Schedule
from samples import Make, key_of


def other_value(options: Any, path: str, factor: float = 3.0) -> Any:
    """Return another value that fits a field of nested dataclasses; numbers are multiplied by the factor."""
    name, _, rest = path.partition(".")
    if name.isdecimal() or rest:
        return other_value(options[int(name)] if name.isdecimal() else getattr(options, name), rest)
    value, hint = getattr(options, name), typing.get_type_hints(type(options))[name]
    if typing.get_origin(hint) is typing.Literal:
        return next(choice for choice in typing.get_args(hint) if choice not in (value, "auto"))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        most = options.__dataclass_fields__[name].metadata.get("most", 1.0)
        return (value * factor if value * factor <= most else value / factor) if value else 0.5
    assert isinstance(value, tuple)
    return [one / 2 if isinstance(one, float) else one + 1 for one in value] or [1]


def later_options(method: str) -> list[str]:
    return [one.name for one in fields(METHODS[method].Options) if one.metadata.get("later")]


def test_steps_share(toy_config: Make, toy_data: ImageData) -> None:
    assert len({key_of(toy_config(protocol__step=step), toy_data) for step in (1, 2, 4)}) == 1
    assert len({phase_zero_of(preset(f"lucir+cwd/cifar100/b50s{step}")) for step in (10, 5, 2)}) == 1
    assert phase_zero_of(preset("lucir/cifar100/b40s10")) != phase_zero_of(preset("lucir/cifar100/b50s10"))


def test_methods_share_where_they_say_so(toy_config: Make, toy_data: ImageData) -> None:
    keys = {method: key_of(toy_config(f"{method}/glyphs/b50s10"), toy_data) for method in METHODS}
    assert keys["lucir"] == keys["aanet"] == keys["joint"]
    assert keys["lwf"] == keys["finetune"]
    apart = [keys[method] for method in METHODS if not METHODS[method].phase_zero_like]
    assert len(set(apart)) == len(apart)


# The first phase, the processor and images in memory stay the same.
WITHOUT_EFFECT = {f"protocol.{name}" for name in ("step", "phase_sizes", "selection")}
WITHOUT_EFFECT |= {"engine.device", "engine.photos", "engine.loss_limit"}
NOT_TRIED = {
    "network.weights",
    "name",
    "method.name",
    "method.variant",
    "protocol.data",
    "engine.engine",
    "initial.0.name",
}
OTHERS = {
    "protocol.base": 2,
    "protocol.step": 1,
    "protocol.phase_sizes": [4, 1],
    "protocol.class_order": "natural",
    "protocol.memory": "per_class:2",
    "network.name": "resnet32",
    "initial": [{"name": "cwd"}],
    "engine.device": "auto",
    "engine.precision": "bf16",
}


@pytest.mark.parametrize("name", ["lucir+cwd", "podnet+sdc", "bic"])
def test_every_field_counts_unless_it_is_known_not_to_matter(
    name: str, toy_config: Make, toy_data: ImageData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = toy_config(f"{name}/glyphs/b50s10", engine__device="cpu", engine__precision="fp32", engine__threads=1)
    same, here = set(), key_of(config, toy_data)
    for field, _ in leaves(config.to_dict()):
        if field not in NOT_TRIED:
            other = OTHERS[field] if field in OTHERS else other_value(config, field)
            if key_of(config.override({field: other}), toy_data) == here:
                same.add(field)
    later = {f"training.later.{one.name}" for one in fields(Schedule)}
    memory = set() if METHODS[config.method.name].memory_in_phase_zero else {"protocol.memory"}
    assert same == {
        *WITHOUT_EFFECT,
        *memory,
        *later,
        *(f"method.{option}" for option in later_options(config.method.name)),
    }


def trained_phase_zero(config: RunConfig, data: ImageData) -> dict[str, Any]:
    """Train phase 0 and return everything that another run takes from a store."""
    trainer = Trainer(config, data)
    record = next(trainer.run()).record
    return {**trained_state(trainer.model), "losses": [record["loss"], record["train_images"]]}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        same = torch.equal(value, other[name]) if isinstance(value, Tensor) else value == other[name]
        assert same, name


@pytest.mark.parametrize("factor", [3.0, 0.01])
@pytest.mark.parametrize("method", list(METHODS))
def test_options_of_later_phases_do_not_change_a_trained_phase_zero(
    method: str, factor: float, toy_config: Make, toy_data: ImageData
) -> None:
    """So that a wrong `later` cannot slip in: values far above and far below would show in phase 0."""
    settings = {"engine__device": "cpu", "training__first__epochs": 1, "protocol__memory": "per_class:10"}
    config = toy_config(f"{method}/glyphs/b50s10", **settings)
    options = {name: other_value(config.method, name, factor) for name in later_options(method)}
    changed = config.override({f"method.{name}": value for name, value in options.items()} | {"training.later.lr": 0.3})
    assert all(getattr(changed.method, name) != getattr(config.method, name) for name in options)
    assert key_of(changed, toy_data) == key_of(config, toy_data)
    assert_same(trained_phase_zero(changed, toy_data), trained_phase_zero(config, toy_data))


@pytest.mark.parametrize("method", [method for method in METHODS if METHODS[method].phase_zero_like])
def test_methods_that_share_train_the_same_phase_zero(method: str, toy_config: Make, toy_data: ImageData) -> None:
    names = (method, METHODS[method].phase_zero_like)
    one, other = (toy_config(f"{name}+cwd/glyphs/b50s10", engine__device="cpu") for name in names)
    assert key_of(one, toy_data) == key_of(other, toy_data)
    assert_same(trained_phase_zero(one, toy_data), trained_phase_zero(other, toy_data))


def with_pixel(data: ImageData, label: int) -> ImageData:
    """Return the data with one pixel of one training image of that class changed."""
    images = np.array(data.train.images)
    images[np.flatnonzero(data.train.labels == label)[0], 0, 0, 0] ^= 1
    return replace(data, train=ImageSplit(images, data.train.labels))


def test_other_data_change_the_key(toy_config: Make, toy_data: ImageData) -> None:
    view = replace(toy_data.preparation.view, flip=False)
    brighter = replace(toy_data.test, images=np.array(toy_data.test.images) + np.uint8(1))
    order = Trainer(toy_config(), toy_data).stream.order
    others = [
        replace(toy_data, name="another"),
        replace(toy_data, preparation=replace(toy_data.preparation, view=view)),
        replace(toy_data, test=brighter),  # its accuracy is kept, too
        with_pixel(toy_data, order[0]),
    ]
    keys = {key_of(toy_config(), data) for data in (toy_data, *others)}
    assert len(keys) == 5
    assert key_of(toy_config(), with_pixel(toy_data, order[-1])) in keys  # a class of a later phase


@pytest.mark.parametrize("fact", ["torch", "device_name", "precision", "engine", "threads", "photos"])
def test_what_it_was_computed_with_changes_the_key(fact: str, toy_config: Make, toy_data: ImageData) -> None:
    trainer = Trainer(toy_config(engine__device="cpu"), toy_data)
    here = environment(trainer.device, trainer.setup.photos)
    elsewhere: Any = {**here, fact: "resident" if fact == "photos" else "another"}
    assert phase_zero_key(trainer, here) == phase_zero_key(trainer) != phase_zero_key(trainer, elsewhere)


def test_an_oracle_belongs_to_the_key(toy_config: Make, toy_data: ImageData, tmp_path: Path) -> None:
    """Mimicking a model of other classes or images, or another file, is another phase 0."""
    file = tmp_path / "oracle.safetensors"
    file.write_bytes(b"one")

    def key(sizes: list[int], data: ImageData = toy_data, **term: Any) -> str:
        order = {"protocol.class_order": list(range(8)), "protocol.phase_sizes": sizes}
        return key_of(toy_config().override({"initial": [{"name": "mimic", **term}], **order}), data)

    changed = with_pixel(toy_data, 7)
    assert key([3, 1]) == key([3, 1]) == key([3, 1], changed)
    assert len({key([3, 1]), key([3, 2]), key([3, 5]), key([3, 5], changed)}) == 4
    with_file = key([3, 1], oracle=str(file))
    assert with_file == key([3, 2], oracle=str(file)) == key([3, 5], changed, oracle=str(file)) != key([3, 1])
    file.write_bytes(b"two")
    assert key([3, 1], oracle=str(file)) != with_file


def test_comments_and_docstrings_are_no_code(tmp_path: Path) -> None:
    texts = {
        "first": 'def f(x):\n    """Doc."""\n    return x + 1\n',
        "same": '"""Module."""\n\n\n# why\ndef f(x):\n    """Other.\n\n    More.\n    """\n    return (x + 1)  # so\n',
        "other": 'def f(x):\n    """Doc."""\n    return x + 2\n',
        "text": 'def f(x):\n    """Doc."""\n    return "x + 1"\n',
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    first, same, *others = (store._code_of(tmp_path / f"{name}.py") for name in texts)
    assert first == same
    assert len({first, *others}) == 3


def test_threads_parse_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    parsing = threading.Lock()

    def parse(path: Path) -> str:
        assert parsing.acquire(blocking=False)
        time.sleep(1e-3)
        parsing.release()
        return ""

    monkeypatch.setattr(store, "_code_of", parse)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(store.code_hash, [preset("lucir/glyphs/b50s10")] * 2))


def hash_with_change(config: RunConfig, file: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the hash of the code as it would be if that file were changed."""
    plain = store._code_of
    with monkeypatch.context() as patched:
        patched.setattr(store, "_code_of", lambda path: "new" if path.as_posix().endswith(file) else plain(path))
        return store.code_hash(config)


USED = ["methods/lucir", "methods/base", "methods/stage", "initial/cwd", "initial/base", "nets/heads", "data/loader"]
USED += ["engine/trainer", "engine/step", "engine/store", "memory", "schedule", "seeding", "records/metrics"]
UNUSED = ["methods/bic", "methods/aanet", "methods/joint", "initial/mimic", "presets", "runs/run", "records/analysis"]


def test_the_code_that_phase_zero_runs_through_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset("lucir+cwd/glyphs/b50s10")
    here = store.code_hash(config)
    same = [file for file in USED + UNUSED if hash_with_change(config, f"/{file}.py", monkeypatch) == here]
    assert same == UNUSED
    aanet, bic = preset("aanet+cwd/glyphs/b50s10"), preset("bic/glyphs/b50s10")
    assert store.code_hash(aanet) == hash_with_change(aanet, "methods/aanet.py", monkeypatch) == here
    for file in ("methods/bic.py", "methods/lwf.py"):  # which it takes a function from
        assert hash_with_change(bic, file, monkeypatch) != store.code_hash(bic)


PLUGIN = """
from dataclasses import dataclass
from phasezero import MethodOptions, register_method
from phasezero.methods.lucir import Lucir
{more}
@register_method("stored-plugin")
class Mine(Lucir):
    @dataclass(frozen=True)
    class Options(Lucir.Options):
        name: str = "stored-plugin"
"""


@pytest.mark.usefixtures("own_registries")
def test_the_code_of_a_plugin_file_changes_the_key(tmp_path: Path, toy_config: Make) -> None:
    file = tmp_path / "mine.py"
    hashes = []
    for more in ("", "# a comment", "SETTING = 1"):
        file.write_text(PLUGIN.format(more=more))
        plugins.load_plugin(file)  # once
        store._code_of.cache_clear()
        hashes.append(store.code_hash(toy_config("stored-plugin/glyphs/b50s10")))
    assert hashes[0] == hashes[1] != hashes[2]
    assert hashes[0] != store.code_hash(toy_config("lucir/glyphs/b50s10"))


@pytest.mark.usefixtures("own_registries")
def test_the_other_files_of_a_plugin_package_count(
    tmp_path: Path, toy_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "storedpack"
    package.mkdir()
    (package / "__init__.py").write_text("from storedpack import method")
    (package / "method.py").write_text(PLUGIN.format(more="from storedpack.helper import f"))
    (package / "helper.py").write_text("def f(): ...")
    (package / "unused.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("storedpack")
    config = toy_config("stored-plugin/glyphs/b50s10")
    here = store.code_hash(config)
    for name, counts in (("method", True), ("helper", True), ("unused", False)):
        assert (hash_with_change(config, f"storedpack/{name}.py", monkeypatch) != here) == counts


@pytest.mark.usefixtures("own_registries")
@pytest.mark.parametrize(
    ("more", "file", "counts"),
    [
        ("from stored_helper import f", "stored_helper.py", True),
        ("import stored_helper", "stored_helper.py", True),
        ("from phasezero import decov", "initial/decov.py", True),
        ("from phasezero import class_spectra", "analysis/spectra.py", True),
        ("import phasezero", "initial/decov.py", True),
        ("", "initial/decov.py", False),
        ("import yaml", "yaml/__init__.py", False),  # an installed package
    ],
)
def test_the_code_that_a_plugin_takes_from_elsewhere_counts(
    more: str, file: str, counts: bool, tmp_path: Path, toy_config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stored_helper.py").write_text("def f(): ...")
    (tmp_path / "mine.py").write_text(PLUGIN.format(more=more))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "stored_helper", raising=False)
    plugins.load_plugin(tmp_path / "mine.py")
    config = toy_config("stored-plugin/glyphs/b50s10")
    assert (hash_with_change(config, file, monkeypatch) != store.code_hash(config)) == counts


@pytest.mark.usefixtures("own_registries")
def test_a_method_without_a_file_shares_with_nobody(toy_config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, where a cell may have been changed."""
    monkeypatch.setitem(sys.modules, "notebook_cell", ModuleType("notebook_cell"))
    options = type("Options", (Method.Options,), {})
    METHODS.register("noted")(type("Noted", (Method,), {"__module__": "notebook_cell", "Options": options}))
    config = replace(toy_config("lucir/glyphs/b50s10"), method=options(name="noted"))
    assert store.code_hash(config) != store.code_hash(config)
