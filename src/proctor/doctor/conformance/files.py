"""Each case has a fresh place for files in which ordinary things work, and nothing else to write to."""

from __future__ import annotations

from typing import Any

from proctor.doctor.conformance.check import Check, Judge, both, each, of_probe, shows
from proctor.engine.job import Case

GROUP = "files"


def _check(key: str, title: str, program: str, judge: Judge, **more: Any) -> Check:
    return Check(key=key, group=GROUP, title=title, program=program, judge=judge, **more)


_TMP = "tmp = os.environ.get('TMPDIR', '/tmp')\n"

FILES: tuple[Check, ...] = (
    _check(
        "workspace_path",
        "the working directory is /workspace, and HOME",
        "import os\nprint(os.getcwd(), os.environ['HOME'], os.path.expanduser('~'))\n",
        shows("/workspace /workspace /workspace\n"),
    ),
    _check(
        "fresh",
        "workspace and temporary directory hold the program's files alone, whatever the case before left there",
        "import os\n"
        + _TMP
        + """
print(sorted(os.listdir(".")), sorted(os.listdir("sub")), [n for n in os.listdir(tmp) if not os.path.samefile(tmp, ".")])
open("left", "w").write("x")
open(os.path.join(tmp, "left.txt"), "w").write("x")
os.makedirs("deep/" * 40)
os.mkdir("hidden", 0)
os.symlink("/", "link")
os.mkfifo("pipe")
os.open("held", os.O_CREAT | os.O_RDWR)
""",
        shows("['solution.py', 'sub'] ['data'] []\n"),
        cases=(Case(), Case(), Case()),
        files={"sub/data": b"1"},
    ),
    _check(
        "own_files",
        "the program's own files are as given in every case, whatever the case before did to them",
        """
        import os
        print(open("sub/data").read(), open("solution.py").read() == open(__file__).read(), oct(os.stat("sub/data").st_mode))
        os.unlink("sub/data")
        open("sub/data", "w").write("changed")
        os.rename("sub", "other")
        os.unlink("solution.py")
        """,
        shows("as given True 0o100444\n"),
        cases=(Case(), Case()),
        files={"sub/data": b"as given"},
    ),
    _check(
        "files_of_a_case",
        "a case's own files are beside the program's in that case alone, and those that were asked for come back",
        """
        import os
        print(sorted(os.listdir(".")))
        open("out.bin", "wb").write(bytes(range(256)))
        os.symlink("/etc/passwd", "link")
        os.mkfifo("pipe")
        """,
        both(
            shows("['input.txt', 'solution.py']\n", "['solution.py']\n"),
            each(lambda o: dict(o.files), {"out.bin": bytes(range(256))}, {}),
        ),
        cases=(Case(files={"input.txt": b"x"}, collect=("out.bin", "link", "pipe", "none")), Case()),
    ),
    _check(
        "temporary",
        "`tempfile` makes files and directories, and takes them away",
        """
        import os, tempfile
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w+") as file, tempfile.TemporaryFile() as other:
            file.write("x"); other.write(b"y")
            print(os.path.isdir(folder), os.path.exists(file.name), os.path.dirname(folder) == tempfile.gettempdir())
        print(os.path.exists(folder), os.path.exists(file.name))
        """,
        shows("True True True\nFalse False\n"),
    ),
    _check(
        "links_and_names",
        "symbolic and hard links, renames, pipes, long names and names that are no UTF-8",
        r"""
        import os
        open("a", "w").write("text")
        os.symlink("a", "s"); os.link("a", "h"); os.rename("h", "b")
        print(os.readlink("s"), open("s").read(), os.stat("a").st_nlink, os.path.realpath("s") == os.path.abspath("a"))
        for name in (b"\xff\n", b"n" * 255, "\u00e4".encode()):
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
        print(sorted(os.listdir(b"."))[-2:] == ["\u00e4".encode(), b"\xff\n"])
        file = open("gone", "w+"); os.unlink("gone"); file.write("still"); file.seek(0)
        print(file.read(), os.path.exists("gone"))
        os.mkfifo("pipe")
        if os.fork() == 0:
            open("pipe", "w").write("through")
            os._exit(0)
        print(open("pipe").read(), os.wait()[1])
        """,
        shows("a text 2 True\nTrue\nstill False\nthrough 0\n"),
    ),
    _check(
        "modes_and_times",
        "modes and times of its own files can be set by their path",
        """
        import os
        open("a", "w").close()
        os.chmod("a", 0o640); os.utime("a", (5, 7)); os.truncate("a", 3)
        info = os.stat("a")
        print(oct(info.st_mode), info.st_size, os.umask(0) == 0o022, info.st_uid == os.getuid())
        os.utime("a", (5, 7))
        print(os.stat("a").st_mtime)
        """,
        shows("0o100640 3 True True\n7.0\n"),
    ),
    _check(
        "locks",
        "locks of files hold between processes",
        """
        import fcntl, os
        mine = open("lock", "w")
        fcntl.lockf(mine, fcntl.LOCK_EX)
        whole = open("other", "w")
        fcntl.flock(whole, fcntl.LOCK_EX)
        if os.fork() == 0:
            for call, name in ((fcntl.lockf, "lock"), (fcntl.flock, "other")):
                try:
                    call(open(name, "w"), fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os._exit(1)
                except BlockingIOError:
                    pass
            os._exit(0)
        print(os.wait()[1])
        """,
        shows("0\n"),
    ),
    _check(
        "devices_there",
        "/dev/null, zero, full, random and urandom are as everywhere",
        """
        import os
        print(open("/dev/null", "rb").read(), open("/dev/zero", "rb").read(3), len(open("/dev/urandom", "rb").read(9)),
              len(open("/dev/random", "rb", 0).read(4)), open("/dev/null", "wb").write(b"xy"))
        try:
            os.write(os.open("/dev/full", os.O_WRONLY), b"x")
        except OSError as error:
            print(error.errno)
        """,
        shows(r"b'' b'\x00\x00\x00' 9 4 2" + "\n28\n"),
    ),
    _check(
        "proc_of_its_own",
        "/proc shows a program itself and its own processes",
        """
        import os
        print(os.readlink("/proc/self") == str(os.getpid()), open("/proc/self/cmdline", "rb").read().split(b"\\0")[1:2],
              os.readlink("/proc/self/cwd") == os.getcwd(), len([n for n in os.listdir("/proc") if n.isdigit()]) <= 2)
        """,
        shows("True [b'solution.py'] True True\n"),
    ),
    _check(
        "variables",
        "the environment is the documented one, and no more",
        """
        import os
        print({name: value for name, value in sorted(os.environ.items()) if name not in ("PATH", "HOME", "TMPDIR")})
        print(os.environ["HOME"] == os.getcwd(), "/usr/bin" in os.environ["PATH"].split(":"))
        """,
        shows(
            "{'LANG': 'C.UTF-8', 'MKL_NUM_THREADS': '1', 'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1', "
            "'PYTHONHASHSEED': '0', 'TZ': 'UTC'}\nTrue True\n"
        ),
    ),
    of_probe("environment", GROUP),
    of_probe("writes", GROUP),
    of_probe("host_files", GROUP),
)
