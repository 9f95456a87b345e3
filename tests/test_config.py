"""Configurations: in and out of YAML, and what is rejected with which words."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from phasezero.config import Engine, Network, Protocol, RunConfig, Training, complete, load_yaml
from phasezero.errors import UserError
from phasezero.initial.cwd import ClassWiseDecorrelation
from phasezero.methods.lucir import Lucir
from phasezero.presets import build_config, preset
from phasezero.schedule import Schedule

# ---- in and out -------------------------------------------------------------------------------------------


def test_round_trip_with_nothing_left_at_its_default(tmp_path: Path) -> None:
    protocol = Protocol(
        "folder:some where", (3, 1, 2), base=1, step=2, phase_sizes=(2, 1), memory="total:30", selection="random"
    )
    method = Lucir.Options(lambda_base=1e-7, margin=0.25, top_k=3, ranking_weight=2.0, imprint=True, balanced_epochs=5)
    method = replace(method, balanced_lr=1e-5, balanced_milestones=(2, 4))
    terms = {"weight": 1e20, "form": "equation", "normalize": False}, {"weight": 0.1}
    first = Schedule(3, 1e-3, "cosine", (), decay=0.5, momentum=0.0, weight_decay=1e-6, batch_size=7, shift=-1)
    config = RunConfig(
        name="a: b #c",
        seed=3,
        protocol=protocol,
        network=Network("resnet32", last_relu=True),
        method=method,
        initial=tuple(ClassWiseDecorrelation.Options(**one) for one in terms),
        training=Training(first, Schedule(epochs=4, lr=2.0, milestones=(1, 2, 3))),
        engine=Engine("cpu", "fp32", "eager", threads=3, test_batch_size=17, loss_limit=1e30, photos="files"),
    )
    (tmp_path / "run.yaml").write_text(config.to_yaml())
    loaded = load_yaml(tmp_path / "run.yaml")
    assert loaded == config
    assert isinstance(loaded.protocol.class_order, tuple)
    assert isinstance(loaded.initial[0], ClassWiseDecorrelation.Options)
    default = RunConfig().to_dict()
    for section, values in config.to_dict().items():
        assert values != default[section], section


def test_a_dictionary_of_plain_values() -> None:
    """What safe YAML and JSON can write: no tuples, no objects."""

    def check(value: Any) -> None:
        assert type(value) in (dict, list, str, int, float, bool)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            check(item)

    check(preset("lucir+cwd/cifar100/b50s10").to_dict())


def test_what_is_left_out_has_its_default() -> None:
    assert RunConfig.from_dict({}) == RunConfig()
    config = RunConfig.from_dict({"training": {"first": {"lr": 0.2}}, "protocol": {"step": 5}})
    assert config.training.first == Schedule(lr=0.2)
    assert config.training.later == Schedule()
    assert config.protocol == Protocol(step=5)


@pytest.mark.parametrize(
    ("config", "section", "key", "before"),
    [
        (RunConfig(), "engine", "photos", "auto"),
        (build_config("lucir", initial=["sdc", "cwd"]), "initial", "grouping", "neighbours"),
        (build_config("podnet"), "method", "finetune_statistics", True),
        (build_config("bic"), "method", "bias_settles", False),
        (build_config("bic"), "method", "set_aside", 0.0),
    ],
)
def test_a_record_that_is_too_old_to_name_a_setting_has_its_first_value(
    config: RunConfig, section: str, key: str, before: object
) -> None:
    old = copy.deepcopy(config.to_dict())
    options = old[section][0] if isinstance(old[section], list) else old[section]
    del options[key]
    assert complete(old) == RunConfig.from_record(old).to_dict()
    where = f"{section}.0.{key}" if isinstance(old[section], list) else f"{section}.{key}"
    assert complete(old) == config.override({where: before}).to_dict()
    options[key] = "as it was written"
    assert complete(old) == old


def test_a_record_that_is_too_old_to_name_a_setting_of_schedules_has_its_first_value() -> None:
    old = RunConfig().to_dict()
    for part in ("first", "later"):
        assert old["training"][part].pop("even_batches") is False
    assert complete(old) == RunConfig.from_record(old).to_dict() == RunConfig().to_dict()


def test_a_record_of_a_method_from_elsewhere_is_left_as_it_is() -> None:
    old = {"method": {"name": "of a plug-in", "x": 1}, "initial": [{"name": "unheard", "weight": 2}]}
    assert complete(old) == old


def test_yaml_numbers_become_the_fields_types() -> None:
    values = yaml.safe_load("training: {first: {lr: 1, weight_decay: 1e-4, milestones: [3]}}")
    schedule = RunConfig.from_dict(values).training.first
    assert schedule.lr == 1.0
    assert isinstance(schedule.lr, float)
    assert schedule.weight_decay == 1e-4  # which YAML reads as a word
    assert schedule.milestones == (3,)


def test_label() -> None:
    assert RunConfig().label == "lucir"
    assert preset("lucir+cwd/cifar100/b50s10").label == "lucir+cwd"
    assert ClassWiseDecorrelation.Options(weight=0.5).label == "cwd:0.5"


# ---- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"protocl": {}}, ["key in the configuration 'protocl'", "did you mean 'protocol'?"]),
        ({"protocol": {"bse": 50}}, ["key in protocol 'bse'", "did you mean 'base'?"]),
        ({"network": {"last_rel": True}}, ["key in network 'last_rel'", "did you mean 'last_relu'?"]),
        ({"method": {"name": "lucir", "lamda_base": 5}}, ["key in method 'lamda_base'", "did you mean 'lambda_base'?"]),
        ({"initial": [{"name": "cwd", "wieght": 1}]}, ["key in initial.0 'wieght'", "did you mean 'weight'?"]),
        ({"training": {"frist": {}}}, ["key in training 'frist'", "did you mean 'first'?"]),
        ({"training": {"later": {"milestone": [1]}}}, ["key in training.later 'milestone'", "mean 'milestones'?"]),
        ({"engine": {"devise": "cpu"}}, ["key in engine 'devise'", "did you mean 'device'?"]),
        ({"network": {"name": "resnet19"}}, ["network", "resnet19", "did you mean 'resnet18'"]),
        ({"method": {"name": "lucri"}}, ["method", "lucri", "did you mean 'lucir'"]),
        ({"initial": [{"name": "cdw"}]}, ["strategy", "cdw", "did you mean 'cwd'"]),
        ({"protocol": {"selection": "herdin"}}, ["protocol.selection", "did you mean 'herding'"]),
        ({"engine": {"precision": "bf61"}}, ["engine.precision", "did you mean 'bf16'"]),
        ({"initial": [{"name": "cwd", "form": "cod"}]}, ["initial.0.form", "did you mean 'code'"]),
        ({"method": {"lambda_base": 5}}, ["method", "a name is needed", "lucir"]),
        ({"initial": [{"weight": 1}]}, ["initial.0", "a name is needed", "cwd"]),
        ({"protocol": {"memory": "20"}}, ["memory rule", "'20'"]),
        ({"seed": "one"}, ["seed: int is expected", "'one'"]),
        ({"seed": True}, ["seed: int is expected", "True"]),
        ({"seed": 1.5}, ["seed: int is expected", "1.5"]),
        ({"seed": None}, ["seed: int is expected", "None"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"name": 5}, ["name: str is expected", "5"]),
        ({"protocol": 5}, ["protocol: a mapping is expected", "5"]),
        ({"protocol": None}, ["protocol: a mapping is expected", "None"]),
        ({"protocol": {"phase_sizes": 5}}, ["protocol.phase_sizes: a list is expected", "5"]),
        ({"protocol": {"phase_sizes": [5, "x"]}}, ["protocol.phase_sizes.1: int is expected", "'x'"]),
        ({"protocol": {"class_order": 5}}, ["protocol.class_order: str is expected", "5"]),
        ({"protocol": {"class_order": [1, "a"]}}, ["protocol.class_order.1: int is expected", "'a'"]),
        ({"protocol": {"selection": ["herding"]}}, ["protocol.selection"]),
        ({"network": {"last_relu": 1}}, ["network.last_relu: bool is expected", "1"]),
        ({"network": {"name": ["resnet18"]}}, ["network.name: str is expected"]),
        ({"method": "lucir"}, ["method: a mapping is expected", "'lucir'"]),
        ({"method": {"name": ["lucir"]}}, ["method"]),
        ({"initial": {"name": "cwd"}}, ["initial: a list is expected"]),
        ({"initial": ["cwd"]}, ["initial.0: a mapping is expected", "'cwd'"]),
        ({"initial": [{"name": "cwd", "weight": "much"}]}, ["initial.0.weight: float is expected", "'much'"]),
        ({"initial": [{"name": "cwd", "weight": True}]}, ["initial.0.weight: float is expected", "True"]),
        ({"training": {"first": {"lr": [0.1]}}}, ["training.first.lr: float is expected", "[0.1]"]),
        ({"training": {"first": {"milestones": [1.5]}}}, ["training.first.milestones.0: int is expected"]),
    ],
)
def test_an_unknown_or_wrong_entry_is_rejected_with_its_place(values: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        RunConfig.from_dict(values)
    for word in words:
        assert word in str(caught.value)


LISTS = (b", &k%d [%s]" % (i, b", ".join([b"*k%d" % (i - 1)] * 9)) for i in range(1, 12))
ALIASES = b"seed: [&k0 x%s]" % b"".join(LISTS)  # its repr would have 9 to the power of 11 entries


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, r"run\.yaml: no configuration to read"),
        (b"protocol: [1, 2", "is not YAML"),
        (b"name: \xff\xfe\n", "is not YAML"),
        (b"name: !!python/object:os.system {}\n", "is not YAML"),
        (b"name: 2026-13-45\n", "is not YAML"),  # a date to YAML, and none
        (b"- 1\n- 2\n", "a mapping of sections is expected, got list"),
        (b"", "NoneType"),
        (b"seed: 0\ntraining: {first: {lr: 1}}\nseed: 5\n", "seed is given twice"),
        (b"training: {first: {lr: 1, epochs: 2, lr: 3}}\n", "lr is given twice"),
        (b"seed: 0\n---\nseed: 1\n", "holds 2 configurations"),
        (b"seed: " + b"[" * 1000 + b"]" * 1000, "is not YAML: it is nested too deeply"),
        (b"\n".join(b" " * depth + b"a:" for depth in range(1000)), "is not YAML: it is nested too deeply"),
        (b"name: |\n" + b"  a\n" * 300_000, "larger than 1 MiB"),
        (ALIASES, "seed: int is expected"),
    ],
)
def test_files_that_hold_no_configuration(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=words):
        load_yaml(path)
    with pytest.raises(UserError, match="it is a folder, not a file"):
        load_yaml(tmp_path)


@pytest.mark.parametrize("field", ["name", "protocol.data"])
@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "a\x7f", "a\udc80"])
def test_names_can_be_printed(field: str, text: str) -> None:
    with pytest.raises(UserError, match=f"{field}: .* has a character that cannot be printed"):
        RunConfig().override({field: text})
    assert RunConfig(name="LUCIR \u2013 größer").name  # most can


def test_a_variant_must_be_one_and_is_chosen_by_name() -> None:
    values = preset("lucir/glyphs/b50s10").to_dict()
    values["method"]["variant"] = "orignal"
    with pytest.raises(UserError, match="unknown variant of lucir 'orignal'; did you mean 'original'"):
        RunConfig.from_dict(values)
    values["method"]["variant"] = ["original"]
    with pytest.raises(UserError, match=r"method\.variant: str is expected"):
        RunConfig.from_dict(values)
    with pytest.raises(UserError, match=r"method\.variant: .* such as lucir-original"):
        preset("lucir/cifar100/b50s10").override({"method.variant": "original"})
