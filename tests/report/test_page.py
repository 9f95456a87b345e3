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
from phasezero.report.looks import method_look
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
    assert all({"aria-labelledby", "aria-label"} & set(section) for section in page.named("section"))
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
    assert re.sub(r"sha256-[\w+/=]+", "HASH", policy).split("; ")[1:] == [
        "style-src 'HASH'",
        "script-src 'HASH'",
        "img-src blob:",  # the page draws its own SVG to make a PNG
        "base-uri 'none'",
        "form-action 'none'",
    ]
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
    assert (lucir["label"], lucir["seeds"], lucir["seen"]) == (
        "lucir/cifar100/b50s10",
        [0, 1, 2],
        [50, 60, 70, 80, 90, 100],
    )
    assert [(group["method"], group["strategies"]) for group in content["groups"]] == [
        ("lucir", ""),
        ("lucir", "cwd"),
        ("icarl", ""),
    ]
    assert (lucir["data"], lucir["base"], lucir["step"]) == ("cifar100", 50, 10)
    head = lucir["all"]["results"]["head"]
    assert head["curve"] == [(81 - 4 * phase, 1.0) for phase in range(6)]
    assert (head["average"], head["last"], head["forgetting"]) == ((71.0, 1.0), (61.0, 1.0), (12.0, 0.0))
    assert head["lost"] == [(20 - 4 * phase, 0.0) for phase in range(5)]
    assert lucir["all"]["results"]["nearest_mean"] is None
    assert (lucir["paper"]["mean"], lucir["paper"]["sd"], lucir["paper"]["by"]) == (66.27, 0.28, "head")
    assert lucir["paper"]["source"].startswith("Table 1 (main): ")
    assert (cwd["all"]["n"], cwd["all"]["results"]["head"]["average"]) == (1, (70.0, None))
    assert icarl["all"]["results"]["nearest_mean"]["curve"][0] == (79.0, None)
    # The gap is to the number of the classifier that was published.
    assert (head["gap"], icarl["paper"]["by"]) == (pytest.approx(4.73), "nearest_mean")
    gaps = [icarl["all"]["results"][name]["gap"] for name in ("head", "nearest_mean")]
    assert gaps == [None, pytest.approx(8.18)]
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


def test_the_numbers_of_a_seed() -> None:
    """What the filter by seed shows: the numbers of that run alone."""
    lucir, cwd, _ = page_content(RECORDS)["groups"]
    assert list(lucir["by_seed"]) == [0, 1, 2]
    assert cwd["by_seed"] == {}  # a single seed
    one = lucir["by_seed"][2]
    assert (one["n"], one["results"]["head"]["average"]) == (1, (72.0, None))
    assert one["results"]["head"]["gap"] == pytest.approx(72 - 66.27)


def test_old_and_new_classes() -> None:
    record = make_record(sizes=(3, 2, 1), drop=5)
    # The first phase has three classes of 100 test images, the second two, one of which has only 20.
    for phase in record["phases"][1:]:
        for place, true in enumerate(phase["confusion"]["true"]):
            if true == 3:
                phase["confusion"]["count"][place] //= 5
    record["phases"][1]["by_phase"]["head"] = [60.0, 90.0]
    record["phases"][2]["by_phase"]["head"] = [50.0, 80.0, 70.0]
    (group,) = page_content([record])["groups"]
    head = group["all"]["results"]["head"]
    assert head["new"] == [(80.0, None), (90.0, None), (70.0, None)]
    after_one, after_two = head["old"]
    assert after_one == (60.0, None)
    assert after_two == (pytest.approx((3 * 100 * 50 + (100 + 20) * 80) / (3 * 100 + 100 + 20)), None)


def test_the_seconds_are_those_of_the_phases() -> None:
    first, second = make_record(seed=0), make_record(seed=1)
    second["phases"][0]["seconds"]["total"] = 4.6
    (group,) = page_content([first, second])["groups"]
    mean, deviation = 6 * 2.6 + 1, 2**0.5
    assert group["all"]["seconds"] == (pytest.approx(mean), pytest.approx(deviation))
    assert group["by_seed"][0]["seconds"] == (pytest.approx(15.6), None)


def test_the_best_of_each_class() -> None:
    record = make_record(sizes=(3, 2), drop=-4)  # 80 right, then 84
    run = page_content([record])["runs"][0]
    assert run["best"] == [84] * 5
    assert page_content([make_record(sizes=(3, 2))])["runs"][0]["best"] == [80, 80, 80, 76, 76]


def test_lines_look_as_in_the_figures() -> None:
    groups = page_content([make_record(initial=["cwd:0.5"]), make_record(method="podnet")])["groups"]
    for group, (method, strategies) in zip(groups, (("lucir", ["cwd"]), ("podnet", [])), strict=True):
        look = method_look(method, strategies)
        assert group["look"] == {"colour": look.colour, "dark": look.dark, "marker": look.marker, "dash": look.dash}


def test_groups_keep_their_keys() -> None:
    """A shared link works on a page of more runs."""
    few = page_content([make_record()])["groups"]
    more = page_content([make_record(method="bic"), make_record()])["groups"]
    assert few[0]["key"] == more[1]["key"] != more[0]["key"]


def test_what_must_not_be_compared_is_said() -> None:
    content = page_content([make_record(), make_record(sizes=(50, *[5] * 10)), make_record(method="bic", per_class=40)])
    assert [what for what, _ in content["differences"]] == ["protocol", "memory"]
    settings = dict(content["settings"])
    assert settings["protocol.memory"] == ['"per_class:20"', '"per_class:20"', '"per_class:40"']
    assert settings["protocol.step"] == ["10", "5", "10"]
    assert settings["method.lambda_base"] == ["5.0", "5.0", None]
    assert not {"training.first.epochs", "name", "seed"} & set(settings)
    assert page_content([make_record()], repeated=["seed 0 was run twice"])["repeated"] == ["seed 0 was run twice"]


def test_equal_class_ids_of_two_data_sets_are_two_lists() -> None:
    mixed = [make_record(method=method, data=data) for method in ("lucir", "bic") for data in ("cifar100", "glyphs")]
    content = page_content(mixed)
    assert [content["classes"][run["classes"]]["name"] for run in content["runs"]] == ["cifar100", "glyphs"] * 2


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


def test_spectra_are_means_over_seeds() -> None:
    records = [make_record(seed=seed) for seed in (0, 1)]
    other = {**PAGE_ANALYSIS, "k": [2, 4, 8], "train": {"raw": {"alpha_mean": [0.5, 0.9, 1.0]}}}
    first, second = [{**PAGE_ANALYSIS, "phase": 5}, PAGE_ANALYSIS], [other]
    (group,) = page_content(records, [first, second])["groups"]
    spectra = group["all"]["spectra"]
    assert list(spectra) == [0, 5]
    # The two were analysed at other k after phase 0: those in common are shown.
    assert (spectra[0]["n"], spectra[0]["k"]) == (2, [2, 4])
    deviation = pytest.approx(7.0711, abs=1e-4)
    assert spectra[0]["train"] == [(pytest.approx(45), deviation), (pytest.approx(85), deviation)]
    assert (spectra[5]["n"], spectra[5]["k"]) == (1, [1, 2, 4])
    assert spectra[5]["test"] == [(10.0, None), (30.0, None), (70.0, None)]
    assert list(group["by_seed"][1]["spectra"]) == [0]
    assert page_content(records)["groups"][0]["all"]["spectra"] == {}
