"""The HTTP API: predictions as the learner makes them, learning and undoing, and every error with its status."""

from __future__ import annotations

import io
import json
import struct
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

from starlette.testclient import TestClient

from phasezero.learner import Learner
from phasezero.learner.folder import locked
from phasezero.serve import state
from phasezero.serve.batches import Batches
from phasezero.serve.state import Model
from samples import COLOURS, HOSTILE, make_photo
from uploads import error, files, red

Serve = Callable[..., TestClient]


def test_predictions_are_those_of_the_learner(client: TestClient, folder: Path) -> None:
    photos = [red(), make_photo(COLOURS["blue"], 91, 200), make_photo(COLOURS["green"], 92)]
    response = client.post("/predict?top=1&similar=2", files=files(*photos))
    assert response.status_code == 200
    found = response.json()["predictions"]
    assert [one["file"] for one in found] == ["0.jpg", "1.jpg", "2.jpg"]
    assert [one["name"] for one in found[:2]] == ["red", "blue"]
    expected = Learner.load(folder, device="cpu").top(photos, 1)
    for one, ((name, probability),) in zip(found, expected, strict=True):
        assert one["name"] == one["top"][0]["name"] == name
        assert one["top"][0]["probability"] == pytest.approx(probability, abs=1e-4)
        assert len(one["top"]) == 1
    assert [kept["name"] for kept in found[0]["similar"]] == ["red", "red"]
    assert found[0]["similar"][0]["cosine"] >= found[0]["similar"][1]["cosine"]


def test_an_image_may_be_the_whole_body(client: TestClient) -> None:
    for kind in ("image/jpeg", "application/octet-stream"):
        response = client.post("/predict", content=red(), headers={"content-type": kind})
        assert response.json()["predictions"][0]["name"] == "red"
        assert response.json()["predictions"][0]["similar"] == []


def test_an_image_unlike_the_classes_is_rejected(client: TestClient) -> None:
    model: Model = client.app_state["model"]
    model.version.learner._calibration.confidences = [1.1]
    response = client.post("/predict?reject=0.5", files=files(red()))
    assert response.json()["predictions"][0]["name"] == "unknown"
    assert response.json()["predictions"][0]["top"][0]["name"] == "red"
    model.version.learner._calibration.confidences = []
    assert "held-out" in error(client.post("/predict?reject=0.5", files=files(red())), 400)


def test_a_class_is_learned_tried_extended_and_undone(client: TestClient, folder: Path) -> None:
    green = [make_photo(COLOURS["green"], seed) for seed in range(5)]
    response = client.post("/learn", data={"name": " green "}, files=files(*green[:4]))
    assert response.status_code == 200, response.text
    learned = response.json()
    assert (learned["name"], learned["new"], learned["images"], learned["phase"]) == ("green", True, 4, 1)
    assert learned["seconds"] > 0
    assert client.post("/predict", files=files(green[4])).json()["predictions"][0]["name"] == "green"
    assert list(Learner.load(folder, device="cpu").classes_) == ["blue", "red", "green"]
    known = client.get("/classes").json()
    assert [(one["name"], one["phase"], one["images"], one["exemplars"]) for one in known["classes"]] == [
        ("blue", 0, 4, 2),
        ("red", 0, 4, 2),
        ("green", 1, 4, 2),
    ]
    assert known["can_add_examples"]
    assert known["can_undo"]
    assert [phase["classes"] for phase in known["phases"]] == [2, 1]
    assert known["classes"][2]["accuracy"] == learned["accuracy"] == known["phases"][1]["accuracy"]
    assert client.get("/progress").json() == {"learning": None, "version": learned["version"]}
    more = client.post("/learn", data={"name": "green"}, files=files(green[4])).json()
    assert (more["new"], more["images"], more["phase"]) == (False, 1, None)
    assert client.get("/classes").json()["classes"][2]["images"] == 5
    assert client.post("/undo").json()["classes"] == 3
    after = client.get("/classes").json()
    assert after["classes"][2]["images"] == 4
    assert "no earlier version" in error(client.post("/undo"), 409)
    assert not after["can_undo"]
    assert Learner.load(folder, device="cpu")._saved["version"] == after["version"]


def test_what_another_process_changed_is_kept(client: TestClient, folder: Path) -> None:
    other = Learner.load(folder, device="cpu")
    other.add_classes([make_photo(COLOURS["green"], seed) for seed in range(2)], ["green"] * 2).save(folder)
    assert "another process" in error(client.post("/undo"), 409)
    assert len(client.get("/classes").json()["classes"]) == 3
    other.add_classes([make_photo(COLOURS["grey"], seed) for seed in range(2)], ["grey"] * 2).save(folder)
    assert client.post("/learn", data={"name": "red"}, files=files(red())).status_code == 200
    assert [one["name"] for one in client.get("/classes").json()["classes"]] == ["blue", "red", "green", "grey"]


def test_kept_photos_are_served(client: TestClient) -> None:
    response = client.get("/exemplars/1/0")
    assert response.headers["content-type"] == "image/jpeg"
    assert response.content.startswith(b"\xff\xd8")
    for path in ("/exemplars/1/2", "/exemplars/2/0", "/exemplars/1/x", "/exemplars/-1/0", "/exemplars/1/%2e%2e"):
        error(client.get(path), 404)
    error(client.get("/exemplars/" + "9" * 50 + "/0"), 404)


def test_predictions_go_on_while_a_class_is_learned(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on = threading.Event(), threading.Event()
    save = Learner.save

    def slow(self: Learner, where: Path) -> Path:
        started.set()
        assert go_on.wait(20)
        return save(self, where)

    monkeypatch.setattr(Learner, "save", slow)
    with ThreadPoolExecutor(1) as pool:
        learning = pool.submit(client.post, "/learn", data={"name": "grey"}, files=files(red(51), red(52)))
        try:
            assert started.wait(20)
            assert client.get("/progress").json()["learning"]["name"] == "grey"
            answer = client.post("/predict", files=files(red())).json()
            assert {one["name"] for one in answer["predictions"][0]["top"]} == {"red", "blue"}
            for path, form in (("/learn", {"name": "other"}), ("/undo", {})):
                response = client.post(path, data=form, files=files(red()) if form else None)
                assert "being changed" in error(response, 503)
                assert response.headers["retry-after"] == "5"
        finally:
            go_on.set()
        assert learning.result().status_code == 200


def test_a_folder_locked_by_another_process_is_busy(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LOCK_WAIT", 0.1)
    with locked(folder):
        assert "another process" in error(client.post("/undo"), 503)
    error(client.post("/undo"), 409)


def test_a_failed_lesson_changes_nothing(client: TestClient, folder: Path) -> None:
    before = (folder / "model.json").read_bytes()
    kept = make_photo(COLOURS["red"], 0)  # learned as red
    assert "same image" in error(client.post("/learn", data={"name": "new"}, files=files(kept)), 400)
    for name in ("", "  ", "a\nb", "\x1b[0m", "x" * 101):
        assert "name" in error(client.post("/learn", data={"name": name}, files=files(red())), 400)
    assert "no photos" in error(client.post("/learn", files={"name": (None, "new")}), 400)
    error(client.post("/learn", data={"name": "new"}, files=files(red(), b"no image")), 400)
    error(client.post("/learn", content=red(), headers={"content-type": "image/jpeg"}), 415)
    assert (folder / "model.json").read_bytes() == before
    assert client.get("/progress").json()["learning"] is None


def test_names_are_texts_and_never_paths(client: TestClient, folder: Path) -> None:
    beside = sorted(folder.parent.rglob("*"))
    for at, name in enumerate(("../../escape", HOSTILE, "\u00e9t\u00e9 \u732b")):
        photos = [make_photo(COLOURS["grey"], 10 * at + number) for number in range(2)]
        hostile = [("image", (f"../../{name}", photo, "image/jpeg")) for photo in photos]
        assert client.post("/learn", data={"name": name}, files=hostile).json()["name"] == name
    assert {path.parent for path in folder.parent.rglob("*")} == {path.parent for path in beside}
    # The same letters, composed in another way, are the same class.
    again = client.post("/learn", data={"name": "e\u0301te\u0301 \u732b"}, files=files(make_photo(COLOURS["grey"], 99)))
    assert not again.json()["new"]


def test_a_method_that_cannot_add_photos_says_so(serve: Serve, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (8, 16, 16, 3), np.uint8)
    learner = Learner("icarl", backbone="none", memory="per_class:2", settings={"epochs": 1}, device="cpu")
    learner.fit(images, [3, 3, 3, 3, 5, 5, 5, 5]).save(tmp_path / "icarl")
    client = serve(tmp_path / "icarl")
    answer = client.post("/predict?similar=1", files=files(png(images[0]))).json()["predictions"][0]
    assert answer["name"] in ("3", "5")
    assert answer["similar"][0]["cosine"] <= 1.0001
    assert client.get("/exemplars/0/0").headers["content-type"] == "image/png"
    assert "16 x 16 pixels" in error(client.post("/predict", files=files(red())), 400)
    assert "whole numbers" in error(client.post("/learn", data={"name": "new"}, files=files(png(images[0]))), 400)
    assert "cannot add" in error(client.post("/learn", data={"name": "3"}, files=files(png(images[0]))), 409)
    fresh = rng.integers(0, 255, (2, 16, 16, 3), np.uint8)
    assert client.post("/learn", data={"name": "7"}, files=files(*map(png, fresh))).json()["new"]
    assert [one["name"] for one in client.get("/classes").json()["classes"]] == ["3", "5", "7"]


def png(pixels: Any) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def huge_png(side: int) -> bytes:
    """Return a PNG whose header claims a size, and no pixels."""
    parts = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b"")
    chunks = (struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize("content", [b"no image", b"<svg/>", b"%!PS-Adobe-3.0 EPSF-3.0", red()[:200]])
def test_what_is_no_image_is_refused(client: TestClient, content: bytes) -> None:
    message = error(client.post("/predict", files=files(red(), content)), 400)
    assert message.startswith("image 2 cannot be read")
    assert "0x" not in message


def test_requests_that_are_too_large(serve: Serve) -> None:
    client = serve(file_bytes=5000, predict_bytes=12_000, predict_files=3, learn_files=2, learn_bytes=9000)
    small = make_photo(COLOURS["red"], 7, 16)
    assert len(small) < 3000
    assert client.post("/predict", files=files(*[small] * 3)).status_code == 200
    assert "too many" in error(client.post("/predict", files=files(*[small] * 4)), 413)
    assert "image 1 has 5,001 bytes" in error(client.post("/predict", files=files(bytes(5001))), 413)
    assert "12,000 bytes" in error(client.post("/predict", files=files(bytes(20_000))), 413)
    raw = {"content-type": "image/png"}
    assert "5,000" in error(client.post("/predict", content=bytes(5001), headers=raw), 413)
    assert "5,000" in error(client.post("/predict", content=(bytes(1000) for _ in range(9)), headers=raw), 413)
    assert "pixels" in error(client.post("/predict", content=huge_png(8001), headers=raw), 413)
    assert "pixels" in error(client.post("/predict", content=huge_png(2**30), headers=raw), 413)
    assert "too many" in error(client.post("/learn", data={"name": "a"}, files=files(*[small] * 3)), 413)
    assert "9,000" in error(client.post("/learn", data={"name": "a"}, files=files(bytes(9001))), 413)
    assert "too many" in error(client.post("/predict", files={str(at): (None, "a") for at in range(11)}), 413)


@pytest.mark.parametrize(
    ("kind", "content", "status"),
    [
        ("application/json", b"{}", 415),
        ("", b"", 415),
        ("text/plain", red(), 415),
        ("multipart/form-data", b"", 400),
        ("multipart/form-data; boundary=a", b"what is this", 400),
        ("multipart/form-data; boundary=a", b"--a\r\nContent-Disposition: form-data\r\n\r\n1\r\n--a--\r\n", 400),
        ("multipart/form-data; boundary=a", b'--a\r\nContent-Disposition: form-data; name="image"; fil', 400),
        ("multipart/form-data; boundary=a", b"--a--\r\n", 400),
        ("image/jpeg", b"", 400),
    ],
)
def test_requests_that_are_no_upload(client: TestClient, kind: str, content: bytes, status: int) -> None:
    error(client.post("/predict", content=content, headers={"content-type": kind}), status)


def test_other_mistakes(client: TestClient) -> None:
    error(client.get("/nothing"), 404)
    error(client.get("/exemplars/../model.json"), 404)
    response = client.get("/predict")
    error(response, 405)
    assert "POST" in response.headers["allow"]
    error(client.post("/classes"), 405)
    assert "called image" in error(client.post("/predict", files={"photo": ("a.jpg", red())}), 400)
    for query in ("top=0", "top=x", "top=101", "similar=-1", "similar=21", "reject=1", "reject=nan", "reject=no"):
        assert query.split("=")[0] in error(client.post(f"/predict?{query}", files=files(red())), 400)


def test_parallel_clients_are_all_answered(client: TestClient) -> None:
    small = [make_photo(COLOURS[name], 70 + at, 16) for at, name in enumerate(["red", "blue"] * 10)]
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda photo: client.post("/predict", files=files(photo)).json(), small))
    alone = [client.post("/predict", files=files(photo)).json() for photo in small]
    for one, other in zip(found, alone, strict=True):
        for best, same in zip(one["predictions"][0]["top"], other["predictions"][0]["top"], strict=True):
            assert best["probability"] == pytest.approx(same["probability"], abs=1e-4)


def test_batches_return_each_clients_part() -> None:
    first, sizes = threading.Event(), list[int]()

    def double(values: list[int]) -> list[int]:
        first.wait(5)
        sizes.append(len(values))
        if -1 in values:
            raise ArithmeticError
        return [2 * value for value in values]

    batches = Batches[int, int](double, 4)
    futures = [batches.submit([at, at + 10]) for at in range(5)]
    long, gone, bad = batches.submit(list(range(9))), batches.submit([7]), batches.submit([-1])
    assert gone.cancel()
    first.set()
    assert [future.result(5) for future in futures] == [[2 * at, 2 * at + 20] for at in range(5)]
    assert long.result(5) == [2 * at for at in range(9)]
    with pytest.raises(ArithmeticError):
        bad.result(5)
    assert batches.submit([1]).result(5) == [2]
    batches.close()
    assert max(sizes) == 9
    assert len(sizes) < 8


def test_the_document_lists_every_route(client: TestClient) -> None:
    found = client.get("/openapi.json").json()
    listed = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    app: Any = client.app
    assert listed == {(method, route.path) for route in app.routes for method in route.methods - {"HEAD"}}
    assert json.dumps(found).count("requestBody") == 2
    for path, method in (("/predict", "post"), ("/learn", "post")):
        assert {"200", "400", "401", "403", "413", "415", "429", "503"} <= found["paths"][path][method][
            "responses"
        ].keys()
    assert {one["name"] for one in found["paths"]["/predict"]["post"]["parameters"]} == {"top", "similar", "reject"}
