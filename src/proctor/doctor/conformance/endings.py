"""Signals are a program's own, its end is told as it was, and nothing of it stays."""

from __future__ import annotations

import signal
from typing import Any

from proctor.doctor.conformance.check import LIMITS, Check, Judge, Runs, between, both, each, of_probe, shows, words
from proctor.engine.job import Case

SIGNALS, CLEANUP = "signals", "cleanup"
ENDING = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV, signal.SIGUSR1, signal.SIGFPE)


def _check(key: str, title: str, program: str, judge: Judge, **more: Any) -> Check:
    return Check(key=key, group=SIGNALS, title=title, program=program, judge=judge, **more)


def _clean(key: str, title: str, program: str, judge: Judge, **more: Any) -> Check:
    return Check(key=key, group=CLEANUP, title=title, program=program, judge=judge, **more)


_SLEEPS = "time.sleep(600)"

ENDINGS: tuple[Check, ...] = (
    _check(
        "dispositions",
        "signals are as in a fresh interpreter: SIGPIPE and SIGXFSZ ignored, SIGINT Python's, all others default, none blocked",
        """
        import signal
        odd = {signal.Signals(n).name: str(signal.getsignal(n)) for n in signal.valid_signals() if n < 32 and signal.getsignal(n) != signal.SIG_DFL}
        print(sorted(odd), signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.pthread_sigmask(signal.SIG_BLOCK, []))
        """,
        shows("['SIGINT', 'SIGPIPE', 'SIGXFSZ'] True set()\n"),
    ),
    _check(
        "dispositions_of_children",
        "a program that is started has the defaults: SIGPIPE, SIGINT and SIGTERM end it",
        "import subprocess\nprint([subprocess.run(f'kill -{name} $$', shell=True).returncode for name in ('PIPE', 'INT', 'TERM', 'USR1')])\n",
        shows("[-13, -2, -15, -10]\n"),
    ),
    _check(
        "ended_by_signal",
        "a program that a signal ends: that signal is told, by its number, with what was written before",
        "import os, signal, sys\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\nprint('out', flush=True)\nos.kill(os.getpid(), int(sys.argv[1]))\n",
        shows("out\n", signals=ENDING),
        cases=words(*(str(int(number)) for number in ENDING)),
    ),
    _check(
        "crashes",
        "a crash in C ends by SIGSEGV, `abort` by SIGABRT; no core file is left",
        "import ctypes, os, sys\nprint('out', flush=True)\nctypes.string_at(0) if sys.argv[1] == 'crash' else os.abort()\n",
        shows("out\n", signals=(signal.SIGSEGV, signal.SIGABRT)),
        cases=words("crash", "abort"),
    ),
    _check(
        "interrupt",
        "SIGINT raises KeyboardInterrupt; where nobody catches it the program ends by that signal",
        """
        import os, signal
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        except KeyboardInterrupt:
            print("caught", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
        """,
        shows("caught\n", signals=(signal.SIGINT,), stderr=r"^Traceback .*KeyboardInterrupt\n$"),
    ),
    _check(
        "handlers",
        "handlers, alarms, blocked and pending signals, and waiting for one",
        """
        import os, signal, time
        got = []
        signal.signal(signal.SIGUSR1, lambda number, frame: got.append(number))
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
        print(got, signal.sigpending())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        print(got)
        signal.signal(signal.SIGALRM, lambda number, frame: got.append(number))
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        time.sleep(0.2)
        print(got)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        print(signal.sigtimedwait([signal.SIGALRM], 20).si_signo)
        kid = os.fork()
        if kid == 0:
            signal.signal(signal.SIGTERM, lambda number, frame: os._exit(3))
            os.kill(os.getppid(), signal.SIGUSR1)
            while True: signal.pause()
        while len(got) < 3: time.sleep(0.01)
        os.kill(kid, signal.SIGTERM)
        print(got, os.waitpid(kid, 0)[1] >> 8)
        """,
        shows("[] {<Signals.SIGUSR1: 10>}\n[10]\n[10, 14]\n14\n[10, 14, 10] 3\n"),
    ),
    _check(
        "children_told",
        "a handler of SIGCHLD is called",
        """
        import os, signal, time
        got = []
        signal.signal(signal.SIGCHLD, lambda number, frame: got.append(number))
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        end = time.monotonic() + 1
        while not got and time.monotonic() < end: time.sleep(0.01)
        print(got)
        """,
        shows("[17]\n"),
    ),
    _check(
        "broken_pipe",
        "writing where nobody reads raises BrokenPipeError and ends nobody",
        "import os\nread, write = os.pipe()\nos.close(read)\ntry:\n    os.write(write, b'x')\nexcept BrokenPipeError as error:\n    print(error.errno)\n",
        shows("32\n"),
    ),
    of_probe("signals", SIGNALS),
    _clean(
        "left_child",
        "a child that sleeps with the streams open does not hold up the end, and is counted",
        f"import os, time\nif os.fork() == 0:\n    {_SLEEPS}\nprint('done')\n",
        both(shows("done\n"), each(lambda o: o.left_processes, 1), between("wall seconds", lambda o: o.wall_s, 0, 25)),
        cases=(Case(), Case()),
    ),
    _clean(
        "daemon",
        "a process that forked twice, in a session of its own and deaf to signals, is ended too",
        f"""
        import os, signal, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                for number in (1, 2, 3, 10, 12, 15): signal.signal(number, signal.SIG_IGN)
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
                for fd in range(3): os.close(fd)
                {_SLEEPS}
            os._exit(0)
        os.wait()
        print("done")
        """,
        both(shows("done\n"), each(lambda o: o.left_processes, 1)),
        cases=(Case(), Case()),
    ),
    _clean(
        "stopped_child",
        "so is one that is stopped, and one that never stops writing",
        """
        import os, signal
        kids = [os.fork() for _ in range(1)]
        if kids[0] == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        os.waitpid(kids[0], os.WUNTRACED)
        if os.fork() == 0:
            while True: os.write(2, b"")
        print("done")
        """,
        both(shows("done\n"), each(lambda o: o.left_processes, 2)),
        cases=(Case(), Case()),
    ),
    _clean(
        "zombies",
        "children that nobody waited for take no place in the next case",
        "import os\nfor _ in range(15):\n    if os.fork() == 0: os._exit(0)\nprint('done')\n",
        shows("done\n"),
        cases=(Case(),) * 4,
        limits=LIMITS.with_(processes=20),
        runs=Runs.FREE,  # of those that have ended, one may still be on its way out
    ),
    _clean(
        "thread_left",
        "a daemon thread that never ends does not hold up the end",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\nprint('done')\n",
        both(shows("done\n"), between("wall seconds", lambda o: o.wall_s, 0, 25)),
    ),
    _clean(
        "memory_given_back",
        "memory that a case and what it left behind held is free in the next",
        f"""
        import os, time
        held = bytearray(b"x") * (30 << 20)
        read, write = os.pipe()
        if os.fork() == 0:
            more = bytearray(b"x") * (30 << 20)
            os.write(write, b"x")
            {_SLEEPS}
        os.read(read, 1)
        print("done")
        """,
        shows("done\n"),
        cases=(Case(),) * 4,
    ),
    of_probe("leftovers", CLEANUP),
    of_probe("ipc", CLEANUP),
)
