"""Files of a sandbox, and trees of them both ways: nothing leaves the directory that was named."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from proctor import ConflictError, InvalidRequestError, NotFoundError, RuntimeAPIError
from proctor.client import local
from proctor.client.errors import PermissionDeniedError

MIB = 1 << 20


def test_text_and_bytes(sbx: Any) -> None:
    made = sbx.files.write("/workspace/a/b.txt", "žluť\n")
    assert (made["path"], made["size"]) == ("/workspace/a/b.txt", 7)
    assert sbx.files.read("a/b.txt") == "žluť\n".encode()
    assert sbx.files.read_text("a/b.txt") == "žluť\n"
    data = bytes(range(256)) * 20_000
    sbx.files.write("big", data)
    assert sbx.files.read("big") == data
    sbx.files.write("empty", b"")
    assert sbx.files.read("empty") == b""


def test_modes(sbx: Any) -> None:
    sbx.files.write("run.sh", "#!/bin/sh\necho ran\n", mode=0o755)
    assert sbx.exec(["./run.sh"]).stdout == "ran\n"
    sbx.files.write("run.sh", "#!/bin/sh\necho again\n")
    assert sbx.exec(["./run.sh"]).stdout == "again\n"
    for mode in (0o4755, -1, "755", True):
        with pytest.raises(InvalidRequestError, match="mode"):
            sbx.files.write("x", "", mode=mode)


def test_what_the_sandbox_wrote_is_read(sbx: Any) -> None:
    sbx.exec("printf '\\x00\\xff' > /workspace/out.bin")
    assert sbx.files.read("out.bin") == b"\x00\xff"


def test_list_glob_stat(sbx: Any) -> None:
    sbx.exec("mkdir -p d/e; echo 1 > d/x.py; echo 2 > d/e/y.py; echo 3 > d/.hidden; ln -s x.py d/link")
    assert [row.name for row in sbx.files.list("d")] == [".hidden", "e", "link", "x.py"]
    assert [row["name"] for row in sbx.files.list("d", hidden=False)] == ["e", "link", "x.py"]
    assert [row.path for row in sbx.files.glob("**/*.py", "d")] == ["/workspace/d/x.py", "/workspace/d/e/y.py"]
    assert len(sbx.files.list("d", limit=2)) == 2
    assert {row.path.rpartition("/")[0] for row in sbx.files.list("./d/.")} == {"/workspace/d"}
    assert sbx.files.stat(".//d/").path == "/workspace/d"
    assert (sbx.files.stat("/").path, sbx.files.stat("/").name) == ("/", "")
    info = sbx.files.stat("d/x.py")
    assert (info.type, info.size, info.path) == ("file", 2, "/workspace/d/x.py")
    assert info.modifiedAt == info["modified_at"]
    assert sbx.files.stat("d/link", follow=False).type == "symlink"
    assert sbx.files.stat("d/link").type == "file"
    assert sbx.files.exists("d/e")
    assert not sbx.files.exists("d/nothing")
    assert not sbx.files.exists("d/x.py/below")
    with pytest.raises(NotFoundError):
        sbx.files.list("nowhere")


def test_make_move_remove(sbx: Any) -> None:
    sbx.files.mkdir("m/n")
    sbx.files.mkdir("m/n")
    with pytest.raises(NotFoundError):
        sbx.files.mkdir("q/r", parents=False)
    sbx.files.write("m/f", "1")
    sbx.files.write("m/g", "2")
    with pytest.raises(ConflictError):
        sbx.files.rename("m/f", "m/g")
    sbx.files.rename("m/f", "m/g", overwrite=True)
    assert sbx.files.read_text("m/g") == "1"
    with pytest.raises(ConflictError):
        sbx.files.remove("m")
    assert sbx.files.remove("m", recursive=True) is True
    assert sbx.files.remove("m") is False


def test_only_regular_files_are_read(sbx: Any) -> None:
    sbx.exec("mkfifo pipe; mkdir dir; ln -s /proc/1/environ env; ln -s loop loop")
    for path in ("pipe", "dir", "env", "loop", "/dev/zero", "/proc/self/maps", "nothing"):
        with pytest.raises((InvalidRequestError, NotFoundError, PermissionDeniedError)):
            sbx.files.read(path)


def test_a_sparse_file_does_not_fill_the_trainers_memory(sbx: Any, tmp_path: Path) -> None:
    sbx.exec(["truncate", "-s", "1T", "huge"])
    with pytest.raises(InvalidRequestError, match="more than"):
        sbx.files.read("huge")
    with pytest.raises(InvalidRequestError, match="max_bytes"):
        sbx.files.download("huge", tmp_path / "huge")
    assert not list(tmp_path.iterdir())


def test_paths_that_cannot_be(sbx: Any) -> None:
    for path in ("", "a\0b", 5, None):
        with pytest.raises(InvalidRequestError, match="path"):
            sbx.files.write(path, "")
    with pytest.raises(InvalidRequestError, match="data"):
        sbx.files.write("x", 5)


def test_200_mb_go_both_ways(runtime: Any, tmp_path: Path) -> None:
    block = os.urandom(MIB)
    with (tmp_path / "in").open("wb") as file:
        for number in range(200):
            file.write(number.to_bytes(4, "big") + block[4:])
    with runtime.sandboxes.create(memory_mib=600, disk_mib=300) as box:
        sent = box.files.upload(tmp_path / "in", "/workspace/in")
        assert (sent["files"], sent["bytes"]) == (1, 200 * MIB)
        want = hashlib.md5((tmp_path / "in").read_bytes()).hexdigest()
        assert box.exec(["md5sum", "in"]).stdout.split()[0] == want
        got = box.files.download("/workspace/in", tmp_path / "out")
    assert got["bytes"] == 200 * MIB
    assert hashlib.md5((tmp_path / "out").read_bytes()).hexdigest() == want


def test_a_disk_that_is_full_says_so(runtime: Any) -> None:
    with runtime.sandboxes.create(memory_mib=256, disk_mib=32) as box:
        with pytest.raises(RuntimeAPIError, match="No space") as caught:
            box.files.write("big", b"x" * (33 * MIB))
        assert (caught.value.code, caught.value.status) == ("disk_full", 507)
        assert not box.files.exists("big")
        assert box.exec("echo goes on").stdout == "goes on\n"


def test_directories_go_up(sbx: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("never")
    top = tmp_path / "top"
    (top / "sub" / "empty").mkdir(parents=True)
    (top / "a.txt").write_text("a")
    (top / "sub" / "run").write_text("#!/bin/sh\necho up\n")
    (top / "sub" / "run").chmod(0o755)
    (top / "inside").symlink_to("a.txt")
    (top / "outside").symlink_to(secret)
    (top / "above").symlink_to("..")
    os.mkfifo(top / "pipe")
    done = sbx.files.upload(top, "up")
    assert done["files"] == 3
    assert [line.partition(":")[0] for line in done["skipped"]] == ["above", "outside", "pipe"]
    assert sbx.exec("find up | sort").stdout.split() == [
        "up", "up/a.txt", "up/inside", "up/sub", "up/sub/empty", "up/sub/run"
    ]  # fmt: skip
    assert sbx.exec(["up/sub/run"]).stdout == "up\n"
    assert sbx.files.read_text("up/inside") == "a"
    with pytest.raises(NotFoundError):
        sbx.files.upload(tmp_path / "nothing", "x")


def test_directories_come_down(sbx: Any, tmp_path: Path) -> None:
    sbx.exec("mkdir -p d/sub/empty; echo a > d/a; printf '#!/bin/sh\\n' > d/sub/x; chmod 755 d/sub/x")
    done = sbx.files.download("d", tmp_path / "down")
    assert (done["files"], done["skipped"]) == (2, [])
    assert (tmp_path / "down" / "a").read_text() == "a\n"
    assert (tmp_path / "down" / "sub" / "empty").is_dir()
    assert os.access(tmp_path / "down" / "sub" / "x", os.X_OK)


def test_hostile_trees_stay_in_their_directory(sbx: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    sbx.exec(
        f"""mkdir d; cd d; ln -s {outside} way; ln -s /etc/passwd passwd; mkfifo pipe
        echo bad > $'new\\nline'; echo bad > $'\\xff\\xfe'; echo bad > ' '; mkdir $'\\e[31m'; echo deep > $'\\e[31m/f'
        echo bad > '..\\..\\x'; echo ok > '...'; chmod 4777 '...'"""
    )
    target = tmp_path / "target"
    target.mkdir()
    (target / "...").symlink_to(outside / "kept")  # a link of ours where a file of theirs comes to lie
    done = sbx.files.download("d", target)
    assert (outside / "kept").read_text() == "kept"
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert sorted(line.partition(":")[0] for line in done["skipped"]) == ["'passwd'", "'pipe'", "'way'"]
    assert not any(path.is_symlink() for path in target.rglob("*"))
    assert (target / "...").read_text() == "ok\n"
    assert (target / "...").stat().st_mode & 0o7000 == 0
    assert (target / "\x1b[31m" / "f").read_text() == "deep\n"
    assert done["files"] == 6
    assert {b" ", b"\xff\xfe", b"new\nline"} <= {os.fsencode(path.name) for path in target.iterdir()}


def test_a_link_of_this_host_is_not_followed_by_directories(sbx: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "sub").symlink_to(outside)
    sbx.exec("mkdir -p d/sub; echo x > d/sub/x")
    with pytest.raises(OSError, match="sub"):
        sbx.files.download("d", tmp_path / "target")
    assert list(outside.iterdir()) == []


def test_a_file_that_is_given_up_half_way_leaves_the_old_one(runtime: Any, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (40 * MIB))
    with runtime.sandboxes.create(memory_mib=128, disk_mib=16) as box:
        box.files.write("f", "old")
        with pytest.raises(RuntimeAPIError, match="No space"):
            box.files.upload(tmp_path / "big", "f")
        assert box.files.read_text("f") == "old"
        assert [row.name for row in box.files.list()] == ["f"]


def test_a_download_that_fails_leaves_what_was_there(sbx: Any, tmp_path: Path) -> None:
    sbx.exec("mkdir d; printf new > d/a; truncate -s 1T d/b; head -c 5000 /dev/zero > big")
    (tmp_path / "d").mkdir()
    for name in ("big", "d/a"):
        (tmp_path / name).write_text("precious")
    for source, target in (("big", "big"), ("d", "d"), ("d/b", "big")):
        with pytest.raises(InvalidRequestError, match="goes beyond 1000 bytes"):
            sbx.files.download(source, tmp_path / target, max_bytes=1000)
    with pytest.raises(InvalidRequestError, match="it is a directory"):
        sbx.files.download("big", tmp_path / "d")
    with pytest.raises(NotFoundError, match="directory"):
        sbx.files.download("big", tmp_path / "none" / "big")
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["big", "d", "a"]
    assert (tmp_path / "big").read_text() == (tmp_path / "d" / "a").read_text() == "precious"
    sbx.files.download("big", tmp_path / "big")
    assert (tmp_path / "big").read_bytes() == bytes(5000)


def test_a_download_that_is_cut_off_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "big").write_text("precious")
    with local.part_at(str(tmp_path / "big"), 0o644) as part:
        part.write(b"half")
    assert [path.name for path in tmp_path.iterdir()] == ["big"]
    assert (tmp_path / "big").read_text() == "precious"


def test_errors_name_the_file(sbx: Any) -> None:
    for work in (sbx.files.read, sbx.files.stat, sbx.files.list):
        with pytest.raises(NotFoundError, match=r"nope.*: No such file or directory"):
            work("nope")


def test_a_listing_that_is_cut_is_an_error_and_not_a_short_one(runtime: Any) -> None:
    with runtime.sandboxes.create(memory_mib=256) as sbx:
        long = "import os\nfor _ in range(15):\n    os.mkdir('d' * 200); os.chdir('d' * 200)\nfor i in range(6000): open(f'x{i}', 'w')\n"
        assert sbx.exec(["python3", "-c", long], timeout_ms=60_000).exit_code == 0
        with pytest.raises(InvalidRequestError, match="more than can be listed") as caught:
            sbx.files.list(depth=20)
        assert caught.value.code == "too_many_files"
        assert len(sbx.files.list(depth=20, limit=5)) == 5
        assert sbx.files.glob("**/*.py") == []
        assert sbx.exec("echo alive").stdout == "alive\n"
