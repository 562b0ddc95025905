"""What goes in and comes out is bytes, whole and in order."""

from __future__ import annotations

from typing import Any

from proctor.core.limits import MIB
from proctor.doctor.conformance.check import LIMITS, Check, Judge, both, each, shows, words
from proctor.engine.job import Case

GROUP = "streams"
EVERY_BYTE = bytes(range(256)) * 3
LARGE = bytes(range(251)) * (MIB // 251)


def _check(key: str, title: str, program: str, judge: Judge, **more: Any) -> Check:
    return Check(key=key, group=GROUP, title=title, program=program, judge=judge, **more)


_COPY = """
import sys
data = sys.stdin.buffer.read()
sys.stdout.buffer.write(data)
sys.stderr.buffer.write(data[::-1])
"""

STREAMS: tuple[Check, ...] = (
    _check(
        "every_byte",
        "every byte comes through as it is, NUL and what is no UTF-8 among them, on all three streams",
        _COPY,
        both(
            shows(EVERY_BYTE, b"\xff\xfe\0\r\n\r", b"", stderr=None),
            each(lambda o: o.stderr, EVERY_BYTE[::-1], b"\r\n\r\0\xfe\xff", b""),
        ),
        cases=(Case(EVERY_BYTE), Case(b"\xff\xfe\0\r\n\r"), Case(b"")),
    ),
    _check(
        "megabyte",
        "a megabyte in, a megabyte out on both streams, with nobody who reads meanwhile",
        _COPY,
        both(shows(LARGE, stderr=None), each(lambda o: o.stderr == LARGE[::-1], True)),
        cases=(Case(LARGE),),
        limits=LIMITS.with_(stderr_keep=2 * MIB),
    ),
    _check(
        "text",
        "text is UTF-8 both ways; what is none survives the way through `input` and `print`",
        "import sys\ntext = input()\nprint(ascii(text), sys.stdout.encoding)\nprint(text)\n",
        shows(
            b"'\\xe4\\u20ac\\U0001f600' utf-8\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\n",
            b"'\\udcff\\udcfe' utf-8\n\xff\xfe\n",
        ),
        cases=(Case("\u00e4\u20ac\U0001f600\n".encode()), Case(b"\xff\xfe\n")),
    ),
    _check(
        "order",
        "writers of one stream keep their order: buffers, descriptors, children; stderr on stdout as well",
        """
        import os, subprocess, sys
        print("a", flush=True)
        os.write(1, b"b\\n")
        subprocess.run(["echo", "c"])
        if os.fork() == 0:
            os.write(1, b"d\\n")
            os._exit(0)
        os.wait()
        os.dup2(1, 2)
        os.write(2, b"e\\n")
        subprocess.run("echo f >&2", shell=True)
        sys.stdout.write("g")
        """,
        shows("a\nb\nc\nd\ne\nf\ng"),
    ),
    _check(
        "closed",
        "a stdout that was closed or is full: status 120 where something was still to be written, else none",
        """
        import os, sys
        what = sys.argv[1]
        if what == "lost": print("lost")
        if what == "full": os.dup2(os.open("/dev/full", os.O_WRONLY), 1); print("lost")
        else: os.close(1)
        """,
        shows("", exit_code=(0, 120, 120), stderr=None),
        cases=words("nothing", "lost", "full"),
    ),
    _check(
        "all_closed",
        "a program that closes all of its streams goes on and ends in its own way",
        "import os, time\nos.write(1, b'out')\nfor fd in range(3): os.close(fd)\ntime.sleep(0.05)\nos._exit(9)\n",
        shows("out", exit_code=9),
    ),
    _check(
        "input_read",
        "how much of its input a program has read is known",
        "import os, sys\nprint(len(os.read(0, int(sys.argv[1]))))\n",
        both(shows("1\n", "500\n", "1000\n"), each(lambda o: o.stdin_read, 1, 500, 1000)),
        cases=words("1", "500", "5000", text=b"x" * 1000),
    ),
)
