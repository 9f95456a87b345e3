"""Downloads from a server of our own: whole, resumed, damaged, refused. Archives that want to escape."""

from __future__ import annotations

import errno
import hashlib
import io
import random
import re
import shutil
import socket
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

CONTENT = bytes(range(256)) * 4000  # a megabyte, several blocks
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    content = CONTENT
    knows_ranges = True
    shifts_ranges = False
    hangs_up_after: int | None = None
    ranges: list[str | None]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/archive.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        start, whole = 0, self.server.content
        if "missing" in self.path:
            self.send_error(404)
            return
        if asked and self.server.knows_ranges:
            found = re.fullmatch(r"bytes=(\d+)-", asked)
            assert found
            start = int(found[1]) - (1 if self.server.shifts_ranges else 0)
            if start >= len(whole):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(whole) - 1}/{len(whole)}")
        else:
            self.send_response(200)
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


def part_of(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def test_a_whole_download(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new" / "archive.bin"
    seen: list[tuple[int, int | None]] = []
    assert download(server.url, target, md5=MD5, report=lambda done, total: seen.append((done, total)))
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert not download(server.url, target, md5=MD5), "a file that is there and right is not fetched again"
    assert server.ranges == [None]


def test_a_bar_is_shown(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    download(server.url, tmp_path / "archive.bin", md5=MD5)
    assert "archive.bin" in capsys.readouterr().err


def test_a_wrong_file_in_place_is_replaced(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "archive.bin"
    target.write_bytes(b"old")
    assert download(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT


def test_an_interrupted_download_is_continued(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "archive.bin"
    server.hangs_up_after = 300_000
    with pytest.raises(UserError, match="is kept"):
        download(server.url, target, md5=MD5)
    assert [path.name for path in tmp_path.iterdir()] == ["archive.bin.part"]
    assert part_of(target).read_bytes() == CONTENT[:300_000]
    server.hangs_up_after = None
    seen: list[int] = []
    download(server.url, target, md5=MD5, report=lambda done, total: seen.append(done))
    assert server.ranges == [None, "bytes=300000-"]
    assert seen[0] == 300_000
    assert target.read_bytes() == CONTENT
    assert not part_of(target).exists()


def test_ctrl_c_leaves_the_part_only(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "archive.bin"

    def stop(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(server.url, target, md5=MD5, report=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["archive.bin.part"]
    download(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert server.ranges[1] is not None


@pytest.mark.parametrize("shifted", [False, True])
def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path, shifted: bool) -> None:
    server.knows_ranges, server.shifts_ranges = shifted, shifted
    target = tmp_path / "archive.bin"
    part_of(target).write_bytes(CONTENT[:1000])
    seen: list[tuple[int, int | None]] = []
    download(server.url, target, md5=MD5, report=lambda done, total: seen.append((done, total)))
    assert target.read_bytes() == CONTENT
    assert (seen[0], seen[-1]) == ((0, len(CONTENT)), (len(CONTENT), len(CONTENT)))
    assert server.ranges == (["bytes=1000-", None] if shifted else ["bytes=1000-"])


@pytest.mark.parametrize(("part", "requests"), [(CONTENT, 1), (CONTENT + b"more", 2)])
def test_a_part_with_nothing_to_follow(server: Server, tmp_path: Path, part: bytes, requests: int) -> None:
    """416: the part is whole and only needs its name, or it is of another file and is dropped."""
    target = tmp_path / "archive.bin"
    part_of(target).write_bytes(part)
    download(server.url, target, md5=MD5)
    assert target.read_bytes() == CONTENT
    assert len(server.ranges) == requests


def test_a_wrong_md5_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.content = b"not what was asked for"
    with pytest.raises(UserError, match=MD5):
        download(server.url, tmp_path / "archive.bin", md5=MD5)
    assert list(tmp_path.iterdir()) == []


def test_a_404_names_the_way_out(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "archive.bin"
    with pytest.raises(UserError, match="404") as error:
        download(server.url + "/missing", target, md5=MD5)
    assert str(target) in str(error.value)


def test_an_unreachable_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    target = tmp_path / "new" / "archive.bin"
    with pytest.raises(UserError, match=r"127\.0\.0\.1 could not be reached") as error:
        download(f"http://127.0.0.1:{port}/archive.bin", target, md5=MD5)
    assert str(target) in str(error.value)
    assert MD5 in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_get_cifar100_from_end_to_end(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = {name: name.encode() for name in ("train", "test", "meta")}
    monkeypatch.setattr(cifar100, "MD5", {k: hashlib.md5(v).hexdigest() for k, v in contents.items()})
    archive = tar_of(tmp_path / "x.tar.gz", {f"cifar-100-python/{k}": v for k, v in contents.items()})
    server.content = archive.read_bytes()
    monkeypatch.setattr(cifar100, "ARCHIVE_MD5", hashlib.md5(server.content).hexdigest())
    monkeypatch.setattr(cifar100, "URL", server.url)
    root = tmp_path / "root"
    cifar100.get_cifar100(root)
    assert sorted(path.name for path in (root / "cifar-100-python").iterdir()) == ["meta", "test", "train"]
    assert [path.name for path in root.iterdir()] == ["cifar-100-python"], "the archive is not kept"
    (root / "cifar-100-python" / "test").write_bytes(b"damaged")
    cifar100.get_cifar100(root)
    assert (root / "cifar-100-python" / "test").read_bytes() == b"test"
    cifar100.get_cifar100(root)
    assert len(server.ranges) == 2
    assert "already" in capsys.readouterr().err


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
    folder = special("data", tarfile.DIRTYPE)
    archive = tar_of(tmp_path / "a.tar.gz", {"data/one": b"1", "data/two": b"2", "data/two~": b"3"}, folder)
    extract_tar(archive, tmp_path / "out", ["data/one", "data/two"])
    assert sorted(p.name for p in (tmp_path / "out" / "data").iterdir()) == ["one", "two"]
    assert (tmp_path / "out" / "data" / "two").read_bytes() == b"2"


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


def test_an_archive_without_the_named_file(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "a.tar.gz", {"data/one": b"1"})
    with pytest.raises(UserError, match="data/two"):
        extract_tar(archive, tmp_path / "out", ["data/one", "data/two"])


def test_a_folder_by_the_name_of_a_file_is_no_file(tmp_path: Path) -> None:
    archive = tar_of(tmp_path / "a.tar.gz", {}, special("data/one", tarfile.DIRTYPE))
    with pytest.raises(UserError, match="has no data/one"):
        extract_tar(archive, tmp_path / "out", ["data/one"])


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
    assert (tmp_path / "data" / "one").read_bytes() == b"old"


@pytest.mark.parametrize("cut", [0.02, 0.5, 0.98])
def test_a_damaged_archive(tmp_path: Path, cut: float) -> None:
    archive = tar_of(tmp_path / "a.tar.gz", {"data/one": random.Random(0).randbytes(100_000)})
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * cut)])
    with pytest.raises(UserError):
        extract_tar(archive, tmp_path / "out", ["data/one"])
    assert not (tmp_path / "out" / "data" / "one").exists()
