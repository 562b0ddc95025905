"""The file of grades that were found before: whatever happens to it, what it gives is what it was given."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from proctor.core.errors import InputError
from proctor.grading.cache import Cache, default_path

WRITER = """
import hashlib, sys
from proctor.grading.cache import Cache
path, start, count, size, says = sys.argv[1], *map(int, sys.argv[2:])
cache = Cache(path)
for number in range(start, start + count):
    key = hashlib.sha256(str(number).encode()).digest()
    cache.put(key, key * size)
    if number % 5 == 0:
        cache.flush()
        if says:
            print(number, flush=True)
cache.close()
print(cache.trouble)
"""


def key(number: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest()


def keys(count: int) -> list[bytes]:
    return [key(number) for number in range(count)]


def writer(path: Path, start: int, count: int, size: int = 10, says: bool = False) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), *map(str, (start, count, size, int(says)))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "deep" / "er"
    folder.mkdir(parents=True)
    return folder / "grades.sqlite"


def test_the_users_own_folder_is_made_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a" / "b"))
    with Cache() as own:
        own.put(key(1), b"one")
    assert own.trouble is None
    assert (tmp_path / "a" / "b" / "proctor").stat().st_mode & 0o077 == 0
    with Cache(tmp_path / "c" / "d.sqlite") as named:
        named.put(key(1), b"one")
    assert named.trouble == f"there is no folder {tmp_path / 'c'}"
    assert not (tmp_path / "c").exists()


def test_what_was_put_comes_back_later(path: Path) -> None:
    with Cache(path) as cache:
        cache.put(b"k" * 32, b"value")
        assert cache.get([b"k" * 32, b"n" * 32]) == {b"k" * 32: b"value"}  # before it is on the disk, too
    with Cache(path) as cache:
        assert cache.get([b"k" * 32, b"n" * 32]) == {b"k" * 32: b"value"}
        cache.hit([b"k" * 32] * 3)
        assert (cache.stats().entries, cache.stats().hits) == (1, 3)
        cache.remember("level", "jail")
        assert cache.recall("level") == "jail"
        assert cache.recall("other") is None
    assert path.stat().st_mode & 0o077 == 0


def test_it_lies_where_caches_of_a_user_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_path().parent == Path("/somewhere/proctor")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative is not allowed")
    monkeypatch.setenv("HOME", "/nobody")
    assert default_path().parent == Path("/nobody/.cache/proctor")


def test_two_processes_at_once(path: Path) -> None:
    both = [writer(path, start, 200) for start in (0, 100)]
    for process in both:
        assert process.communicate(timeout=120)[0].split() == ["None"]
        assert process.returncode == 0
    with Cache(path) as cache:
        assert cache.get(keys(300)) == {k: k * 10 for k in keys(300)}
        assert cache.stats().entries == 300


def test_many_threads(path: Path) -> None:
    cache = Cache(path)
    wrong: list[int] = []

    def work(part: int) -> None:
        for number in range(part, 200, 8):
            cache.put(key(number), key(number))
            if cache.get([key(number)]) != {key(number): key(number)}:
                wrong.append(number)
            cache.hit([key(number)])

    threads = [threading.Thread(target=work, args=(part,)) for part in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.close()
    assert not wrong
    assert cache.get(keys(200)) == {k: k for k in keys(200)}
    assert cache.stats().hits == 200
    cache.close()


def test_killed_while_it_writes(path: Path) -> None:
    rng = random.Random(3)
    most = 0
    for _ in range(6):
        process = writer(path, 0, 100_000, size=300, says=True)
        assert process.stdout is not None
        for _ in range(rng.randint(1, 20)):
            process.stdout.readline()
        time.sleep(rng.random() / 20)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with Cache(path) as cache:
            found = cache.get(keys(20_000))
            assert cache.trouble is None
            assert all(value == k * 300 for k, value in found.items())
            assert len(found) >= most
            most = len(found)
    assert most > 0


def test_a_forked_child_goes_on(path: Path) -> None:
    cache = Cache(path)
    cache.put(key(0), b"parent")
    cache.flush()
    cache.put(key(1), b"waits")
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            found = cache.get([key(0), key(1)])
            cache.put(key(2), b"child")
            cache.close()
            status = 0 if found == {key(0): b"parent"} and cache.trouble is None else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    cache.close()
    assert cache.get(keys(3)) == {key(0): b"parent", key(1): b"waits", key(2): b"child"}
    cache.close()


@pytest.mark.parametrize("column", ["value", "checksum"])
def test_a_row_that_was_changed_is_a_miss(path: Path, column: str) -> None:
    with Cache(path) as cache:
        for number in range(3):
            cache.put(key(number), b"value %d" % number)
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE entries SET {column} = ? WHERE key = ?", (b"value 2", key(1)))
        database.execute("UPDATE entries SET value = 'text', checksum = 7 WHERE key = ?", (key(2),))
    database.close()
    with Cache(path) as cache:
        assert cache.get(keys(3)) == {key(0): b"value 0"}
        assert cache.trouble is None


def test_rows_that_were_exchanged_are_misses(path: Path) -> None:
    with Cache(path) as cache:
        cache.put(key(0), b"accepted")
        cache.put(key(1), b"wrong")
    with sqlite3.connect(path) as database:
        database.execute("UPDATE entries SET key = ? WHERE key = ?", (b"x", key(0)))
        database.execute("UPDATE entries SET key = ? WHERE key = ?", (key(0), key(1)))
    database.close()
    with Cache(path) as cache:
        assert cache.get(keys(2)) == {}


def broken_start(path: Path) -> None:
    path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])


def broken_middle(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + random.Random(1).randbytes(len(data) - 4096))


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def no_database(path: Path) -> None:
    path.write_bytes(b"my thesis\n" * 1000)


def another_database(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()


def another_version(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


@pytest.mark.parametrize(
    "breaks", [broken_start, broken_middle, cut_off, no_database, another_database, another_version]
)
def test_a_file_that_was_broken_gives_nothing_wrong(path: Path, breaks: object) -> None:
    with Cache(path) as cache:
        for k in keys(500):
            cache.put(k, k * 40)
    breaks(path)  # type: ignore[operator]
    data = path.read_bytes()
    with Cache(path) as cache:
        found = cache.get(keys(500))
        assert all(value == k * 40 for k, value in found.items())
        assert len(found) < 500
        cache.put(key(1), b"new")
    assert cache.trouble is not None
    assert cache.get(keys(500)) == {}
    assert cache.stats().trouble is not None
    assert path.read_bytes() == data
    with pytest.raises(InputError, match="remove it yourself"):
        Cache(path).clear()
    assert path.read_bytes() == data


def test_the_users_own_file_can_be_cleared_when_it_is_broken() -> None:
    with Cache() as cache:
        cache.put(key(0), b"value")
    broken_start(default_path())
    with Cache() as cache:
        assert cache.get([key(0)]) == {}
        assert cache.clear() == 0
        cache.put(key(0), b"value")
    with Cache() as cache:
        assert cache.get([key(0)]) == {key(0): b"value"}
        assert cache.clear() == 1
        assert cache.get([key(0)]) == {}


@pytest.mark.parametrize("name", ["file/grades.sqlite", "folder", "/dev/full"])
def test_where_no_file_can_be_there_is_trouble_and_no_more(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with Cache(tmp_path / name) as cache:
        assert cache.get([key(0)]) == {}
        cache.put(key(0), b"value")
        cache.remember("level", "jail")
        assert cache.recall("level") is None
    assert cache.trouble


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_not_believed(path: Path) -> None:
    with Cache(path) as cache:
        cache.put(key(0), b"value")
    os.chown(path, 12345, 12345)
    with Cache(path) as cache:
        assert cache.get([key(0)]) == {}
    assert "another user" in str(cache.trouble)


def test_the_size_is_bounded_and_what_is_used_stays(path: Path) -> None:
    limit = 512 << 10
    with Cache(path, limit=limit) as cache:
        for number in range(400):
            cache.put(key(number), random.Random(number).randbytes(4000))
            if number % 20 == 0:
                cache.hit([key(0)])
                cache.flush()
        cache.flush()
        found = cache.get(keys(400))
        assert key(0) in found
        assert key(399) in found
        assert key(5) not in found
        assert 60 < len(found) < 130
        assert cache.stats().bytes <= limit
        cache.put(key(1000), b"x" * limit)  # larger than is worth it
        assert cache.get([key(1000)]) == {}
    assert path.stat().st_size < 2 * limit


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1G"])
def test_a_bound_that_is_none_is_refused(limit: object) -> None:
    with pytest.raises(InputError, match="limit"):
        Cache(limit=limit)  # type: ignore[arg-type]
