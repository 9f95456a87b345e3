"""The page as a file: its parts, what it says of known records, and that no name can break out of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phasezero.errors import UserError
from phasezero.report.looks import COLOURS
from phasezero.report.page import content as content_module, render_page, write_page
from phasezero.report.page.content import encode_confusion, page_content
from samples import HOSTILE, PAGE_ANALYSIS, make_record

PARTS = Path(content_module.__file__).parent
NAMES = [HOSTILE, "<!-- <script>", "]]> & \"quotes\" 'single' \\u003c \u2028", "{{CONTENT}} {{SCRIPT}}"]


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
    def content(self) -> Any:
        return json.loads(self.text_of("script")[0])


RECORDS = [  # three seeds of LUCIR (phase i at 80 + seed - 4i), one of CwD, one of iCaRL with nearest mean
    *(make_record(seed=seed) for seed in (2, 0, 1)),
    make_record(initial=["cwd:0.5"]),
    make_record(method="icarl", nearest_mean=True),
]


def test_structure() -> None:
    page = Page(text := render_page(RECORDS, title="Mine & yours"))
    assert text == render_page(RECORDS, title="Mine & yours")
    assert text.startswith("<!doctype html>")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert [len(page.named(one)) for one in ("header", "nav", "main", "footer", "h1", "title")] == [1] * 6
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


def test_it_needs_nothing_else_and_runs_nothing_else() -> None:
    page = Page(render_page(RECORDS))
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


@pytest.mark.parametrize("name", NAMES)
def test_no_name_breaks_out(name: str) -> None:
    record = make_record(name=name, sizes=(3, 2), class_order=name)
    record["data"]["class_names"] = [name] * 5
    record["data"]["name"] = record["environment"]["device_name"] = name
    record["config"]["protocol"]["memory"] = record["config"][name] = name
    harmless, hostile = (
        Page(render_page([one], title=title)) for one, title in ((make_record(sizes=(3, 2)), "x"), (record, name))
    )
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in harmless.elements]
    assert hostile.text_of("script")[1] == harmless.text_of("script")[1]
    content = hostile.content
    assert content["groups"][0]["label"] == name
    assert content["classes"][0]["class_names"] == [name] * 5
    assert json.loads(content["runs"][0]["config"])[name] == name
    assert hostile.text_of("title")[0] == hostile.text_of("h1")[0] == name


def test_scripts_never_read_text_as_markup() -> None:
    for path in PARTS.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        for danger in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "</", "<!--"):
            assert danger not in text, (path.name, danger)


def test_numbers() -> None:
    content = page_content(RECORDS)
    lucir, cwd, icarl = content["groups"]
    assert (lucir["label"], lucir["n"], lucir["seen"]) == ("lucir/cifar100/b50s10", 3, [50, 60, 70, 80, 90, 100])
    head = lucir["results"]["head"]
    assert head["curve"] == [[81 - 4 * phase, 1.0] for phase in range(6)]
    assert (head["average"], head["last"], head["forgetting"]) == ([71.0, 1.0], [61.0, 1.0], [12.0, 0.0])
    assert head["lost"] == [[20 - 4 * phase, 0.0] for phase in range(5)]
    assert lucir["results"]["nearest_mean"] is None
    assert (lucir["paper"]["mean"], lucir["paper"]["sd"], lucir["paper"]["by"]) == (66.27, 0.28, "head")
    assert lucir["paper"]["source"].startswith("Table 1 (main): ")
    assert cwd["results"]["head"]["average"] == [70.0, None]
    assert icarl["results"]["nearest_mean"]["curve"][0] == [79.0, None]
    # The gap is to the number of the classifier that was published.
    assert (head["gap"], icarl["paper"]["by"]) == (4.73, "nearest_mean")
    assert [icarl["results"][name]["gap"] for name in ("head", "nearest_mean")] == [None, 8.18]
    assert [(run["group"], run["seed"]) for run in content["runs"]] == [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)]
    run = content["runs"][0]
    assert run["by_phase"]["head"][2] == [72.0, 72.0, 72.0]
    assert run["seconds"][1] == {"grow": 0.1, "train": 2.0, "select": 0.2, "evaluate": 0.3, "total": 2.6}
    assert json.loads(run["config"]) == RECORDS[1]["config"]
    assert run["exemplars"] == [1000, 1200, 1400, 1600, 1800, 2000]
    assert content["classes"] == [RECORDS[0]["data"]]
    assert [group["own"] for group in content["groups"]] == ["head", "head", "nearest_mean"]
    assert [what for what, _ in content["differences"]] == [content["classification"]]
    assert content["repeated"] == []


def test_what_must_not_be_compared_is_said() -> None:
    content = page_content([make_record(), make_record(sizes=(50, *[5] * 10)), make_record(method="bic", per_class=40)])
    assert [what for what, _ in content["differences"]] == ["protocol", "memory"]
    settings = dict(content["settings"])
    assert settings["protocol.memory"] == ['"per_class:20"', '"per_class:20"', '"per_class:40"']
    assert settings["protocol.step"] == ["10", "5", "10"]
    assert settings["method.lambda_base"] == ["5.0", "5.0", None]
    assert not {"training.first.epochs", "name", "seed"} & set(settings)
    assert page_content([make_record()], repeated=["seed 0 was run twice"])["repeated"] == ["seed 0 was run twice"]


def test_comparable_groups_stand_together() -> None:
    mixed = [make_record(method=method, data=data) for method in ("lucir", "bic") for data in ("cifar100", "glyphs")]
    content = page_content(mixed)
    assert [group["conditions"]["data set"] for group in content["groups"]] == ["cifar100"] * 2 + ["glyphs"] * 2
    # The two have the same class ids, so the same hash; they are two lists all the same.
    assert [content["classes"][run["classes"]]["name"] for run in content["runs"]] == ["cifar100"] * 2 + ["glyphs"] * 2


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


def phase_with(confusion: np.ndarray) -> Any:
    true, predicted = np.nonzero(confusion)
    entries = {"true": true.tolist(), "predicted": predicted.tolist(), "count": confusion[true, predicted].tolist()}
    return {"seen_classes": len(confusion), "confusion": entries}


def random_confusion(seen: int, accuracy: float, per_class: int, random: np.random.Generator) -> np.ndarray:
    """Errors in favour of a few classes, as networks make them."""
    share = random.dirichlet(np.full(seen, 0.3), size=seen)
    share = 0.999 * (1 - accuracy) * share + accuracy * np.eye(seen)
    return random.multinomial(per_class, share / share.sum(1, keepdims=True))


@pytest.mark.parametrize(("seen", "per_class"), [(1, 5), (7, 50_000), (300, 3)])
def test_confusion_survives_packing(seen: int, per_class: int) -> None:
    confusion = random_confusion(seen, 0.5, per_class, np.random.default_rng(seen))
    assert (decode(encode_confusion(phase_with(confusion)), seen) == confusion).all()


def test_forty_runs_of_26_phases_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    phases = [phase_with(random_confusion(50 + 2 * i, 0.8 - 0.012 * i, 100, random)) for i in range(26)]
    assert 40 * sum(map(len, map(encode_confusion, phases))) < content_module.MOST_MATRIX_BYTES
    names = [f"method {method} with a rather long name/cifar100/b50s2" for method in range(8)]
    sizes = (50, *[2] * 25)
    records = [
        make_record(name=name, sizes=sizes, drop=1, nearest_mean=True, seed=s) for name in names for s in range(5)
    ]
    page = render_page(records)
    content = Page(page).content
    assert [len(run["matrices"]) for run in content["runs"]] == [26] * 40
    matrices = sum(len(text) for run in content["runs"] for text in run["matrices"])
    assert len(page.encode()) - matrices < 5_000_000 - content_module.MOST_MATRIX_BYTES
    # With less room, the last of each run; with hardly any, none.
    monkeypatch.setattr(content_module, "MOST_MATRIX_BYTES", matrices // 10)
    less = page_content(records)
    assert [run["matrices"] for run in less["runs"]] == [run["matrices"][-1:] for run in content["runs"]]
    monkeypatch.setattr(content_module, "MOST_MATRIX_BYTES", 1000)
    assert page_content(records)["runs"][0]["matrices"] == []


def test_refusals_leave_nothing_behind(tmp_path: Path) -> None:
    record = make_record(sizes=(3, 2))
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.html").mkdir()
    for records, name, why in (
        ([record], "page.pdf", r"\.html"),
        ([], "page.html", "needs records"),
        ([record], "file/page.html", "cannot be written"),
        ([record], "folder.html", "cannot be written"),
    ):
        with pytest.raises(UserError, match=why):
            write_page(records, tmp_path / name)
    record["phases"][0]["seconds"]["train"] = float("nan")
    with pytest.raises(UserError, match="not finite"):
        write_page([record], tmp_path / "page.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.html"]


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


def test_spectra_are_means_over_seeds() -> None:
    records = [make_record(seed=seed) for seed in (0, 1)]
    other = {**PAGE_ANALYSIS, "k": [2, 4, 8], "train": {"raw": {"alpha_mean": [0.5, 0.9, 1.0]}}}
    first, second = [{**PAGE_ANALYSIS, "phase": 5}, PAGE_ANALYSIS], [other]
    (group,) = page_content(records, [first, second])["groups"]
    assert list(group["spectra"]) == [0, 5]
    # The two were analysed at other k after phase 0: those in common are shown.
    assert (group["spectra"][0]["n"], group["spectra"][0]["k"]) == (2, [2, 4])
    deviation = pytest.approx(7.0711, abs=1e-4)
    assert group["spectra"][0]["train"] == [[45.0, deviation], [85.0, deviation]]
    assert (group["spectra"][5]["n"], group["spectra"][5]["k"]) == (1, [1, 2, 4])
    assert group["spectra"][5]["test"] == [[10.0, None], [30.0, None], [70.0, None]]
    assert page_content(records)["groups"][0]["spectra"] == {}
