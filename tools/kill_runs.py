"""Kill runs at random moments, continue them, and compare their records with undisturbed runs.

    python tools/kill_runs.py --kills 500 --out results/cpu/kills.json

Every method and every strategy is trained on three small phases of the embedded data, and some runs two at once in
processes. A run is started, killed with SIGKILL after a random time, and continued by the same command, until it was
killed as often as planned. Then it may finish. Each start is a fork of a process that has already imported torch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from phasezero.config import RunConfig
from phasezero.engine.device import Device, environment
from phasezero.initial import STRATEGIES
from phasezero.methods import METHODS
from phasezero.methods.frozen import Frozen
from phasezero.presets import preset
from phasezero.records.run import comparable_part, read_record
from phasezero.runs.session import run_all

FORMAT = "phasezero-kills-1"
SMALL: dict[str, Any] = {"protocol.phase_sizes": [4, 2, 2], "protocol.memory": "per_class:5", "engine.threads": 1}
SMALL |= {"training.first.epochs": 6, "training.later.epochs": 4}


def plans() -> dict[str, list[RunConfig]]:
    names = [*METHODS, *(f"lucir+{name}" for name in STRATEGIES), "ridge+sla+cwd"]
    small = {name: preset(f"{name}/glyphs/b50s10").override(SMALL) for name in names}
    for name, config in small.items():
        if issubclass(METHODS[config.method.name], Frozen):
            small[name] = config.override({"protocol.memory": "per_class:0"})
    single = {name: [config] for name, config in small.items()}
    return single | {"parallel": [small["lucir"], small["podnet"], small["ridge"]]}


def start(configs: list[RunConfig], out: Path, parallel: int) -> int:
    """Start or continue runs in a child process; return its id."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    code = 1
    try:
        left = run_all(configs, out=out, resume=True, parallel=parallel, save_every=0.05)
        code = 2 if left.unfinished else 0
    finally:
        os._exit(code)


def ended(child: int, seconds: float) -> int | None:
    """Wait for a child; return its exit code, or None if it still runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def records(out: Path) -> list[dict[str, Any]]:
    return [comparable_part(read_record(path)) for path in sorted(out.rglob("record.json"))]


def kill_and_compare(
    name: str, configs: list[RunConfig], kills: int, folder: Path, rng: random.Random
) -> dict[str, Any]:
    parallel, whole, out = (2 if name == "parallel" else 1), folder / "whole", folder / "killed"
    began = time.monotonic()
    code = ended(start(configs, whole, 1), 3600)
    seconds = time.monotonic() - began
    assert code == 0, f"{name}: the undisturbed run ended with {code}"
    done, restarts = 0, 0
    while done < kills:
        child = start(configs, out, parallel)
        code = ended(child, rng.uniform(0.1, 0.5 * seconds) + (2.0 if parallel > 1 else 0.0))
        if code is None:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            done += 1
        else:  # it finished before it was killed, and begins again
            assert code == 0, f"{name}: a continued run ended with {code}"
            assert records(out) == records(whole), f"{name}: a continued run has another record"
            shutil.rmtree(out)
            restarts += 1
    code = ended(start(configs, out, parallel), 3600)
    equal = code == 0 and records(out) == records(whole)
    left = [path.name for path in out.rglob("*") if path.name.endswith(".tmp") or "within" in path.name]
    return {
        "kills": done,
        "finished_runs": (restarts + 1) * len(configs),
        "equal": equal,
        "exit_code": code,
        "left_files": left,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", help="Names of runs, such as lucir or lucir+sla.")
    parser.add_argument("--out", type=Path, required=True)
    own = parser.parse_args()
    chosen, rng, began = plans(), random.Random(own.seed), time.monotonic()
    chosen = {name: configs for name, configs in chosen.items() if not own.only or name in own.only}
    each, found = -(-own.kills // len(chosen)), {}
    for name, configs in chosen.items():
        with tempfile.TemporaryDirectory() as folder:
            found[name] = kill_and_compare(name, configs, each, Path(folder), rng)
        print(name, found[name], f"{time.monotonic() - began:.0f} s", flush=True)
    facts = {
        "format": FORMAT,
        "kills": sum(one["kills"] for one in found.values()),
        "all_equal": all(one["equal"] for one in found.values()),
        "seed": own.seed,
        "seconds": round(time.monotonic() - began, 1),
        "settings": SMALL,
        "environment": environment(Device.choose(next(iter(chosen.values()))[0].engine)),
        "runs": found,
    }
    own.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
