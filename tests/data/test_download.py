"""Downloads from a local server: complete, resumed, damaged, rejected. Archives with paths out of their folder."""

from __future__ import annotations

import errno
import hashlib
import io
import random
import shutil
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

import pytest

from phasezero.data import cifar100
from phasezero.data.download import download, extract_tar
from phasezero.errors import UserError
from phasezero.steps import Steps

CONTENT = bytes(range(256)) * 4000  # a megabyte, several blocks
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    content = CONTENT
    range_support = "known"
    hangs_up_after: int | None = None
    ranges: list[str | None]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/archive.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked, whole, support = self.headers.get("Range"), self.server.content, self.server.range_support
        self.server.ranges.append(asked)
        partial = asked is not None and support != "ignored"
        start = int(asked.removeprefix("bytes=").removesuffix("-")) - (support == "shifted") if partial else 0
        if "missing" in self.path or start >= len(whole):
            self.send_error(404 if "missing" in self.path else 416)
            return
        self.send_response(206 if partial else 200)
        if partial:
            self.send_header("Content-Range", f"bytes {start}-{len(whole) - 1}/{len(whole)}")
        self.send_header("Content-Length", str(len(whole) - start))
        self.end_headers()
        self.wfile.write(whole[start : self.server.hangs_up_after])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server(("127.0.0.1", 0), Handler) as running:
        running.ranges = []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "archive.bin"


def test_a_whole_download(
    server: Server, target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phasezero.steps.LONG", -1.0)
    assert download(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert "downloading archive.bin" in capsys.readouterr().err
    assert not download(server.url, target, md5=MD5), "a file that is there and right is not fetched again"
    assert server.ranges == [None]
    target.write_bytes(b"old")
    assert download(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT


def test_an_interrupted_download_is_continued(server: Server, target: Path) -> None:
    server.hangs_up_after = 300_000
    with pytest.raises(UserError, match=r"300,000 of 1,024,000 bytes; .* continues"):
        download(server.url, target, md5=MD5)
    (part,) = target.parent.iterdir()
    assert part.name == "archive.bin.part"
    assert part.read_bytes() == CONTENT[:300_000]
    server.hangs_up_after = None
    download(server.url, target, md5=MD5)
    assert server.ranges == [None, "bytes=300000-"]
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_ctrl_c_leaves_the_part_only(server: Server, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object, **facts: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr(Steps, "__call__", stop)
        with pytest.raises(KeyboardInterrupt):
            download(server.url, target, md5=MD5)
    assert [path.name for path in target.parent.iterdir()] == ["archive.bin.part"]
    download(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert server.ranges[1] is not None


@pytest.mark.parametrize(
    ("part", "ranges", "requests"),
    [
        (CONTENT[:1000], "ignored", 1),  # the server sends the file from its start
        (CONTENT[:1000], "shifted", 2),  # what it sends does not follow
        (CONTENT, "known", 1),  # 416: the part is whole and only needs its name
        (CONTENT + b"more", "known", 2),  # 416: the part is of another file
    ],
)
def test_a_part_that_cannot_be_continued(server: Server, target: Path, part: bytes, ranges: str, requests: int) -> None:
    server.range_support = ranges
    target.parent.mkdir()
    target.with_name(target.name + ".part").write_bytes(part)
    download(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert server.ranges == [f"bytes={len(part)}-", None][:requests]


@pytest.mark.parametrize(
    ("where", "why"), [("/missing", "404"), ("unreachable", "refused"), ("", "gave a file with md5 [0-9a-f]{32};")]
)
def test_what_cannot_be_fetched_leaves_nothing_and_names_the_way_out(
    server: Server, target: Path, where: str, why: str
) -> None:
    server.content = b"not what was asked for"
    url = "http://127.0.0.1:1/archive.bin" if where == "unreachable" else server.url + where
    with pytest.raises(UserError, match=why) as error:
        download(url, target, md5=MD5)
    assert all(words in str(error.value) for words in (url, str(target), MD5))
    assert not list(target.parent.glob("*"))


def test_get_cifar100_from_end_to_end(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = {name: name.encode() for name in ("train", "test", "meta")}
    monkeypatch.setattr(cifar100, "MD5", {k: hashlib.md5(v).hexdigest() for k, v in contents.items()})
    archive = tar_of(tmp_path / "x.tar.gz", {f"cifar-100-python/{k}": v for k, v in contents.items()})
    server.content = archive.read_bytes()
    monkeypatch.setattr(cifar100, "ARCHIVE_MD5", hashlib.md5(server.content).hexdigest())
    monkeypatch.setattr(cifar100, "URL", server.url)
    root, folder = tmp_path / "root", tmp_path / "root" / "cifar-100-python"
    cifar100.get_cifar100(root)
    assert sorted(path.name for path in folder.iterdir()) == ["meta", "test", "train"]
    assert list(root.iterdir()) == [folder], "the archive is not kept"
    (folder / "test").write_bytes(b"damaged")
    cifar100.get_cifar100(root)
    assert (folder / "test").read_bytes() == b"test"
    assert "already" not in capsys.readouterr().err
    cifar100.get_cifar100(root)
    assert len(server.ranges) == 2
    assert "already" in capsys.readouterr().err

    by_hand = archive.rename(root / "cifar-100-python.tar.gz")
    (folder / "test").write_bytes(b"damaged")
    cifar100.get_cifar100(root)
    assert (folder / "test").read_bytes() == b"test"
    assert len(server.ranges) == 2
    assert by_hand.is_file(), "an archive that somebody put there is theirs to keep"
    monkeypatch.setitem(cifar100.MD5, "test", "of another file")
    with pytest.raises(UserError, match="differ from the published files"):
        cifar100.get_cifar100(root)
    shutil.rmtree(folder)
    monkeypatch.setattr(cifar100, "ARCHIVE_MD5", "of another archive")
    with pytest.raises(UserError, match="of another archive"):
        cifar100.get_cifar100(root)
    assert list(root.iterdir()) == [by_hand], "another archive is not unpacked"


# ---- archives ---------------------------------------------------------------------------------------------


def tar_of(path: Path, files: dict[str, bytes], *more: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        for entry in more:
            tar.addfile(entry)
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def test_only_the_named_files_are_unpacked(tmp_path: Path) -> None:
    folders = special("data", tarfile.DIRTYPE), special("data/three", tarfile.DIRTYPE)
    archive = tar_of(tmp_path / "a.tar.gz", {"data/one": b"1", "data/two": b"2", "data/two~": b"3"}, *folders)
    extract_tar(archive, tmp_path / "out", ["data/one", "data/two"])
    found = {path.name: path.read_bytes() for path in (tmp_path / "out" / "data").iterdir()}
    assert found == {"one": b"1", "two": b"2"}
    with pytest.raises(UserError, match="has no data/four, data/three"):  # a folder is not a file
        extract_tar(archive, tmp_path / "out", ["data/three", "data/four"])


@pytest.mark.parametrize(
    "evil",
    [
        special("../evil", tarfile.REGTYPE),
        special("data/../../evil", tarfile.REGTYPE),
        special("..\\evil", tarfile.REGTYPE),
        special("/evil", tarfile.REGTYPE),
        special("C:/evil", tarfile.REGTYPE),
        special("data/link", tarfile.SYMTYPE, "/etc"),
        special("data/link", tarfile.LNKTYPE, "data/one"),
        special("data/pipe", tarfile.FIFOTYPE),
        special("data/device", tarfile.CHRTYPE),
    ],
    ids=lambda entry: f"{entry.name}-{entry.type.decode()}",
)
@pytest.mark.parametrize("asked_for", [True, False])
def test_an_archive_that_wants_out_is_refused(tmp_path: Path, evil: tarfile.TarInfo, asked_for: bool) -> None:
    archive = tar_of(tmp_path / "a.tar.gz", {"data/one": b"1"}, evil)
    out = tmp_path / "deep" / "out"
    with pytest.raises(UserError, match="was not unpacked"):
        extract_tar(archive, out, ["data/one", *([evil.name] if asked_for else [])])
    assert not (tmp_path / "deep").exists(), "not even its harmless files are written"


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tar_of(tmp_path / "a.tar.gz", {"data/one": b"new"})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one").write_bytes(b"old")

    def copy(source: BinaryIO, target: BinaryIO, length: int) -> None:
        target.write(source.read(1))
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(shutil, "copyfileobj", copy)
    with pytest.raises(OSError, match="no space left"):
        extract_tar(archive, tmp_path, ["data/one"])
    (left,) = (tmp_path / "data").iterdir()
    assert left.read_bytes() == b"old"


@pytest.mark.parametrize("cut", [0.02, 0.5, 0.98])
def test_a_damaged_archive(tmp_path: Path, cut: float) -> None:
    archive = tar_of(tmp_path / "a.tar.gz", {"data/one": random.Random(0).randbytes(100_000)})
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * cut)])
    with pytest.raises(UserError):
        extract_tar(archive, tmp_path / "out", ["data/one"])
    assert not (tmp_path / "out" / "data" / "one").exists()
