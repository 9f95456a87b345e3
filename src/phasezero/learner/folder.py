"""A model on disk: a folder with `model.json`, safetensors, exemplars as image files, and a model card.

Files of tensors and images are named after their content and never change. `model.json` names them with their sha256
and is replaced last, so a killed writer leaves the model as it was. The version before stays readable, for `undo`.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors, save as save_tensors
from torch import Tensor, nn

from phasezero import __version__
from phasezero.config import MODULE, RunConfig
from phasezero.data.files import Item
from phasezero.data.images import Preparation, View
from phasezero.engine.device import Device
from phasezero.engine.trainer import build_model
from phasezero.errors import UserError
from phasezero.learner.calibration import TEMPERATURES, Calibration
from phasezero.learner.card import card
from phasezero.learner.module import wrapped
from phasezero.methods import METHODS
from phasezero.nets import BACKBONES, Backbone, Pretrained, build_backbone
from phasezero.records.files import check_regular, replacing, write_whole
from phasezero.records.jsonfile import check_content, read_json, write_json
from phasezero.records.locks import locked as lock
from phasezero.seeding import generator
from phasezero.validation import check_printable

if TYPE_CHECKING:
    from phasezero.learner.learner import Learner

FORMAT = "phasezero-model-1"
MODEL, PREVIOUS, CARD, IMAGES, LOCK = "model.json", "previous.json", "README.md", "images", ".lock"
WAIT = 60.0
PNG = b"\x89PNG"


@contextlib.contextmanager
def locked(folder: Path, wait: float | None = None, say: Callable[[str], None] | None = None) -> Iterator[None]:
    """Lock a model while it is changed; another process waits, and gives up after some seconds.

    Where locks do not exist, `save` still refuses to overwrite a model that another process has changed.
    """
    with lock(folder / LOCK, "is changing this model", WAIT if wait is None else wait, say or (lambda _: None)):
        yield


def save(learner: Learner, folder: Path) -> Path:
    """Write the model; raise UserError if another process has changed the folder since it was read."""
    check_folder(folder)
    current = folder / MODEL
    if current.exists():
        found = read_model(folder)
        if found["id"] != learner._saved.get("id") or found["version"] != learner._saved.get("version"):
            raise UserError(f"{folder} holds another model, or was changed since it was loaded; choose another folder")
    facts = _write_parts(learner, folder)
    if current.exists():
        write_whole(folder / PREVIOUS, current.read_text(encoding="utf-8"))
    write_json(current, facts, "model")
    write_whole(folder / CARD, card(facts))
    learner._saved = {"id": facts["id"], "version": facts["version"]}
    _remove_unused(folder)
    return folder


def check_folder(folder: Path) -> bool:
    """Tell whether a folder has a model; raise UserError if it can have none."""
    check_printable("model", str(folder))
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder for the model")
    if (folder / MODEL).exists():
        return True
    if folder.is_dir() and any(not one.name.startswith(".") for one in folder.iterdir()):
        raise UserError(f"{folder} has other files and no model; choose another folder")
    return False


def undo(folder: Path) -> None:
    """Return to the version before the last save; raise UserError without such a version."""
    if not (folder / PREVIOUS).exists():
        raise UserError(f"{folder}: there is no earlier version to return to")
    # A version of its own: whoever has loaded the undone version must not overwrite a later version of that number.
    before = read_model(folder, PREVIOUS) | {"version": read_model(folder)["version"] + 1}
    write_json(folder / MODEL, before, "model")
    write_whole(folder / CARD, card(before))
    (folder / PREVIOUS).unlink()
    _remove_unused(folder)


def _write_parts(learner: Learner, folder: Path) -> dict[str, Any]:
    """Write tensors and images that are not there yet, and return the content of model.json."""
    state = {name: tensor.cpu().contiguous() for name, tensor in learner.model_.state_dict().items()}
    backbone = {name: tensor for name, tensor in state.items() if name.startswith("backbone.")}
    rest = {name: tensor for name, tensor in state.items() if name not in backbone}
    if learner._means is not None:
        rest["means"] = learner._means.cpu().contiguous()
    seen = learner._seen
    rest["seen.hashes"] = torch.tensor(list(seen), dtype=torch.int64)
    rest["seen.classes"] = torch.tensor(list(seen.values()), dtype=torch.int32)
    own = learner._pretrained
    exemplars = [[_write_image(folder, item) for item in kept] for kept in learner._exemplars]
    counts = torch.bincount(rest["seen.classes"], minlength=len(learner._names)).tolist()
    phases = [phase for phase, size in enumerate(learner._sizes) for _ in range(size)]
    return {
        "format": FORMAT,
        "phasezero": __version__,
        "id": learner._saved.get("id") or hashlib.sha256(f"{time.time_ns()}{folder}".encode()).hexdigest()[:16],
        "version": int(learner._saved.get("version", 0)) + 1,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "config": learner.config_.to_dict(),
        "parameters": _parameters(learner),
        "classes": [
            {"name": name, "phase": phase, "images": count, "exemplars": [file["file"] for file in files]}
            for name, phase, count, files in zip(learner._names, phases, counts, exemplars, strict=True)
        ],
        "history": learner.history_,
        "backbone": None
        if own is None
        else {key: getattr(own, key) for key in ("name", "licence", "source", "sha256")},
        "preparation": {
            "mean": list(learner._preparation.mean),
            "std": list(learner._preparation.std),
            "size": learner._preparation.size,
            "resize": learner._preparation.resize,
            "crop": learner._preparation.view.crop,
            "padding": learner._preparation.view.padding,
        },
        "in_memory": list(learner._side) if learner._in_memory else None,
        "calibration": learner._calibration.to_dict(),
        "tensors": {
            "backbone": _write_tensors(folder, "backbone", backbone),
            "state": _write_tensors(folder, "state", rest),
        },
        "images": {file["file"]: file["sha256"] for files in exemplars for file in files},
    }


def _parameters(learner: Learner) -> dict[str, Any]:
    """Return the arguments of the constructor that JSON can hold."""
    found = learner.get_params()
    found |= {"initial": list(found["initial"]), "settings": dict(found["settings"] or {}), "progress": None}
    return found | ({} if isinstance(found["backbone"], str) else {"backbone": MODULE})


def _write_tensors(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    content = save_tensors(dict(tensors))
    digest = hashlib.sha256(content).hexdigest()
    _write(folder / f"{name}-{digest[:16]}.safetensors", content)
    return {"file": f"{name}-{digest[:16]}.safetensors", "sha256": digest}


def _write_image(folder: Path, item: Item) -> dict[str, str]:
    content = item.read_bytes() if isinstance(item, Path) else item
    assert isinstance(content, bytes)
    digest = hashlib.sha256(content).hexdigest()
    name = f"{IMAGES}/{digest[:16]}{'.png' if content.startswith(PNG) else '.jpg'}"
    _write(folder / name, content)
    return {"file": name, "sha256": digest}


def _write(path: Path, content: bytes) -> None:
    if not path.exists():
        with replacing(path) as temporary:
            temporary.write_bytes(content)


def _remove_unused(folder: Path) -> None:
    """Remove tensors and images that neither the model nor its version before names."""
    used = set[str]()
    for name in (MODEL, PREVIOUS):
        if (folder / name).exists():
            facts = read_model(folder, name)
            used |= {*facts["images"], *(part["file"] for part in facts["tensors"].values())}
    for path in (*folder.glob("*.safetensors"), *(folder / IMAGES).glob("*.*")):
        if path.relative_to(folder).as_posix() not in used:
            path.unlink(missing_ok=True)


def read_model(folder: Path, name: str = MODEL) -> dict[str, Any]:
    """Return the content of model.json; raise UserError if the folder has no model of this format."""
    if not (folder / name).is_file():
        raise UserError(f"{folder}: there is no model here ({name} is missing)")
    facts = read_json(folder / name, "model")
    if facts.get("format") != FORMAT:
        raise UserError(f"{folder / name} is not a model of this version of phasezero (format {facts.get('format')!r})")
    try:
        check_content(folder / name, facts, "model", lambda _: iter(()))
    except UserError as error:
        raise UserError(f"{error}; the file is damaged") from None
    return facts


def load(folder: Path, module: nn.Module | None = None, device: str = "auto") -> Learner:
    """Return the learner of a folder, after comparing every file with its sha256."""
    from phasezero.learner.learner import Learner

    facts = read_model(folder)
    try:
        return _restore(Learner, folder, facts, module, device)
    except UserError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise UserError(f"{folder / MODEL} is damaged: {type(error).__name__} {error}") from error


def _restore(
    kind: type[Learner], folder: Path, facts: dict[str, Any], module: nn.Module | None, device: str
) -> Learner:
    parameters = facts["parameters"]
    if parameters["backbone"] == MODULE:
        if module is None:
            raise UserError(
                f"{folder}: the model has a backbone of its own; give Learner.load(folder, backbone=module)"
            )
        parameters = parameters | {"backbone": module}
    learner = kind(**(parameters | {"device": device}))
    learner.config_ = RunConfig.from_record(facts["config"]).override({"engine.device": device})
    sizes = [0] * (1 + max(entry["phase"] for entry in facts["classes"]))
    for entry in facts["classes"]:
        sizes[entry["phase"]] += 1
    own = facts["preparation"]
    crop = View(own["crop"], padding=own["padding"])
    learner._preparation = Preparation(tuple(own["mean"]), tuple(own["std"]), own["size"], crop, own["resize"])
    learner._in_memory = facts["in_memory"] is not None
    if learner._in_memory:
        learner._side = tuple(facts["in_memory"])
    tensors = {part: _read_tensors(folder, entry) for part, entry in facts["tensors"].items()}
    state = tensors["backbone"] | tensors["state"]
    hashes, seen = (state.pop(f"seen.{key}").tolist() for key in ("hashes", "classes"))
    means = state.pop("means", None)
    learner._pretrained = _pretrained(facts, learner._preparation, module)
    learner._place = Device.choose(learner.config_.engine)
    method = METHODS[learner.config_.method.name](learner.config_.method)
    given = learner._pretrained.network if learner._pretrained is not None else None
    model = build_model(learner.config_, method, len(learner._preparation.mean), given)
    learner._sizes = sizes
    for phase in learner._phases():
        method.grow(model, phase, generator(learner.config_.seed, "head", phase.index))
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(f"{folder}: the tensors do not fit the model: {error}") from None
    learner.model_ = learner._place.place(model)
    learner._means = None if means is None else means.to(learner._place.torch)
    learner._set_names([entry["name"] for entry in facts["classes"]])
    learner._seen = dict(zip(hashes, seen, strict=True))
    learner._exemplars = [[_checked_image(folder, file, facts) for file in e["exemplars"]] for e in facts["classes"]]
    learner._calibration = Calibration(**facts["calibration"])
    if len(learner._calibration.likelihoods) != len(TEMPERATURES):
        raise UserError(f"{folder / MODEL} is damaged: calibration has another number of temperatures")
    learner.history_ = facts["history"]
    learner._saved = {"id": facts["id"], "version": facts["version"]}
    return learner


def _pretrained(facts: dict[str, Any], preparation: Preparation, module: nn.Module | None) -> Pretrained | None:
    own = facts["backbone"]
    if own is None:
        return None
    network: Backbone = wrapped(module).network if module is not None else build_backbone(own["name"])
    if module is None and own["name"] not in BACKBONES:
        raise LookupError(own["name"])
    mean, std = preparation.mean, preparation.std
    pixels = preparation.size, preparation.resize, mean, std
    return Pretrained(own["name"], network, *pixels, own["licence"], own["source"], own["sha256"])  # type: ignore[arg-type]


def _content(folder: Path, name: str, digest: str) -> bytes:
    """Return a file's content; raise UserError if it is missing, damaged or outside the folder."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{folder / MODEL} names a file outside the folder: {name}")
    if path.exists():
        check_regular(path, "file of the model")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}; the model is incomplete") from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise UserError(f"{path} is damaged: its content does not match model.json")
    return content


def _read_tensors(folder: Path, entry: Mapping[str, str]) -> dict[str, Tensor]:
    content = _content(folder, entry["file"], entry["sha256"])
    try:
        return load_tensors(content)
    except SafetensorError as error:
        raise UserError(f"{folder / entry['file']} is not a file of tensors: {error}") from None


def _checked_image(folder: Path, name: str, facts: Mapping[str, Any]) -> bytes:
    return _content(folder, name, facts["images"][name])
