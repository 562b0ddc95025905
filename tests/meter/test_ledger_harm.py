"""Kills, several processes, and files that fail: nothing is lost or counted twice, and nothing stops."""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from meter_help import dollars, ledger, micros, spec

from proctor.core.sandbox import SandboxError
from proctor.meter import database as file
from proctor.meter.database import LedgerError
from proctor.meter.ledger import Ledger
from proctor.meter.prices import PICOS

WRITER = """
import json, sys
from proctor.core.sandbox import SandboxSpec
from proctor.meter.ledger import Ledger
path, mine, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
book = Ledger(path)
for number in range(count):
    name = f"{mine}-{number}"
    book.open_sandbox(name, SandboxSpec(vcpu=1, memory_mib=2048, labels={"of": mine}))
    print(json.dumps([name, 0, 0, "open"]), flush=True)
    for part in (1, 2):
        book.checkpoint(name, part, 3 * part)
        print(json.dumps([name, part, 3 * part, "open"]), flush=True)
    if number % 3:
        book.close_sandbox(name, 2, 6)
        print(json.dumps([name, 2, 6, "closed"]), flush=True)
assert book.trouble is None, book.trouble
"""


def writer(path: Path, mine: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), mine, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_killed_again_and_again_nothing_is_lost_and_nothing_counts_twice(path: Path) -> None:
    rng, told = random.Random(5), dict[str, tuple[int, int, str]]()
    for life in range(8):
        process = writer(path, f"life{life}", 100_000)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(rng.randint(1, 200))]
        time.sleep(rng.random() / 20)
        process.send_signal(signal.SIGKILL)
        process.wait()
        lines += process.stdout.read().splitlines(keepends=True)
        process.stdout.close()
        for line in lines:
            if line.endswith("\n"):
                name, cpu, wall, state = json.loads(line)
                told[name] = (cpu, wall, state)
        with Ledger(path) as book:
            exact = beyond = 0
            for name, (cpu, wall, state) in told.items():
                found = book.sandbox(name)
                assert found is not None
                # The last call may have been done and not yet printed.
                assert found.cpu_seconds in (cpu, min(2, cpu + 1))
                assert found.wall_seconds == 3 * found.cpu_seconds >= wall
                assert found.state == "stopped" if state == "closed" else found.state in ("lost", "stopped")
                exact += int(dollars(found.cpu_seconds, found.wall_seconds, 1, 2048) * 10**12)
                beyond += found.cpu_seconds != cpu
            total = book.total()
            assert total.sandboxes in range(len(told), len(told) + life + 2)
            assert total.cost_micros in range(exact // PICOS, exact // PICOS + 1)
            assert beyond <= life + 1
            assert sum(each.sandboxes for each in book.totals("label")) == total.sandboxes
    assert len(told) > 8


def test_processes_and_threads_at_once(path: Path) -> None:
    both = [writer(path, mine, 60) for mine in "ab"]
    book = Ledger(path)
    wrong: list[BaseException] = []

    def work(mine: int) -> None:
        try:
            for number in range(30):
                book.open_sandbox(f"t{mine}-{number}", spec())
                book.close_sandbox(f"t{mine}-{number}", 2, 6)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for process in both:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert not wrong
    assert book.trouble is None
    total = book.total()
    assert (total.sandboxes, total.cost_micros) == (240, micros(240 * dollars(2, 6, 1, 2048)))
    book.close()


STARTER = """
import sys
from proctor.core.sandbox import SandboxSpec
from proctor.meter.ledger import Ledger
sys.stdin.readline()
for number in range(40):
    with Ledger(f"{sys.argv[1]}/{number}.sqlite", daily_micros=10**9) as book:
        book.open_sandbox(sys.argv[2], SandboxSpec())
"""


def test_processes_that_make_it_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    both = [subprocess.Popen([*command, mine], stdin=subprocess.PIPE, text=True) for mine in "abc"]
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        process.communicate(timeout=120)
        assert process.returncode == 0
    for number in range(40):
        with Ledger(tmp_path / f"{number}.sqlite") as book:
            assert book.total().sandboxes == 3


def broken_start(path: Path) -> None:
    path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])


def broken_middle(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + random.Random(1).randbytes(len(data) - 4096))


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


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "breaks", [broken_start, broken_middle, no_database, another_database, another_version, a_folder]
)
def test_a_file_that_fails_stops_nobody_who_has_no_limit(
    path: Path, breaks: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    with ledger(path) as book:
        book.open_sandbox("s", spec())
    breaks(path)
    data = path.read_bytes() if path.is_file() else None
    logging.getLogger("proctor").propagate = True
    with caplog.at_level(logging.WARNING, logger="proctor"):
        book = ledger(path)
        for number in range(20):
            book.open_sandbox(f"t{number}", spec())
            book.checkpoint(f"t{number}", 1, 3)
            book.close_sandbox(f"t{number}", 2, 6)
    assert book.trouble is not None
    assert str(path) in book.trouble
    assert len([each for each in caplog.records if str(path) in each.message]) == 1
    with pytest.raises(LedgerError, match="ledger"):
        book.total()
    with pytest.raises(LedgerError):
        book.store("s", 1, 0)
    with pytest.raises(SandboxError, match="daily limit of the key 'local' cannot be checked") as caught:
        book.open_sandbox("u", spec(), daily_micros=10**9)
    assert (caught.value.code, caught.value.status) == ("ledger_unavailable", 503)
    assert data is None or path.read_bytes() == data
    # Whoever puts it right loses nothing of what was used meanwhile.
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    for name in ("-wal", "-shm"):
        path.with_name(path.name + name).unlink(missing_ok=True)
    book.close()
    assert book.total().cost_micros == micros(20 * dollars(2, 6, 1, 2048))
    assert book.trouble is None
    book.close()


def test_when_the_file_is_moved_away_what_runs_goes_into_the_new_one(path: Path) -> None:
    with ledger(path) as book:
        book.open_sandbox("s", spec(labels={"run": "a"}))
        book.checkpoint("s", 1, 3)
        path.rename(path.with_name("old.sqlite"))
        book.checkpoint("s", 2, 5)
        book.close_sandbox("s", 2, 6)
        assert book.trouble is None
        assert [each.cost_micros for each in book.totals("label")] == [micros(dollars(2, 6, 1, 2048))]


def in_a_child(work: Callable[[], str], *, user: int | None = None) -> str:
    """What it says in a process of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "it ended"
        try:
            if user is not None:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, said.encode())
            os._exit(0)
    os.close(write)
    with open(read) as stream:
        said = stream.read()
    os.waitpid(pid, 0)
    return said


def test_a_full_disk_loses_nothing(path: Path) -> None:
    with ledger(path) as book:
        book.open_sandbox("s", spec())
    size = path.stat().st_size

    def work() -> str:
        book = Ledger(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 4096, resource.RLIM_INFINITY))
        for number in range(300):
            book.open_sandbox(f"t{number}", spec(labels={"long": "x" * 200}))
            book.close_sandbox(f"t{number}", 2, 6)
        trouble = book.trouble
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        book.close()
        total = book.total()
        return f"{trouble} | {book.trouble} | {total.sandboxes} {total.cost_micros}"

    said = in_a_child(work)
    assert "free some space" in said
    assert said.endswith(f" | None | 301 {micros(300 * dollars(2, 6, 1, 2048))}")


def test_a_file_that_may_not_be_written_is_said(path: Path) -> None:
    place = Path(tempfile.mkdtemp())
    user = 65534 if os.geteuid() == 0 else None
    own = place / "ledger.sqlite"
    try:
        with ledger(own) as book:
            book.open_sandbox("s", spec())
        if user is not None:
            os.chown(own, user, user)
            os.chown(place, user, user)
        own.chmod(0o400)
        place.chmod(0o500)

        def work() -> str:
            book = Ledger(own)
            book.open_sandbox("t", spec())
            book.close_sandbox("t", 2, 6)
            return str(book.trouble)

        assert "let this user write to it" in in_a_child(work, user=user)
    finally:
        place.chmod(0o700)
        shutil.rmtree(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_file_is_not_believed(path: Path) -> None:
    with ledger(path) as book:
        book.open_sandbox("s", spec())
    os.chown(path, 12345, 12345)
    with pytest.raises(LedgerError, match="another user"):
        ledger(path).total()


def test_where_the_file_lies_on_a_network_there_is_no_write_ahead_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger(path) as book:
        book.open_sandbox("s", spec())
        assert path.with_name(path.name + "-wal").exists()
    kind = next(
        line.split(" - ")[1].split()[0]
        for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines())
        if str(path).startswith(line.split()[4])
    )
    monkeypatch.setattr(file, "_NETWORKED", (kind,))  # as if others could use it
    with ledger(path) as book:
        book.checkpoint("s", 2, 6)
        assert not path.with_name(path.name + "-wal").exists()
        assert book.total().cost_micros == micros(dollars(2, 6, 1, 2048))


MANY = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) INSERT INTO sandboxes
    (id, key, owner, prices, vcpu, memory, opened, seen, tick, cpu, wall, picos, state, ended)
    SELECT 's' || i, 'k', 1, 1, 1000000, 2048, 0, 0, 0, 2000000, 6000000, 38888888, 2, 0 FROM n;
INSERT INTO labels SELECT number, 'run', number % 1000 FROM sandboxes WHERE key = 'k';
INSERT INTO spent (sandbox, day, first, cpu, memory, picos)
    SELECT number, number % 30, 1, 2000000, 12288000, 38888888 FROM sandboxes WHERE key = 'k';
INSERT INTO daily (key, day, first, cpu, memory, picos, storage)
    SELECT 'k', day, COUNT(*), SUM(cpu), SUM(memory), SUM(picos), 0 FROM spent GROUP BY day;
"""

ASKER = """
import resource, sys
from proctor.meter.ledger import Ledger
book = Ledger(sys.argv[1])
book.total()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for kind in ("sandbox", "label", "day", "key"):
    print(len(book.totals(kind, top=50)))
print(book.totals("label", label=("run", "7"))[0].cost_micros, book.total().cost_micros)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_many_sandboxes_are_added_in_little_memory(path: Path) -> None:
    with Ledger(path) as book:
        book.open_sandbox("first", spec())
        book.close_sandbox("first", 0, 0)
    with sqlite3.connect(path) as database:
        database.executescript(MANY)
    database.close()
    done = subprocess.run([sys.executable, "-c", ASKER, str(path)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    *counts, label, total, mebibytes = map(int, done.stdout.split())
    assert counts == [50, 50, 31, 2]
    assert (label, total) == (11_666, 11_666_666)
    assert mebibytes < 32
