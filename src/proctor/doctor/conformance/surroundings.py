"""No network, clocks that tell the truth, and the same each time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from proctor.core.outcome import Outcome
from proctor.doctor.conformance.check import Check, Judge, Runs, between, both, of_probe, says, shows
from proctor.doctor.probe import how_it_ended
from proctor.doctor.text import printable
from proctor.engine.job import Case

NETWORK, CLOCKS, SAMENESS = "network", "clocks", "determinism"
CLOCK_SLACK_S = 300.0  # a program that waits for its turn on a busy host, and a host whose clock is set meanwhile


def _check(group: str, key: str, title: str, program: str, judge: Judge, **more: Any) -> Check:
    return Check(key=key, group=group, title=title, program=program, judge=judge, **more)


def _now(outcomes: Sequence[Outcome]) -> str:
    """The program printed this host's time."""
    for outcome in outcomes:
        try:
            seen = float(outcome.stdout) if outcome.ok and len(outcome.stdout) < 40 else None
        except ValueError:
            seen = None
        if seen is None:
            return f"{how_it_ended(outcome)}, it printed '{printable(outcome.stdout[:60])}'"
        if not abs(seen - time.time()) < CLOCK_SLACK_S:
            return f"its clock is {seen - time.time():.0f} s from the host's"
    return "" if outcomes else "nothing was run"


_SERVER = """
import os, socket
server = socket.socket(socket.AF_UNIX)
server.bind("{name}")
server.listen()
if os.fork() == 0:
    box = socket.socket(socket.AF_UNIX)
    box.connect("{name}")
    box.sendall(b"hello")
    os._exit(0)
print(server.accept()[0].recv(10), os.wait()[1])
"""

SURROUNDINGS: tuple[Check, ...] = (
    of_probe("network", NETWORK),
    of_probe("unix_sockets", NETWORK),
    _check(
        NETWORK,
        "addresses",
        "no address of the world, of a private network or of a cloud's metadata is reached, and each fails at once",
        """
        import socket, time
        start = time.monotonic()
        for family, address in (
            (socket.AF_INET, "192.0.2.1"), (socket.AF_INET, "10.0.0.1"), (socket.AF_INET, "169.254.169.254"),
            (socket.AF_INET, "255.255.255.255"), (socket.AF_INET, "224.0.0.1"),
            (socket.AF_INET6, "2001:db8::1"), (socket.AF_INET6, "fe80::1"), (socket.AF_INET6, "::ffff:192.0.2.1"),
        ):
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                try:
                    box = socket.socket(family, kind)
                    box.settimeout(8)
                    box.connect((address, 53))
                    box.send(b"x")
                    print("reached", address, kind)
                except TimeoutError:
                    print("waited", address, kind)
                except OSError:
                    pass
        print(time.monotonic() - start < 8)
        """,
        shows("True\n"),
    ),
    _check(
        NETWORK,
        "names",
        "no name is found, and that is known at once",
        """
        import socket, time
        start = time.monotonic()
        for name in ("example.com", "proctor.invalid", "metadata.google.internal"):
            try:
                print(socket.getaddrinfo(name, 80))
            except OSError:
                print("none")
        print(time.monotonic() - start < 8)
        """,
        shows("none\n" * 3 + "True\n"),
    ),
    _check(
        NETWORK,
        "socket_pairs",
        "connected pairs of sockets work between a program's own processes",
        """
        import os, socket
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            theirs.sendall(theirs.recv(10)[::-1])
            os._exit(0)
        ours.sendall(b"abc")
        print(ours.recv(10), os.wait()[1])
        """,
        shows("b'cba' 0\n"),
    ),
    _check(
        NETWORK,
        "own_unix_sockets",
        "sockets with a path work between a program's own processes",
        _SERVER.format(name="named"),
        shows("b'hello' 0\n"),
    ),
    _check(
        NETWORK,
        "own_abstract_sockets",
        "so do those with an abstract name",
        _SERVER.format(name="\\0abstract"),
        shows("b'hello' 0\n"),
    ),
    _check(
        NETWORK,
        "own_loopback",
        "there is no loopback, not even between a program's own processes",
        """
        import socket
        try:
            server = socket.socket()
            server.bind(("127.0.0.1", 0))
            server.listen()
            box = socket.create_connection(server.getsockname(), timeout=2)
            print("connected")
        except OSError:
            print("none")
        """,
        shows("none\n"),
    ),
    _check(
        CLOCKS,
        "monotonic",
        "the monotonic clock goes on and never back, finely enough; sleep lasts as long as it was asked to",
        """
        import time
        last, finest = time.monotonic_ns(), 1 << 60
        for _ in range(5000):
            now = time.monotonic_ns()
            if now < last: print("back", last, now)
            if now > last: finest = min(finest, now - last)
            last = now
        print(finest < 1_000_000)
        start = time.monotonic()
        time.sleep(0.1)
        print(0.1 <= time.monotonic() - start < 20)
        """,
        both(shows("True\nTrue\n"), between("wall seconds", lambda o: o.wall_s, 0.1, 29)),
    ),
    _check(
        CLOCKS,
        "time_of_day",
        "the time of day is the host's",
        "import time\nprint(repr(time.time()))\n",
        _now,
        runs=Runs.DIFFERENT,
    ),
    _check(
        CLOCKS,
        "time_zone",
        "the time zone is UTC",
        "import datetime, time\nprint(time.tzname, time.timezone, time.localtime(0)[:5], datetime.datetime.fromtimestamp(86400))\n",
        shows("('UTC', 'UTC') 0 (1970, 1, 1, 0, 0) 1970-01-02 00:00:00\n"),
    ),
    _check(
        CLOCKS,
        "cpu_clocks",
        "CPU clocks count what is computed, in children as well, and no sleep; the outcome says the same",
        """
        import os, time
        start = time.process_time()
        while time.process_time() - start < 0.2: pass
        busy = time.process_time()
        time.sleep(0.3)
        print(0.2 <= busy < 1, time.process_time() - busy < 0.2, time.thread_time() > 0.1)
        if os.fork() == 0:
            while time.process_time() < 0.2: pass
            os._exit(0)
        os.wait()
        print(0.1 <= os.times().children_user + os.times().children_system < 1)
        """,
        both(shows("True True True\nTrue\n"), between("CPU seconds", lambda o: o.cpu_s, 0.1, 2.0)),
    ),
    _check(
        SAMENESS,
        "hash_seed",
        "hashes of text, and the order of sets, are the same in every run and in children",
        """
        import subprocess, sys
        text = "print(hash('proctor'), list({'a', 'b', 'c', 'd', 'e'}), hash(b'x'), hash(3.5), hash((1, 'y')))"
        exec(text, {})
        sys.stdout.flush()
        subprocess.run([sys.executable, "-c", text])
        print(hash("proctor") == int(subprocess.check_output([sys.executable, "-c", "print(hash('proctor'))"])))
        """,
        says,
    ),
    _check(
        SAMENESS,
        "random_state",
        "`random` that was not seeded gives the same in every warm run",
        "import random\nprint(random.random(), random.sample(range(1000), 5))\n",
        says,
        warm=True,
    ),
    _check(
        SAMENESS,
        "random_seeded",
        "`random` that was seeded gives what that seed stands for",
        "import random\nrandom.seed(7)\nprint(random.random(), random.randrange(10 ** 9), random.Random('x').getrandbits(32))\n",
        shows("0.32383276483316237 161973069 2709212627\n"),
    ),
    _check(
        SAMENESS,
        "entropy",
        "what the kernel gives as random is another in every run",
        "import os, secrets, uuid\nprint(os.urandom(16).hex(), secrets.token_hex(8), uuid.uuid4())\n",
        says,
        runs=Runs.DIFFERENT,
    ),
    _check(
        SAMENESS,
        "layout",
        "addresses are the same in every warm run on a slot, so what depends on them is too",
        """
        class Thing: pass
        things = [Thing() for _ in range(50)]
        print([hash(thing) for thing in things[:3]], [things.index(thing) for thing in set(things)][:9], id(len), id([]))
        """,
        says,
        warm=True,
    ),
    _check(
        SAMENESS,
        "first_and_last",
        "what a program finds is the same in a slot's first job and after all other checks",
        """
        import gc, os, resource, sys, threading
        tmp = os.environ.get("TMPDIR", "/tmp")
        print(sorted(os.listdir(".")), sorted(os.listdir(tmp)), sorted(os.environ.items()), os.getuid(), os.getgid(), os.getgroups())
        print(sorted(sys.modules), len(gc.get_objects()), threading.active_count(), [os.dup(0) for _ in range(2)])
        print([resource.getrlimit(n) for n in range(16)], os.nice(0), os.sched_getaffinity(0), os.umask(0), os.getcwd())
        space = os.statvfs("." if os.getcwd() == "/workspace" else "/dev/null")  # the host's file system says nothing
        print(space.f_blocks, space.f_bfree, space.f_files, space.f_ffree, resource.getrusage(resource.RUSAGE_CHILDREN).ru_nswap)
        info = os.stat(".")
        print(oct(info.st_mode), info.st_uid, info.st_gid, info.st_nlink, oct(os.stat(tmp).st_mode))
        """,
        says,
        warm=True,
        lasting=True,
        cases=(Case(), Case()),
    ),
)
