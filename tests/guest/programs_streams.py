"""Programs that read standard input and write standard output in every way that solutions do."""

from __future__ import annotations

from programs_sample import Sample, sample

_LINES = "3\n1 2 3\nlast line"
_TRAITS = """
import os, stat, sys
for s in (sys.stdin, sys.stdout, sys.stderr):
    print(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.fileno(), s.newlines)
    print(s.seekable(), s.readable(), s.writable(), type(s), type(s.buffer), type(s.buffer.raw), s.buffer.raw.closefd)
    print(stat.S_ISREG(os.fstat(s.fileno()).st_mode), os.get_inheritable(s.fileno()))
print(sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
print(sys.stdin.tell(), sys.stderr.tell())
"""
_FAST_IO = """
import os, sys
from io import BytesIO, IOBase

class FastIO(IOBase):
    newlines = 0
    def __init__(self, file):
        self._fd = file.fileno()
        self.buffer = BytesIO()
        self.writable = "x" in file.mode or "r" not in file.mode
        self.write = self.buffer.write if self.writable else None
    def readline(self):
        while self.newlines == 0:
            b = os.read(self._fd, max(os.fstat(self._fd).st_size, 8192))
            self.newlines = b.count(b"\\n") + (not b)
            ptr = self.buffer.tell()
            self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
        self.newlines -= 1
        return self.buffer.readline()
    def flush(self):
        if self.writable:
            os.write(self._fd, self.buffer.getvalue())
            self.buffer.truncate(0), self.buffer.seek(0)

class IOWrapper(IOBase):
    def __init__(self, file):
        self.buffer = FastIO(file)
        self.flush = self.buffer.flush
        self.writable = self.buffer.writable
        self.write = lambda s: self.buffer.write(s.encode("ascii"))
        self.readline = lambda: self.buffer.readline().decode("ascii")

sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)
input = lambda: sys.stdin.readline().rstrip("\\r\\n")
n = int(input())
print(n, sum(map(int, input().split())))
"""

STREAMS: dict[str, Sample] = {
    # ------------------------------------------------------------ standard input
    "input_until_eof": sample(
        "while True:\n    try:\n        print(repr(input()))\n    except EOFError as e:\n        print(e)\n        break\n",
        _LINES,
    ),
    "input_at_eof": sample("print('before')\ninput()\n"),
    "input_prompt": sample("name = input('prompt> ')\nprint(name)\n", "x\n"),
    "stdin_read": sample("import sys\nprint(sys.stdin.read().split())\nprint(repr(sys.stdin.read()))\n", _LINES),
    "stdin_readline": sample("import sys\nr = sys.stdin.readline\nprint([r(), r(), r(), r()])\n", _LINES),
    "stdin_iteration": sample("import sys\nfor i, line in enumerate(sys.stdin):\n    print(i, line.strip())\n", _LINES),
    "stdin_next_then_read": sample("import sys\nprint(next(sys.stdin))\nprint(repr(sys.stdin.read()))\n", _LINES),
    "stdin_buffer": sample("import sys\nprint(sys.stdin.buffer.readline(), sys.stdin.buffer.read())\n", _LINES),
    "os_read": sample("import os\nprint(os.read(0, 4), os.read(0, 1 << 20), os.read(0, 9))\n", _LINES),
    "open_0": sample("print(open(0).read().split())\n", _LINES),
    "open_0_after_input": sample("a = input()\nprint(a, repr(open(0).read()))\n", _LINES),
    "open_dev_stdin": sample("print(open('/dev/stdin').read().split())\nprint(input())\n", _LINES),
    "open_proc_stdin": sample("print(open('/proc/self/fd/0').read().split())\n", _LINES),
    "input_then_buffer": sample(
        "import sys\na = input()\nprint(a, sys.stdin.buffer.read(), repr(sys.stdin.read()))\n", _LINES
    ),
    "stdin_seek": sample(
        "import sys\na = sys.stdin.read()\nsys.stdin.seek(0)\nprint(a == sys.stdin.read(), len(a))\n", _LINES
    ),
    "stdin_bad_utf8": sample("print(ascii(input()))\nprint(input())\n", b"ok \xff\xfe\n\xe4\n"),
    "stdin_crlf": sample(
        "import sys\nprint([input()], [sys.stdin.readline()], sys.stdin.newlines)\n", "a\r\nb\r\n\r\n"
    ),
    "stdin_wrapped": sample(
        "import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer, encoding='latin-1')\nprint(ascii(input()))\n",
        b"\xe4\n",
    ),
    "stdin_reconfigured": sample(
        "import sys\nsys.stdin.reconfigure(encoding='latin-1')\nprint(ascii(input()))\n", b"\xe4\n"
    ),
    "stdin_replaced": sample(
        "import io, sys\nsys.stdin = io.StringIO('own\\n')\nprint(input(), open(0).read())\n", _LINES
    ),
    "stdin_closed": sample("import sys\nsys.stdin.close()\nprint(sys.stdin.closed)\ninput()\n", _LINES),
    "stdin_fd_closed": sample("import os\nos.close(0)\ninput()\n", _LINES),
    "stdin_large": sample(
        "import sys\nprint(sum(map(int, sys.stdin.read().split())))\n", " ".join(map(str, range(150_000)))
    ),
    "fileinput": sample(
        "import fileinput\nfor line in fileinput.input():\n    print(fileinput.lineno(), line.rstrip())\n", _LINES
    ),
    "select_stdin": sample("import select, sys\nprint(len(select.select([sys.stdin], [], [], 5)[0]))\n", _LINES),
    "mmap_stdin": sample("import mmap\nprint(mmap.mmap(0, 0, access=mmap.ACCESS_READ)[:])\n", _LINES),
    "traits": sample(_TRAITS, _LINES),
    "fast_io": sample(_FAST_IO, _LINES),
    # ------------------------------------------------------------ standard output
    "write_no_newline": sample("import sys\nsys.stdout.write('no newline')\n"),
    "write_order": sample(
        "import os, sys\nprint('a')\nsys.stdout.buffer.write(b'b\\n')\nos.write(1, b'first\\n')\nprint('c', end='', flush=True)\n"
        "sys.stdout.buffer.write(b'd')\nsys.stdout.writelines(['e', 'f'])\nprint(1, 2, sep='-')\n"
    ),
    "open_1": sample("out = open(1, 'w')\nprint('kept until the end', file=out)\n"),
    "open_1_noclose": sample("out = open(1, 'w', closefd=False)\nout.write('kept')\nprint('plain')\n"),
    "open_1_in_function": sample(
        "def f():\n    global out\n    out = open(1, 'wb', closefd=False)\n    out.write(b'kept')\nf()\n"
    ),
    "print_bound_to_own_file": sample(
        "import builtins, functools, io\nout = io.TextIOWrapper(open(1, 'wb', closefd=False))\n"
        "print = functools.partial(print, file=out)\nprint('x')\n"
    ),
    "builtin_print_replaced": sample(
        "import builtins, functools\nbuiltins.print = functools.partial(print, file=open(1, 'w', closefd=False))\nprint('x')\n"
    ),
    "stdout_is_own_file": sample("import sys\nsys.stdout = open(1, 'w')\nprint('x')\n"),
    "stdout_is_stringio": sample("import io, sys\nprint('seen')\nsys.stdout = io.StringIO()\nprint('unseen')\n"),
    "stdout_is_none": sample("import sys\nprint('a')\nsys.stdout = None\nprint('b')\n"),
    "stdout_deleted": sample("import sys\nprint('a')\ndel sys.stdout\nprint('b')\n"),
    "stdout_without_flush": sample(
        "import sys\nclass O:\n    def write(self, s): pass\nsys.stdout = O()\nprint('b')\n"
    ),
    "stdout_flush_raises": sample(
        "import sys\nclass O:\n    def write(self, s): pass\n    def flush(self): raise RuntimeError('no')\nsys.stdout = O()\n"
    ),
    "stderr_flush_raises": sample(
        "import sys\nclass O:\n    def write(self, s): pass\n    def flush(self): raise RuntimeError('no')\nsys.stderr = O()\n"
    ),
    "stdout_closed": sample("import sys\nprint('a')\nsys.stdout.close()\n"),
    "stdout_closed_then_print": sample("import sys\nprint('a')\nsys.stdout.close()\nprint('b')\n"),
    "stdout_fd_closed": sample("import os\nprint('lost')\nos.close(1)\n"),
    "stdout_full": sample("import os\nprint('lost')\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"),
    "stdout_full_and_error": sample("import os\nprint('lost')\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n1 / 0\n"),
    "stdout_full_and_exit": sample(
        "import os, sys\nprint('lost')\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)\nsys.exit(3)\n"
    ),
    "stderr_fd_closed": sample("import os\nprint('a')\nos.close(2)\n1 / 0\n"),
    "stdout_reconfigured": sample(
        "import sys\nsys.stdout.reconfigure(encoding='utf-16-le', newline='\\r\\n', line_buffering=True, errors='replace')\n"
        "print('\\u00e4\\ud800')\n"
    ),
    "stdout_detached": sample(
        "import sys\nprint('a')\nsys.stdout.flush()\nraw = sys.stdout.detach()\nraw.write(b'b')\nraw.flush()\n"
    ),
    "surrogate": sample("print(ascii('\\udcff'))\nprint('a\\ud800b')\n"),
    "unicode": sample("print('h\\u00e9llo \\u4e16\\U0001f600')\n"),
    "stderr_one_file_with_stdout": sample(
        "import os, sys\nos.dup2(1, 2)\nprint('out')\nprint('err', file=sys.stderr)\nprint('out again')\nsys.exit('message')\n"
    ),
    "traceback_one_file_with_stdout": sample("import os\nos.dup2(1, 2)\nprint('out')\n1 / 0\n"),
    "stderr_300_kb": sample("import sys\nsys.stderr.write('e' * 300_000)\nprint(len('x'))\n"),
    "stdout_1_mb": sample("for i in range(20_000):\n    print('x' * 50)\n"),
    "redirected": sample(
        "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as s:\n    print('in')\nprint(repr(s.getvalue()))\n"
    ),
    "libc_stdout": sample("import ctypes\nctypes.CDLL(None).puts(b'by libc')\nprint('by python')\n"),
    "dev_stdout": sample("with open('/dev/stdout', 'w') as f:\n    f.write('by path')\n"),
    "pprint_and_logging": sample(
        "import logging, pprint\nlogging.warning('w %d', 1)\nlogging.basicConfig(format='%(name)s %(module)s %(funcName)s %(lineno)d')\n"
        "logging.getLogger('n').error('e')\npprint.pprint({'a': [1] * 40})\n"
    ),
}
