"""The page as a file: its parts, what it says of known records, and that no name can break out of it."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phasezero.errors import UserError
from phasezero.results.page import content as page_content_module
from phasezero.results.page import render_page, write_page
from phasezero.results.page.content import encode_confusion, page_content
from phasezero.results.record import Record, phase_record
from phasezero.results.style import COLOURS

Make = Callable[..., Record]
PARTS = Path(page_content_module.__file__).parent
HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "<!-- <script>",
    "]]> & \"quotes\" 'single' \\u003c \u2028",
    "{{CONTENT}} {{SCRIPT}}",
]


class Page(HTMLParser):
    """What a browser's parser would find: elements in order, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.elements[-1][0] if self.elements else "", data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text_of(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag and text.strip()]

    @property
    def content(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text_of("script")[0])
        return found


@pytest.fixture(scope="module")
def records(make_record: Make) -> list[Record]:
    """Three seeds of LUCIR (phase i at 80 + seed - 4i), one of CwD, one of iCaRL with nearest mean."""
    return [
        *(make_record(seed=seed) for seed in (2, 0, 1)),
        make_record(initial=["cwd:0.5"]),
        make_record(method="icarl", nearest_mean=True),
    ]


def test_structure(records: list[Record]) -> None:
    page = Page(render_page(records, title="Mine & yours"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for landmark in ("header", "nav", "main", "footer", "h1", "title"):
        assert len(page.named(landmark)) == 1, landmark
    assert page.named("html")[0]["lang"] == "en"
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    labelled = {attributes["for"] for attributes in page.named("label")}
    assert labelled <= set(ids)
    assert {one["id"] for tag in ("select", "input") for one in page.named(tag)} <= labelled
    for _, attributes in page.elements:
        for key in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(key, ids[0]) in ids
    assert all("aria-labelledby" in section for section in page.named("section"))
    # Every element that the scripts ask for is there.
    wanted = set(re.findall(r'byId\("([\w-]+)"\)', "".join(page.text_of("script")[1:])))
    assert len(wanted) > 20
    assert wanted <= set(ids)


def test_it_needs_nothing_else_and_runs_nothing_else(records: list[Record]) -> None:
    page = Page(render_page(records))
    for _, attributes in page.elements:
        assert not {"src", "srcset", "action", "data", "style"} & set(attributes)
        assert (attributes.get("href") or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg", "", "".join(page.text_of("style")))
    policy = next(one["content"] for one in page.named("meta") if "http-equiv" in one) or ""
    assert policy.startswith("default-src 'none';")
    for tag, text in (("style", page.text_of("style")[0]), ("script", page.text_of("script")[1])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_breaks_out(make_record: Make, name: str) -> None:
    record = make_record(name=name, sizes=(3, 2), class_order=name)
    record["data"]["class_names"] = [name] * 5
    record["data"]["name"] = record["environment"]["device_name"] = name
    record["config"]["protocol"]["memory"] = record["config"][name] = name
    harmless, hostile = (
        Page(render_page([one], title=title))
        for one, title in ((make_record(sizes=(3, 2)), "x"), (record, name))
    )
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in harmless.elements]
    assert hostile.text_of("script")[1] == harmless.text_of("script")[1]
    content = hostile.content
    assert content["groups"][0]["label"] == name
    assert content["classes"][0]["names"] == [name] * 5
    assert json.loads(content["runs"][0]["config"])[name] == name
    assert hostile.text_of("title")[0] == hostile.text_of("h1")[0] == name


def test_scripts_never_read_text_as_markup() -> None:
    for path in PARTS.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        for danger in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "</", "<!--"):
            assert danger not in text, (path.name, danger)
        assert len(text.splitlines()) < 400


def test_numbers(records: list[Record]) -> None:
    content = page_content(records)
    lucir, cwd, icarl = content["groups"]
    assert (lucir["label"], lucir["n"], lucir["seen"]) == (
        "lucir/cifar100/b50s10",
        3,
        [50, 60, 70, 80, 90, 100],
    )
    head = lucir["results"]["head"]
    assert head["curve"] == [[81 - 4 * phase, 1.0] for phase in range(6)]
    assert (head["average"], head["last"], head["forgetting"]) == ([71.0, 1.0], [61.0, 1.0], [12.0, 0.0])
    assert head["lost"] == [[20 - 4 * phase, 0.0] for phase in range(5)]
    assert lucir["results"]["nearest_mean"] is None
    assert (lucir["paper"]["mean"], lucir["paper"]["sd"], lucir["paper"]["by"]) == (66.27, 0.28, "head")
    assert lucir["paper"]["source"].startswith("Table 1 (main): ")
    assert cwd["results"]["head"]["average"] == [70.0, None]
    assert icarl["paper"]["by"] == "nearest_mean"
    assert icarl["results"]["nearest_mean"]["curve"][0] == [79.0, None]
    assert [run["seed"] for run in content["runs"]] == [0, 1, 2, 0, 0]
    assert [run["group"] for run in content["runs"]] == [0, 0, 0, 1, 2]
    run = content["runs"][0]
    assert run["by_phase"]["head"][2] == [72.0, 72.0, 72.0]
    assert run["seconds"][1] == {"grow": 0.1, "train": 2.0, "select": 0.2, "evaluate": 0.3, "total": 2.6}
    assert json.loads(run["config"]) == records[1]["config"]
    assert run["exemplars"] == [1000, 1200, 1400, 1600, 1800, 2000]
    (classes,) = content["classes"]
    assert (classes["hash"], len(classes["names"])) == (records[0]["data"]["class_hash"], 100)
    assert [group["own"] for group in content["groups"]] == ["head", "head", "nearest_mean"]
    (difference,) = content["differences"]
    assert difference["what"] == content["classification"] == "how the method classifies"
    assert [(value, len(labels)) for value, labels in difference["owners"]] == [
        ("head", 2),
        ("nearest mean", 1),
    ]
    assert content["repeated"] == []


def test_a_method_without_its_own_classifier_is_shown_by_the_head(make_record: Make) -> None:
    content = page_content([make_record(), make_record(method="icarl")])
    assert [group["own"] for group in content["groups"]] == ["head", "head"]
    assert [group["conditions"][content["classification"]] for group in content["groups"]] == ["head"] * 2
    assert content["differences"] == []


def test_what_must_not_be_compared_is_said(make_record: Make) -> None:
    content = page_content(
        [make_record(), make_record(sizes=(50, *[5] * 10)), make_record(method="bic", per_class=40)]
    )
    assert [(one["what"], [value for value, _ in one["owners"]]) for one in content["differences"]] == [
        ("protocol", ["B=50 S=10, 6 phases", "B=50 S=5, 11 phases"]),
        ("memory", ["per_class:20", "per_class:40"]),
    ]
    assert content["repeated"] == []
    assert page_content([make_record(), make_record()])["repeated"] == [
        "lucir/cifar100/b50s10: seed 0 counted more than once"
    ]
    settings = dict(content["settings"])
    assert settings["protocol.memory"] == ['"per_class:20"', '"per_class:20"', '"per_class:40"']
    assert settings["protocol.step"] == ["10", "5", "10"]
    assert settings["method.lambda_base"] == ["5.0", "5.0", None]
    assert "training.first.epochs" not in settings


def test_comparable_groups_stand_together(make_record: Make) -> None:
    mixed = [
        make_record(),
        make_record(data="glyphs"),
        make_record(method="bic"),
        make_record(data="glyphs", method="bic"),
    ]
    content = page_content(mixed)
    assert [group["conditions"]["data set"] for group in content["groups"]] == ["cifar100"] * 2 + [
        "glyphs"
    ] * 2
    # The two have the same class ids, so the same hash; they are two lists all the same.
    assert [content["classes"][run["classes"]]["data"] for run in content["runs"]] == ["cifar100"] * 2 + [
        "glyphs"
    ] * 2


def decode(text: str, seen: int) -> np.ndarray:
    """The format as its description says it, one bit group at a time."""
    numbers, number, shift = [], 0, 0
    for byte in zlib.decompress(base64.b64decode(text)):
        number |= (byte & 0b0111_1111) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number, shift = 0, 0
    matrix, place = np.zeros(seen * seen, dtype=np.int64), -1
    for steps, count in zip(numbers[::2], numbers[1::2], strict=True):
        place += steps
        matrix[place] = count
    return matrix.reshape(seen, seen)


def random_phase(
    seen: int, accuracy: float, per_class: int, random: np.random.Generator, sizes: list[int]
) -> Any:
    """Errors in favour of a few classes, as networks make them."""
    share = random.dirichlet(np.full(seen, 0.3), size=seen)
    share = 0.999 * (1 - accuracy) * share + accuracy * np.eye(seen)
    confusion = random.multinomial(per_class, share / share.sum(1, keepdims=True))
    record = phase_record(
        phase_sizes=sizes,
        confusion=confusion,
        nearest_mean_confusion=confusion,
        train_images=100,
        memory_per_class=[20] * seen,
        loss={"train": [1.0]},
        seconds=dict.fromkeys(("grow", "train", "select", "evaluate", "total"), 1.23456789),
    )
    return record, confusion


@pytest.mark.parametrize(("seen", "per_class"), [(1, 5), (7, 50_000), (300, 3)])
def test_confusion_survives_packing(seen: int, per_class: int) -> None:
    phase, confusion = random_phase(seen, 0.5, per_class, np.random.default_rng(seen), [seen])
    assert (decode(encode_confusion(phase), seen) == confusion).all()


def test_forty_runs_of_26_phases_fit(make_record: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    sizes = [50, *[2] * 25]
    records = []
    for seed in range(5):
        record = make_record(sizes=sizes, drop=1, nearest_mean=True, seed=seed)
        record["phases"] = [
            random_phase(50 + 2 * i, 0.8 - 0.012 * i, 100, random, sizes[: i + 1])[0] for i in range(26)
        ]
        # Other methods and the same matrices: packing works on each matrix alone, so it cannot tell.
        for method in range(8):
            other = copy.copy(record)
            other["name"] = f"method {method} with a rather long name/cifar100/b50s2"
            records.append(other)
    text = render_page(records)
    assert len(text.encode()) < 5_000_000
    content = Page(text).content
    assert content["matrices"] == "all"
    assert [len(run["matrices"]) for run in content["runs"]] == [26] * 40

    monkeypatch.setattr(page_content_module, "MOST_MATRIX_BYTES", 500_000)
    less = page_content(records)
    assert less["matrices"] == "last"
    assert [run["matrices"] for run in less["runs"]] == [run["matrices"][-1:] for run in content["runs"]]
    monkeypatch.setattr(page_content_module, "MOST_MATRIX_BYTES", 1000)
    assert page_content(records)["runs"][0]["matrices"] == []


def test_refusals_leave_nothing_behind(make_record: Make, tmp_path: Path) -> None:
    record = make_record(sizes=(3, 2))
    with pytest.raises(UserError, match=r"\.html"):
        write_page([record], tmp_path / "page.pdf")
    with pytest.raises(UserError, match="no records"):
        write_page([], tmp_path / "page.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        write_page([record], tmp_path / "file" / "page.html")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UserError, match="cannot be written"):
        write_page([record], tmp_path / "folder.html")
    record["phases"][0]["seconds"]["train"] = float("nan")
    with pytest.raises(UserError, match="not finite"):
        write_page([record], tmp_path / "page.html")
    record["phases"][0]["confusion"]["count"].pop()
    with pytest.raises(ValueError, match="shorter") as caught:  # a fault of its maker's, told as what it is
        write_page([record], tmp_path / "page.html")
    assert not isinstance(caught.value, UserError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.html"]


def test_the_same_records_give_the_same_file(records: list[Record], tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_page(records, tmp_path / "new" / name)
    first, second = ((tmp_path / "new" / name).read_bytes() for name in ("a.html", "b.html"))
    assert first == second
    assert first.startswith(b"<!doctype html>")


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    total = 0.0
    for start, weight in ((1, 0.2126), (3, 0.7152), (5, 0.0722)):
        share = int(colour[start : start + 2], 16) / 255
        total += weight * (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4)
    return total


def test_lines_are_those_of_the_figures_and_stand_out_from_the_ground() -> None:
    style = (PARTS / "page.css").read_text(encoding="utf-8")
    pairs = re.findall(r"--(paper|line-\d): light-dark\((#\w+), (#\w+)\)", style)
    assert tuple(light for name, light, _ in pairs if name != "paper") == COLOURS
    (grounds,) = [shades for name, *shades in pairs if name == "paper"]
    for name, *shades in pairs[1:]:
        for shade, ground in zip(shades, grounds, strict=True):
            darker, lighter = sorted((luminance(shade), luminance(ground)))
            assert (lighter + 0.05) / (darker + 0.05) >= 3, (name, shade)  # WCAG 1.4.11


def analysis(phase: int, k: list[int], train: list[float], test: list[float]) -> Any:
    """As much of one as the page reads."""
    train_and_test = {
        name: {"raw": {"alpha_mean": values}} for name, values in (("train", train), ("test", test))
    }
    return {"phase": phase, "k": k} | train_and_test


def test_spectra_are_means_over_seeds(make_record: Make) -> None:
    records = [make_record(seed=seed) for seed in (0, 1)]
    first = [analysis(phase, [1, 4], [0.25, 0.5], [0.25, 0.5]) for phase in (5, 0)]
    second = [analysis(0, [1, 4], [0.35, 0.5], [0.25, 0.7]), analysis(5, [2, 4], [0.1, 0.6], [0.1, 0.5])]
    (group,) = page_content(records, [first, second])["groups"]
    assert list(group["spectra"]) == [0, 5]
    assert (group["spectra"][0]["n"], group["spectra"][0]["k"]) == (2, [1, 4])
    assert group["spectra"][0]["train"] == [[30.0, pytest.approx(7.0711, abs=1e-4)], [50.0, 0.0]]
    # After phase 5 the two were analysed at other k: those in common are shown.
    assert group["spectra"][5]["k"] == [4]
    assert group["spectra"][5]["train"] == [[55.0, pytest.approx(7.0711, abs=1e-4)]]
    (alone,) = page_content(records, [first])["groups"]
    assert alone["spectra"][5] == {
        "n": 1,
        "k": [1, 4],
        "train": [[25.0, None], [50.0, None]],
        "test": [[25.0, None], [50.0, None]],
    }
    assert page_content(records)["groups"][0]["spectra"] == {}
