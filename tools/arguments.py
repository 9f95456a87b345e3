"""Arguments that all tools share: the output file and the data folder."""

from __future__ import annotations

import argparse
from pathlib import Path


def parser(about: str | None) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("out", type=Path)
    found.add_argument("--root", type=Path, help="folder of data sets")
    return found


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]
