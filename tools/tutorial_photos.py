"""Run the commands of docs/tutorials/photos.md, and take its screenshots.

python tools/tutorial_photos.py caltech101-30 WORK --images docs/images

The folder has train/ and val/ with a folder for each class. WORK is made new and gets copies of some photos, the model,
and session.txt: each command with what it printed. Needs Playwright and Chromium. Every picture is taken in light and
dark mode, on a phone and on a desktop. The documentation uses some of them, the others are in WORK/looks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

FIRST = ("crab", "crayfish", "dolphin", "elephant", "emu", "flamingo", "ibis", "kangaroo", "lobster", "scorpion")
MORE = ("llama", "panda")
TAUGHT = "hedgehog"
COMMANDS = """
phasezero learn photos --model animals --keep-images 5
phasezero predict --model animals new --top 2
phasezero learn more --model animals
phasezero learn more --model animals
phasezero evaluate --model animals tests -o confusions.html
phasezero info --model animals
phasezero predict --model animals strange --reject 0.05
phasezero export --model animals -o animals.onnx
"""
LOOKS = [(side, scheme) for side in (1280, 390) for scheme in ("light", "dark")]
COLOURS = 200  # of a picture's palette: a third of the bytes


def copy_photos(source: Path, work: Path) -> None:
    """Lay out the folders of the tutorial."""
    for part, names in (("photos", FIRST), ("more", MORE)):
        for name in names:
            shutil.copytree(source / "train" / name, work / part / name)
    for name in (*FIRST, *MORE):
        shutil.copytree(source / "val" / name, work / "tests" / name)
    shutil.copytree(source / "train" / TAUGHT, work / TAUGHT)
    for folder, names in (("new", ("crab", "emu", "flamingo")), ("strange", ("wrench", "pizza"))):
        (work / folder).mkdir()
        for name in names:
            shutil.copy(sorted((source / "val" / name).iterdir())[0], work / folder / f"{name}.jpg")


def run_commands(work: Path, program: list[str]) -> None:
    with (work / "session.txt").open("w") as session:
        for line in COMMANDS.strip().splitlines():
            words = line.split()[1:]
            done = subprocess.run([*program, *words], cwd=work, capture_output=True, text=True)
            session.write(f"$ {line}\n{done.stdout}\n")
            session.flush()
            assert done.returncode == 0, done.stderr


def shoot(page: Page, work: Path, name: str, look: tuple[int, str], whole: bool = False) -> None:
    path = work / "looks" / f"{name}_{look[0]}_{look[1]}.png"
    page.screenshot(path=path, full_page=whole)
    Image.open(path).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def use_page(browser: Browser, home: str, work: Path, look: tuple[int, str]) -> None:
    """Name photos, teach a class, try it, and undo it."""
    width, scheme = look
    options: dict[str, Any] = {"color_scheme": scheme, "reduced_motion": "reduce"}
    page = browser.new_context(viewport={"width": width, "height": 900 if width > 500 else 844}, **options).new_page()
    page.set_default_timeout(60_000)
    page.goto(home)
    page.wait_for_selector(".phase")
    tests = work / "tests"
    page.set_input_files("#try-files", [sorted((tests / name).iterdir())[2] for name in ("panda", "lobster")])
    expect(page.locator(".said")).to_have_count(2, timeout=60_000)
    page.evaluate("Promise.all([...document.querySelectorAll('img')].map((one) => one.decode()))")
    shoot(page, work, "predict", look)
    page.fill("#name", TAUGHT)
    page.set_input_files("#teach-files", sorted((work / TAUGHT).iterdir())[:10])
    page.locator("#teach").scroll_into_view_if_needed()
    shoot(page, work, "teach", look)
    page.click("#teach-button")
    page.wait_for_selector("#teach-result")
    page.set_input_files("#try-files", [sorted((work / TAUGHT).iterdir())[15]])
    expect(page.locator(".said")).to_have_count(3, timeout=60_000)
    page.evaluate("scrollTo(0, 0)")
    page.evaluate("Promise.all([...document.querySelectorAll('img')].map((one) => one.decode()))")
    shoot(page, work, "taught", look)
    shoot(page, work, "taught_whole", look, whole=True)
    print(look, page.locator("#teach-result").inner_text(), "|", page.locator(".said").first.inner_text())
    page.click("#undo")
    expect(page.locator("#teach-result")).to_contain_text("Back to")
    page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--images", type=Path, help="folder of the documentation's pictures")
    wanted = parser.parse_args()
    work: Path = wanted.work.absolute()
    work.mkdir(parents=True)
    (work / "looks").mkdir()
    program = [sys.executable, "-m", "phasezero"]
    copy_photos(wanted.photos, work)
    run_commands(work, program)
    words = [*program, "serve", "--model", "animals", "--port", "0", "--device", "cpu"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(words, cwd=work, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        try:
            home = next(word for line in server.stdout for word in line.split() if word.startswith("http://"))
            with sync_playwright() as driver:
                chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
                browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                use_page(browser, home, work, LOOKS[0])  # soon after the start similar photos are not found yet
                for look in LOOKS:
                    use_page(browser, home, work, look)
                    page = browser.new_context(
                        viewport={"width": look[0], "height": 760}, color_scheme=look[1]
                    ).new_page()
                    page.goto((work / "confusions.html").as_uri())
                    shoot(page, work, "confusions", look)
                    page.context.close()
                browser.close()
        finally:
            server.terminate()
    if wanted.images is not None:
        for name, look in (("predict", "1280_light"), ("taught", "1280_light"), ("confusions", "1280_light")):
            shutil.copy(work / "looks" / f"{name}_{look}.png", wanted.images / f"photos_{name}.png")
        shutil.copy(work / "looks" / "taught_390_dark.png", wanted.images / "photos_phone.png")


if __name__ == "__main__":
    main()
