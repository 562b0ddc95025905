"""Links that a sandbox's user leaves where its owner reads, writes or removes: they lead only where that user may go."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from box_help import Boxes

from proctor.core.sandbox import SandboxError
from proctor.engine.sandbox import Sandbox

EXPECTED = "what-was-expected-31415"


@pytest.fixture
def judged(boxes: Boxes) -> Iterator[Sandbox]:
    """A sandbox in which root keeps things that its user may not see or change."""
    box = boxes.new()
    made = boxes.sh(box, f"mkdir -p /srv/tests/keep; echo {EXPECTED} > /srv/tests/answer; cp /srv/tests/answer /srv/tests/keep/t.py; "
                         "chmod 644 /srv/tests/answer; chmod 700 /srv/tests", user="root")  # fmt: skip
    if made.exit_code != 0:
        pytest.skip("no identity but one here: its user and root are the same")
    yield box
    boxes.run(boxes.engine.delete(box.id))


def rows(boxes: Boxes, box: Sandbox, path: str) -> list[str]:
    return [row["path"] for row in json.loads(boxes.file(box, "list", path=path, depth=3)[1])]


def test_reading_goes_where_the_user_could_read(boxes: Boxes, judged: Sandbox) -> None:
    boxes.sh(
        judged,
        "ln -s /srv/tests/answer out; ln -s /srv tops; ln -s out twice; ln -s /etc/shadow- s; ln -s ../srv/tests/keep/../answer up",
    )
    for path in ("out", "tops/tests/answer", "twice", "up", "tops/tests/keep/t.py"):
        with pytest.raises(SandboxError, match="Permission denied"):
            boxes.read(judged, path)
        with pytest.raises(SandboxError, match="Permission denied"):
            boxes.file(judged, "stat", path=path)
    with pytest.raises(SandboxError, match="Permission denied"):
        rows(boxes, judged, "tops/tests")
    assert rows(boxes, judged, "tops") == ["/workspace/tops/tests"]
    assert boxes.read(judged, "/srv/tests/answer").decode() == f"{EXPECTED}\n"  # by its own name it is the owner's
    assert rows(boxes, judged, "/srv/tests") == ["/srv/tests/answer", "/srv/tests/keep", "/srv/tests/keep/t.py"]


def test_writing_and_removing_go_where_the_user_could(boxes: Boxes, judged: Sandbox) -> None:
    boxes.sh(judged, "ln -s /srv/tests/answer a; ln -s /etc/ld.so.preload new; ln -s /srv/tests dir; ln -s /etc etc")
    before = boxes.sh(judged, "ls -lR /srv/tests /etc", user="root").stdout
    for path in ("a", "new", "dir/answer", "dir/made", "etc/made", "etc/deep/made"):
        with pytest.raises(SandboxError, match="Permission denied"):
            boxes.file(judged, "write", b"x", path=path)
    for path in ("dir/answer", "dir/keep", "etc/passwd"):
        with pytest.raises(SandboxError, match="Permission denied"):
            boxes.file(judged, "remove", path=path, recursive=True)
        with pytest.raises(SandboxError, match="Permission denied"):
            boxes.file(judged, "rename", path=path, to="taken")
    boxes.file(judged, "write", b"mine", path="mine")
    with pytest.raises(SandboxError, match="Permission denied"):
        boxes.file(judged, "rename", path="mine", to="etc/mine")
    with pytest.raises(SandboxError, match="Permission denied"):
        boxes.file(judged, "mkdir", path="etc/new/er")
    for path in ("a", "dir", "etc/passwd"):
        with pytest.raises(SandboxError, match=r"Permission denied|not permitted"):
            boxes.file(judged, "chmod", path=path, mode=0o777)
    assert boxes.sh(judged, "ls -lR /srv/tests /etc", user="root").stdout == before
    for path in ("a", "dir", "etc"):  # the links themselves are anybody's to remove
        boxes.file(judged, "remove", path=path)
    assert boxes.sh(judged, "ls -lR /srv/tests /etc", user="root").stdout == before


def test_links_to_what_is_the_users_and_links_of_roots_lead_where_they_say(boxes: Boxes, judged: Sandbox) -> None:
    boxes.sh(
        judged,
        "mkdir -p real/deep; echo here > real/deep/f; ln -s real link; ln -s link/deep/f file; ln -s real/new later; ln -s /usr/bin bin",
    )
    assert boxes.read(judged, "file") == b"here\n"
    assert boxes.file(judged, "write", b"there", path="link/deep/f")[0]["path"] == "/workspace/real/deep/f"
    assert boxes.file(judged, "write", b"first", path="later")[0]["path"] == "/workspace/real/new"
    assert boxes.sh(judged, "cat file; cat real/new; ls -l file | cut -c1").stdout == b"therefirstl\n"
    boxes.file(judged, "mkdir", path="link/a/b")
    boxes.file(judged, "rename", path="link/a", to="link/c")
    boxes.file(judged, "remove", path="link/c", recursive=True)
    assert rows(boxes, judged, "link") == ["/workspace/link/deep", "/workspace/link/new", "/workspace/link/deep/f"]
    assert "/workspace/bin/env" in rows(boxes, judged, "bin")
    boxes.sh(judged, "ln -s /srv/tests /opt/of-roots", user="root")
    assert boxes.read(judged, "/opt/of-roots/answer").decode() == f"{EXPECTED}\n"
    boxes.file(judged, "write", b"x", path="/opt/of-roots/new")
    assert boxes.file(judged, "stat", path="/bin/env")[0]["info"]["kind"] == "file"


def test_a_way_that_changes_meanwhile_leads_nowhere_else(boxes: Boxes, judged: Sandbox) -> None:
    """Directory and link change places all the time; what is behind the link is never read, listed or written."""
    boxes.sh(judged, "mkdir place; echo own > place/answer; ln -s /srv/tests other")
    swap = "import ctypes\nlibc = ctypes.CDLL(None)\nwhile True: libc.renameat2(-100, b'place', -100, b'other', 2)"
    boxes.sh(judged, f'nohup setsid python3 -c "{swap}" > /dev/null 2>&1 & sleep 0.3')
    seen = set()
    for _ in range(300):
        try:
            seen.add(boxes.read(judged, "place/answer"))
            seen.add(b"|".join(sorted(row.encode() for row in rows(boxes, judged, "place"))))
            boxes.file(judged, "write", b"own\n", path="place/answer")
        except SandboxError as exc:
            seen.add(exc.code.encode())
    assert EXPECTED.encode() not in b"".join(seen)
    assert b"keep" not in b"".join(seen)
    assert b"own\n" in seen
    assert boxes.sh(judged, "cat /srv/tests/answer", user="root").stdout.decode() == f"{EXPECTED}\n"


def test_a_name_that_is_roots_file_by_turns_lends_no_rights(boxes: Boxes, judged: Sandbox) -> None:
    """Root's own file and a link of the user's change places: what is behind the link is not read with root's rights."""
    boxes.sh(
        judged,
        "echo notes > /workspace/w; chmod 644 /workspace/w; mkdir /workspace/own; echo x > /workspace/own/x",
        user="root",
    )
    boxes.sh(judged, "ln -s /srv/tests/answer v; ln -s /srv/tests d; mkdir e")
    swap = "import ctypes\nlibc = ctypes.CDLL(None)\nwhile True: libc.renameat2(-100, b'w', -100, b'v', 2); libc.renameat2(-100, b'own', -100, b'd', 2)"
    boxes.sh(judged, f'nohup setsid python3 -c "{swap}" > /dev/null 2>&1 & sleep 0.3')
    before = boxes.sh(judged, "ls -lR /srv/tests", user="root").stdout
    seen = []
    for _ in range(400):
        for work in (
            lambda: seen.append(boxes.read(judged, "w")),
            lambda: seen.append("|".join(rows(boxes, judged, "own")).encode()),
            lambda: boxes.file(judged, "write", b"forged", path="own/answer"),
            lambda: boxes.file(judged, "mkdir", path="own/made"),
        ):
            try:
                work()
            except SandboxError as exc:
                seen.append(exc.code.encode())
    assert b"notes\n" in seen
    assert EXPECTED.encode() not in b"".join(seen)
    assert b"keep" not in b"".join(seen)
    assert boxes.sh(judged, "ls -lR /srv/tests", user="root").stdout == before


def test_a_directory_that_is_there_behind_a_link_is_a_directory(boxes: Boxes, judged: Sandbox) -> None:
    boxes.sh(judged, "ln -s /tmp tmp; ln -s /opt opt; touch file")
    for path in ("tmp", "tmp/", "opt", "tmp/new", "/", ".", "/tmp"):
        boxes.file(judged, "mkdir", path=path)
    for path in ("file/", "file/."):
        for name in ("open", "stat"):
            with pytest.raises(SandboxError, match="Not a directory"):
                boxes.file(judged, name, path=path)
    with pytest.raises(SandboxError, match="Not a directory"):
        boxes.file(judged, "mkdir", path="file")
    boxes.file(judged, "mkdir", path="a/b")
    for path in ("a/b/..", "/", "a/b/../.."):
        with pytest.raises(SandboxError, match="Invalid argument"):
            boxes.file(judged, "remove", path=path, recursive=True)
    assert boxes.sh(judged, "ls a").stdout == b"b\n"
    assert boxes.file(judged, "stat", path="/proc/self")[0]["info"]["kind"] == "directory"
    assert boxes.file(judged, "stat", path="tmp/")[0]["info"]["kind"] == "directory"


def test_a_deep_tree_is_listed_in_no_more_than_seconds(boxes: Boxes, judged: Sandbox) -> None:
    """And what is cut is told; the sandbox goes on."""
    deep = (
        "import os\nfor _ in range(800):\n    os.mkdir('d'); os.chdir('d')\nfor i in range(4000): os.mkdir(f'x{i}')\n"
    )
    assert boxes.sh(judged, f'python3 -c "{deep}"').exit_code == 0
    answer, found = boxes.file(judged, "list", path=".", depth=5000, glob="**/*.py")
    assert found == b"[]"
    assert answer["more"] in (True, False)  # by how busy this host is
    assert boxes.sh(judged, "echo alive").stdout == b"alive\n"
    listed = json.loads(boxes.file(judged, "list", path=".", depth=100)[1])
    assert [row["path"].count("/d") for row in listed[:100]] == list(range(1, 101))


def test_a_lease_on_a_file_is_said_to_be_a_programs(boxes: Boxes, judged: Sandbox) -> None:
    hold = "import fcntl, os, signal, time\nsignal.signal(signal.SIGIO, signal.SIG_IGN)\nf = os.open('f', os.O_RDWR | os.O_CREAT)\nfcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_WRLCK)\ntime.sleep(60)"
    boxes.sh(judged, f'nohup setsid python3 -c "{hold}" > /dev/null 2>&1 & sleep 1')
    with pytest.raises(SandboxError, match="a program of the sandbox holds a lease") as caught:
        boxes.read(judged, "f")
    assert caught.value.code == "not_a_file"


def test_links_in_a_circle_are_said(boxes: Boxes, judged: Sandbox) -> None:
    boxes.sh(judged, "ln -s a b; ln -s b a; ln -s . self")
    with pytest.raises(SandboxError, match="symbolic links"):
        boxes.read(judged, "a")
    boxes.file(judged, "write", b"x", path="/".join(["self"] * 30) + "/f")
    with pytest.raises(SandboxError, match="symbolic links"):
        boxes.read(judged, "/".join(["self"] * 60) + "/f")
