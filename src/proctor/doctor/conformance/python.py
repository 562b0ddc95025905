"""A program is run as ``python3 solution.py`` would run it, warm or not."""

from __future__ import annotations

from typing import Any

from proctor.doctor.conformance.check import SOURCE, Check, Judge, both, each, says, shows, words
from proctor.engine.job import Case

GROUP = "python"


def _check(key: str, title: str, program: str, judge: Judge, **more: Any) -> Check:
    return Check(key=key, group=GROUP, title=title, program=program, judge=judge, **more)


_LINES = "1 2\n\u00e4\nlast"

PYTHON: tuple[Check, ...] = (
    _check(
        "main",
        "`__main__`, `__file__`, `sys.argv` and `sys.path` are those of a script",
        """
        import os, sys
        print(__name__, os.path.basename(__file__), os.path.isabs(__file__), sys.argv)
        print(sys.path[0] == os.getcwd() == os.path.dirname(__file__), sys.modules["__main__"].__dict__ is globals())
        print(__spec__, __doc__, __builtins__.__name__, os.path.basename(sys.executable)[:6])
        """,
        shows(
            "__main__ solution.py True ['solution.py', 'a b', '', '--c=\u00e4']\nTrue True\nNone None builtins python\n"
        ),
        cases=(Case(argv=("python3", SOURCE, "a b", "", "--c=\u00e4")),),
    ),
    _check(
        "exit_statuses",
        "`sys.exit` of every kind gives the status that it stands for",
        "import sys\nprint('out')\nsys.exit(eval(sys.argv[1]))\n",
        both(
            shows("out\n", exit_code=(0, 3, 0, 0, 255, 1, 1), stderr=None),
            each(lambda o: o.stderr, b"", b"", b"", b"", b"", b"", b"text\n"),
        ),
        cases=words("0", "3", "256", "None", "-1", "True", "'text'"),
    ),
    _check(
        "exit_at_once",
        "`os._exit` leaves at once: what was not flushed is lost, no exit function runs",
        "import atexit, os\natexit.register(print, 'no')\nprint('seen', flush=True)\nprint('lost')\nos._exit(7)\n",
        shows("seen\n", exit_code=7),
    ),
    _check(
        "exit_functions",
        "exit functions run last to first, after an exception as well",
        "import atexit\natexit.register(print, 'first')\natexit.register(print, 'second')\nprint('body')\nraise ValueError('odd')\n",
        shows("body\nsecond\nfirst\n", exit_code=1, stderr=r"^Traceback .*ValueError: odd\n$"),
    ),
    _check(
        "exception",
        "an exception that nobody catches: its whole traceback on stderr, status 1",
        """
        def inner(n):
            return 1 // n
        print("kept")
        try:
            inner(0)
        except ZeroDivisionError:
            raise KeyError("outer")
        """,
        shows(
            "kept\n",
            exit_code=1,
            stderr=r'^Traceback .*solution\.py", line 6, in <module>.*line 3, in inner.*\nZeroDivisionError: .*'
            r"During handling .*\nKeyError: 'outer'\n$",
        ),
    ),
    _check(
        "syntax_error",
        "a source that does not compile runs not at all: SyntaxError, status 1",
        "print('never')\nx = = 2\n",
        shows("", exit_code=1, stderr=r'solution\.py", line 2\n.*SyntaxError: .*\n$'),
    ),
    _check(
        "recursion",
        "the recursion limit is 1000; with a higher one a thread with a large stack goes 30,000 deep",
        """
        import sys, threading
        def endless(n):
            return endless(n + 1)
        try:
            endless(0)
        except RecursionError:
            print(sys.getrecursionlimit())
        def depth(n):
            return n and 1 + depth(n - 1)
        sys.setrecursionlimit(40_000)
        threading.stack_size(32 << 20)
        thread = threading.Thread(target=lambda: print(depth(30_000)))
        thread.start()
        thread.join()
        """,
        shows("1000\n30000\n"),
    ),
    _check(
        "stdin_forms",
        "standard input is the same through `input`, `sys.stdin`, its buffer, descriptor 0 and `open(0)`",
        """
        import os, sys
        FORMS = {
            "input": lambda: [input(), input(), input()],
            "readline": lambda: [sys.stdin.readline() for _ in range(4)],
            "lines": lambda: list(sys.stdin),
            "read": lambda: sys.stdin.read(),
            "buffer": lambda: sys.stdin.buffer.read(),
            "mixed": lambda: [input(), sys.stdin.readline(), sys.stdin.read()],
            "descriptor": lambda: os.read(0, 4) + os.read(0, 100) + os.read(0, 100),
            "open": lambda: open(0, "rb").read(),
        }
        print(FORMS[sys.argv[1]]())
        """,
        shows(
            "['1 2', '\u00e4', 'last']\n",
            "['1 2\\n', '\u00e4\\n', 'last', '']\n",
            "['1 2\\n', '\u00e4\\n', 'last']\n",
            _LINES + "\n",
            f"{_LINES.encode()!r}\n",
            "['1 2', '\u00e4\\n', 'last']\n",
            f"{_LINES.encode()!r}\n",
            f"{_LINES.encode()!r}\n",
        ),
        cases=words(
            "input", "readline", "lines", "read", "buffer", "mixed", "descriptor", "open", text=_LINES.encode()
        ),
    ),
    _check(
        "stdin_path",
        "standard input can be opened as /dev/stdin",
        "print(open('/dev/stdin').read().split())\n",
        shows("['3', '4']\n"),
        cases=(Case(b"3 4\n"),),
    ),
    _check(
        "stdin_end",
        "at the end of the input: EOFError from `input`, nothing from the others; nobody waits",
        "import sys\nprint(repr(sys.stdin.read()), repr(sys.stdin.readline()), sys.stdin.isatty())\ninput()\n",
        shows("'' '' False\n", exit_code=1, stderr=r"EOFError: EOF when reading a line\n$"),
    ),
    _check(
        "threads",
        "threads run, are waited for at the end, and an exception in one ends that one alone",
        """
        import sys, threading, time
        count, lock = 0, threading.Lock()
        def add():
            global count
            for _ in range(500):
                with lock:
                    count += 1
        crew = [threading.Thread(target=add) for _ in range(8)]
        for thread in crew: thread.start()
        for thread in crew: thread.join()
        print(count)
        odd = threading.Thread(target=lambda: 1 // 0)
        odd.start()
        odd.join()
        def late():
            time.sleep(0.05)
            print("late")
        threading.Thread(target=late).start()
        print("end")
        """,
        shows("4000\nend\nlate\n", stderr=r"^Exception in thread .*ZeroDivisionError: .*\n$"),
    ),
    _check(
        "child_interpreter",
        "`sys.executable` starts an interpreter with input, output, status and variables of its own",
        """
        import os, subprocess, sys
        text = "import os, sys; print(sys.stdin.read()[::-1], sys.argv[1:], os.environ['X']); print('e', file=sys.stderr); sys.exit(5)"
        done = subprocess.run([sys.executable, "-c", text, "x"], input="abc", capture_output=True, text=True, env={**os.environ, "X": "1"})
        print(done.returncode, done.stdout, done.stderr, os.environ.get("X"))
        """,
        shows("5 cba ['x'] 1\n e\n None\n"),
    ),
    _check(
        "shell",
        "a shell runs, with pipes, and its status comes back",
        "import subprocess\nprint(subprocess.run('echo a b | { read x y; echo $y$x; }; exit 3', shell=True, capture_output=True).stdout)\n"
        "print(subprocess.run('kill -9 $$', shell=True).returncode, subprocess.call(['true']))\n",
        shows("b'ba\\n'\n-9 0\n"),
    ),
    _check(
        "fork",
        "forks share pipes, and are waited for with their statuses",
        """
        import os
        read, write = os.pipe()
        for number in range(5):
            if os.fork() == 0:
                os.close(read)
                os.write(write, bytes([65 + number]))
                os._exit(number)
        os.close(write)
        text = b""
        while piece := os.read(read, 100):
            text += piece
        print(sorted(text), sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(5)))
        try:
            os.wait()
        except ChildProcessError:
            print("none left")
        """,
        shows("[65, 66, 67, 68, 69] [0, 1, 2, 3, 4]\nnone left\n"),
    ),
    _check(
        "multiprocessing",
        "`multiprocessing.Process` and `Pipe`",
        """
        import multiprocessing as mp
        def work(end, n):
            end.send({"square": n * n})
        if __name__ == "__main__":
            mp.set_start_method("fork")
            ours, theirs = mp.Pipe()
            crew = [mp.Process(target=work, args=(theirs, n)) for n in range(3)]
            for one in crew: one.start()
            print(sorted(ours.recv()["square"] for _ in crew))
            for one in crew: one.join()
            print([one.exitcode for one in crew])
        """,
        shows("[0, 1, 4]\n[0, 0, 0]\n"),
    ),
    _check(
        "multiprocessing_pool",
        "`multiprocessing.Pool`, `Queue` and `Lock`, which need shared memory",
        """
        import multiprocessing as mp
        def work(n):
            return n * n
        if __name__ == "__main__":
            mp.set_start_method("fork")
            with mp.Lock(), mp.Pool(2) as pool:
                print(pool.map(work, range(5)))
        """,
        shows("[0, 1, 4, 9, 16]\n"),
    ),
    _check(
        "asyncio",
        "`asyncio` with tasks, timeouts and a process",
        """
        import asyncio, sys
        async def main():
            async def slow(n):
                await asyncio.sleep(0.01 * n)
                return n
            print(await asyncio.gather(*(slow(n) for n in (3, 1, 2))))
            try:
                await asyncio.wait_for(asyncio.sleep(60), 0.01)
            except asyncio.TimeoutError:
                print("late")
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(input())", stdin=-1, stdout=-1)
            print(await child.communicate(b"hello\\n"), child.returncode)
        asyncio.run(main())
        """,
        shows("[3, 1, 2]\nlate\n(b'hello\\n', None) 0\n"),
    ),
    _check(
        "own_modules",
        "modules and packages beside the program are imported, also one with a library's name",
        """
        import os, random
        import helper, pack.inner
        print(helper.VALUE, pack.inner.VALUE, random.VALUE, os.path.dirname(helper.__file__) == os.getcwd())
        """,
        shows("1 2 3 True\n"),
        files={
            "helper.py": b"VALUE = 1\n",
            "pack/__init__.py": b"",
            "pack/inner.py": b"from helper import VALUE as V\nVALUE = V + 1\n",
            "random.py": b"VALUE = 3\n",
        },
    ),
    _check(
        "interpreter_state",
        "nothing of what a program finds in its interpreter depends on how it was started",
        """
        import decimal, gc, locale, sys, threading, warnings
        names = sorted(name for name in globals() if name.startswith("__"))
        print(names, sys.flags, gc.isenabled(), gc.get_threshold(), gc.get_debug(), sys.gettrace(), sys.getprofile())
        print(threading.active_count(), sys.getswitchinterval(), sys.getrecursionlimit(), sys.get_int_max_str_digits())
        print(warnings.filters, decimal.getcontext(), locale.getpreferredencoding(), sys.getfilesystemencoding())
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            print(stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.closed, stream.isatty())
        print(sys.path[1:], sys.prefix, sys.version, sys.dont_write_bytecode, len(sys.meta_path), len(sys.path_hooks))
        """,
        says,
    ),
    _check(
        "libraries",
        "libraries in C: ctypes, hashlib, zlib, decimal, mmap",
        """
        import ctypes, decimal, hashlib, mmap, os, zlib
        print(ctypes.CDLL(None).getpid() == os.getpid(), hashlib.sha256(b"x").hexdigest()[:8], zlib.decompress(zlib.compress(b"y" * 9)))
        decimal.getcontext().prec = 30
        print(decimal.Decimal(2).sqrt())
        shared = mmap.mmap(-1, 4096)
        if os.fork() == 0:
            shared[:5] = b"child"
            os._exit(0)
        os.wait()
        with open("mapped", "w+b") as file:
            file.truncate(4096)
            with mmap.mmap(file.fileno(), 4096) as view:
                view[10:14] = b"file"
            print(shared[:5], file.read()[10:14])
        """,
        shows("True 2d711642 b'yyyyyyyyy'\n1.41421356237309504880168872421\nb'child' b'file'\n"),
    ),
)
