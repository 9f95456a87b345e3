"""Measure a server of a model with many clients at once, on this machine's loopback.

python tools/load_serve.py results/cpu/serve_load.json --clients 50 --seconds 30

Each client sends a photo, waits for the answer, and sends the next. The model has ten classes of made-up photos, with
the embedded backbone and kept photos. The clients run on the same cores as the server. `--note` says what else ran.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from importlib import metadata
from pathlib import Path
from typing import Any

import arguments
import numpy as np
from PIL import Image, ImageFilter

from phasezero import Learner
from phasezero.engine.device import environment
from phasezero.records.files import write_whole

FORMAT = "phasezero-serve-load-1"
CLASSES, PHOTOS = 10, 6
WIDTH, HEIGHT = 640, 480


def photo(label: int, seed: int) -> bytes:
    """Return a JPEG of blurred noise in a colour of the class."""
    rng = np.random.default_rng([label, seed])
    colour = np.random.default_rng(label).integers(40, 215, 3)
    pixels = (colour + rng.integers(-120, 121, (HEIGHT, WIDTH, 3))).clip(0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(2)).save(file, "JPEG", quality=85)
    return file.getvalue()


def memory(pid: int) -> dict[str, float]:
    """Return a process's memory in MB: resident now, and at most so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmRSS", "VmHWM"))}
    return {key: round(int(found[name]) / 1024, 1) for key, name in (("rss", "VmRSS"), ("peak", "VmHWM"))}


def ask(port: int, photos: list[bytes], first: int, end: float, found: list[tuple[int, float]]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while time.perf_counter() < end:
        started = time.perf_counter()
        try:
            headers = {"Content-Type": "image/jpeg"}
            connection.request("POST", "/predict?similar=4", photos[(first + len(found)) % len(photos)], headers)
            response = connection.getresponse()
            response.read()
            status = response.status
        except (OSError, http.client.HTTPException):
            connection.close()
            status = 0
        found.append((status, time.perf_counter() - started))
    connection.close()


def load(port: int, photos: list[bytes], clients: int, seconds: float) -> dict[str, Any]:
    """Return the facts of all clients together. Status 0 is a connection that failed."""
    found: list[list[tuple[int, float]]] = [[] for _ in range(clients)]
    started = time.perf_counter()
    end = started + seconds
    threads = [threading.Thread(target=ask, args=(port, photos, at, end, found[at])) for at in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - started
    answers = [answer for own in found for answer in own]
    statuses = Counter(status for status, _ in answers)
    times = np.array([own for status, own in answers if status == 200])
    return {
        "clients": clients,
        "seconds": round(took, 2),
        "requests": len(answers),
        "errors": len(answers) - statuses[200],
        "statuses": dict(sorted(statuses.items())),
        "requests_per_second": round(len(answers) / took, 2),
        "latency_ms": {f"p{share}": round(1000 * float(np.percentile(times, share)), 1) for share in (50, 95, 99)},
    }


def main() -> None:
    parser = arguments.parser(__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--note", default="")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        pairs = [(photo(label, seed), f"class {label}") for label in range(CLASSES) for seed in range(PHOTOS)]
        learner = Learner(memory="per_class:5", device="cpu").fit(pairs)
        learner.save(folder)
        words = [sys.executable, "-m", "phasezero", "serve", "--model", str(folder), "--port", "0", "--rate", "0"]
        with subprocess.Popen([*words, "--device", "cpu"], stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            server.stdout.readline()
            port = int(server.stdout.readline().rstrip("/\n").rpartition(":")[2])
            photos = [photo(label, 100 + seed) for label in range(CLASSES) for seed in range(5)]
            idle = memory(server.pid)
            alone = load(port, photos, 1, min(5.0, wanted.seconds))
            before = memory(server.pid)
            halves = []
            for _ in range(2):
                facts = load(port, photos, wanted.clients, wanted.seconds / 2)
                halves.append(facts | {"memory_mb": memory(server.pid)})
            server.terminate()
    content = {
        "format": FORMAT,
        "note": wanted.note,
        "photo": {"width": WIDTH, "height": HEIGHT, "bytes": round(float(np.mean([len(one) for one in photos])))},
        "environment": environment(learner._place),
        "cores": os.cpu_count(),
        "packages": {name: metadata.version(name) for name in ("starlette", "uvicorn", "python-multipart", "pillow")},
        "memory_mb": {"started": idle, "before": before},
        "one_client": alone,
        "halves": halves,
    }
    write_whole(wanted.out, json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
