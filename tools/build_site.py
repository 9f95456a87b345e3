"""Build the documentation site: collect its pages in build/site-source, then run zensical into build/site.

python tools/build_site.py            # needs: pip install -e '.[docs]'
python tools/build_site.py --collect  # only collect the pages
python -m http.server -d build/site   # look at it

Pages are those of docs/ and every file of the repository that they link to: the lab notebook, RESULTS.md, examples,
source code, measurements. Links are changed to where these files are on the site. A line `<!-- generated: ... -->` is
replaced by what `site_reference.py` reads from the code.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

from site_reference import MARKER, generate

ROOT = Path(__file__).parents[1]
STARTS = ("notebook/README.md", "RESULTS.md", "examples/README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
"""Pages outside docs/ that the navigation lists."""
LINK = re.compile(r"(\]\()(?!\w+:)([^)#\s]+)((?:#[^)\s]*)?\))")
CODE = {".py": "python", ".pyi": "python", ".toml": "toml", ".yaml": "yaml", ".cff": "yaml", ".sh": "sh"}
"""Source files become pages; files of other kinds are copied."""
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n\n"


def place_of(path: str) -> str:
    """Return where a file or folder of the repository is on the site."""
    path = "index.md" if path == "README.md" else path.removeprefix("docs/")
    found = PurePosixPath(path)
    if (ROOT / path).is_dir():
        return f"{path}/index.md"
    if found.name == "README.md":
        return str(found.with_name("index.md"))
    return f"{path}.md" if found.suffix in CODE else path


def links_of(text: str, page: str) -> set[str]:
    """Return the files and folders of the repository that a page links to."""
    found = {os.path.normpath(os.path.join(os.path.dirname(page), link)) for _, link, _ in LINK.findall(text)}
    return {path for path in found if not path.startswith("..") and (ROOT / path).exists()}


def with_site_links(text: str, page: str) -> str:
    """Change the links of a page to where their targets are on the site."""
    here = os.path.dirname(place_of(page)) or "."

    def changed(match: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(page), match[2]))
        known = not target.startswith("..") and (ROOT / target).exists()
        return match[1] + (os.path.relpath(place_of(target), here) if known else match[2]) + match[3]

    return LINK.sub(changed, text)


def page_text(path: str) -> str:
    """Return the Markdown of a page, a source file or a folder."""
    file = ROOT / path
    if file.is_dir():
        names = sorted(entry.name for entry in file.iterdir() if entry.suffix in {*CODE, ".md"})
        return UNSEARCHED + f"# {path}\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = file.read_text(encoding="utf-8")
    if file.suffix in CODE:
        return UNSEARCHED + f"# {path}\n\n~~~~{CODE[file.suffix]}\n{text}~~~~\n"
    return MARKER.sub(lambda found: generate(found[1], found[2] or ""), text)


def collect(target: Path) -> list[str]:
    """Write the sources of the site to a new folder; return the files of the repository that it contains."""
    shutil.rmtree(target, ignore_errors=True)
    waiting = [str(file.relative_to(ROOT)) for file in sorted((ROOT / "docs").rglob("*")) if file.is_file()]
    waiting += STARTS
    done: list[str] = []
    for path in waiting:  # grows
        if path in done or path == "README.md":
            continue
        done.append(path)
        place = target / place_of(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.suffix != ".md":
            shutil.copyfile(ROOT / path, place)
            continue
        text = page_text(path)
        base = f"{path}/." if (ROOT / path).is_dir() else path
        waiting += sorted(links_of(text, base))
        place.write_text(with_site_links(text, base), encoding="utf-8")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", action="store_true", help="only collect the pages")
    arguments = parser.parse_args()
    files = collect(ROOT / "build" / "site-source")
    print(f"{len(files)} files in build/site-source")
    if not arguments.collect:
        shutil.rmtree(ROOT / "build" / "site", ignore_errors=True)
        command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
        sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)


if __name__ == "__main__":
    main()
