"""Measure a learner with ten thousand classes, and its server (results/cpu/ten_thousand_classes.json).

python tools/many_classes.py results/cpu/ten_thousand_classes.json --classes 10000 --note "nothing else ran"

Classes are made-up patterns of 32 pixels, two images of each, which the embedded backbone sees at 32 pixels. The
classifier has its usual size. Memory is the largest of each process so far.
"""

from __future__ import annotations

import http.client
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import arguments
import numpy as np
from load_serve import memory
from PIL import Image

from phasezero import Learner
from phasezero.engine.device import environment
from phasezero.records.files import write_whole

FORMAT = "phasezero-many-classes-1"
SIDE, GRID, NOISE = 32, 4, 12
EXTRA = 10  # classes that are added one at a time


def pattern(label: int, seed: int) -> np.ndarray:
    """Return an image of a class: coloured squares under noise."""
    colours = np.random.default_rng([label, 0]).integers(0, 256, (GRID, GRID, 3))
    noise = np.random.default_rng([label, seed]).integers(-NOISE, NOISE + 1, (SIDE, SIDE, 3))
    return (np.kron(colours, np.ones((SIDE // GRID, SIDE // GRID, 1), np.int64)) + noise).clip(0, 255).astype(np.uint8)


def labelled(labels: range, *seeds: int) -> tuple[np.ndarray, list[str]]:
    pairs = [(pattern(label, seed), f"class {label:05}") for label in labels for seed in seeds]
    return np.stack([image for image, _ in pairs]), [name for _, name in pairs]


class Clock(dict[str, float]):
    """Seconds by name."""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self[name] = round(time.perf_counter() - started, 3)
        print(f"{name}: {self[name]} s", flush=True)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "phasezero", *words]


def served(folder: Path, clock: Clock) -> dict[str, Any]:
    """Return facts of a server of the model."""
    file, named = io.BytesIO(), "added by the server"
    Image.fromarray(pattern(0, 9)).save(file, "PNG")
    words = command("serve", "--model", str(folder), "--port", "0", "--device", "cpu")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        with clock("serve: start"):
            server.stdout.readline()
            port = int(server.stdout.readline().rstrip("/\n").rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        sizes = {}

        def ask(what: str, method: str, path: str, body: bytes | None = None, kind: str = "image/png") -> Any:
            with clock(f"serve: {what}"):
                connection.request(method, path, body, {"Content-Type": kind} if body else {})
                response = connection.getresponse()
                content = response.read()
            assert response.status == 200, content
            sizes[what] = len(content)
            return json.loads(content)

        try:
            ask("classes", "GET", "/classes")
            answer = ask("first prediction", "POST", "/predict?top=100", file.getvalue())
            ask("prediction", "POST", "/predict?top=100", file.getvalue())
            parts = [f'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\n{named}\r\n'.encode()]
            for seed in range(10):
                own = io.BytesIO()
                Image.fromarray(pattern(1 << 20, seed)).save(own, "PNG")
                head = f'--x\r\nContent-Disposition: form-data; name="image"; filename="{seed}.png"\r\n\r\n'
                parts.append(head.encode() + own.getvalue() + b"\r\n")
            ask(
                "learn a class of ten",
                "POST",
                "/learn",
                b"".join(parts) + b"--x--\r\n",
                "multipart/form-data; boundary=x",
            )
            ask("undo", "POST", "/undo")
            facts = {"answer_bytes": sizes, "memory_mb": memory(server.pid), "name": answer["predictions"][0]["name"]}
        finally:
            connection.close()
            server.terminate()
    return facts


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="also keep the model, in this folder")
    parser.add_argument("--note", default="")
    wanted = parser.parse_args()
    clock, classes = Clock(), wanted.classes
    with tempfile.TemporaryDirectory() as place:
        folder = wanted.keep or Path(place) / "model"
        learner = Learner(settings={"network.image_size": SIDE}, device="cpu")
        with clock("make images"):
            first, tested = labelled(range(classes - EXTRA), 1, 2), labelled(range(0, classes, 10), 3)
        with clock("learn"):
            learner.fit(*first)
        with clock("save"):
            learner.save(folder)
        with clock(f"add {EXTRA} classes, one at a time"):
            for label in range(classes - EXTRA, classes):
                learner.add_classes(*labelled(range(label, label + 1), 1, 2))
        with clock("save again"):
            learner.save(folder)
        with clock("load"):
            learner = Learner.load(folder, device="cpu")
        with clock("predict an image"):
            learner.top(tested[0][:1], 5)
        with clock(f"evaluate {len(tested[1])} images"):
            accuracy = learner.evaluate(*tested)["accuracy"]
        peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
        image = Path(place) / "image.png"
        Image.fromarray(pattern(0, 9)).save(image)
        for name, words in {
            "command: predict": ("predict", str(image), "--top", "5"),
            "command: info": ("info",),
            "command: export to onnx": ("export", "-o", str(Path(place) / "model.onnx")),
        }.items():
            with clock(name):
                subprocess.run(command(*words, "--model", str(folder)), check=True, stdout=subprocess.DEVNULL)
        server = served(folder, clock)
        sizes = {
            path.name.split("-")[0].split(".")[0]: path.stat().st_size
            for path in folder.glob("*.*")
            if path.name[0] != "."
        }
    content = {
        "format": FORMAT,
        "note": wanted.note,
        "classes": classes,
        "images_per_class": 2,
        "accuracy": round(100 * accuracy, 2),
        "seconds": clock,
        "file_bytes": sizes,
        "peak_memory_mb": peak,
        "server": server,
        "environment": environment(learner._place),
    }
    write_whole(wanted.out, json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
