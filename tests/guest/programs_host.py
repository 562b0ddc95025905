"""Programs that start others, and that look at their process and its directory."""

from __future__ import annotations

from programs_sample import Sample, sample

_FORK = "import os, sys\nprint('before')\npid = os.fork()\n"
_WAIT = "os.waitpid(pid, 0)\nprint('parent')\n"
_SUB = "import subprocess, sys\n"
_MP = "import multiprocessing as mp\n"

HOST: dict[str, Sample] = {
    # ------------------------------------------------------------ forks
    "fork": sample(_FORK + "if pid == 0:\n    print('child')\nelse:\n    " + _WAIT.replace("\n", "\n    ") + "\n"),
    "fork_child_exits": sample("import atexit\natexit.register(print, 'atexit')\n" + _FORK + "if pid == 0:\n    sys.exit(3)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"),
    "fork_child_fails": sample(_FORK + "if pid == 0:\n    1 / 0\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"),
    "fork_child_os_exits": sample(_FORK + "if pid == 0:\n    os._exit(2)\n" + _WAIT),
    "fork_reads_stdin": sample("import os\nprint(input(), flush=True)\npid = os.fork()\nif pid == 0:\n    print('child', input(), flush=True)\n    os._exit(0)\nos.waitpid(pid, 0)\nprint('parent', input())\n", "a\nb\nc\n"),
    "fork_of_threads": sample("import os, threading, time\nthreading.Thread(target=time.sleep, args=(0.05,)).start()\npid = os.fork()\nif pid == 0:\n    print(threading.active_count())\nelse:\n    os.waitpid(pid, 0)\n"),
    "fork_random": sample("import os, random\nrandom.seed(1)\npid = os.fork()\nif pid == 0:\n    random.seed(1)\n    print(random.random())\nelse:\n    os.waitpid(pid, 0)\n    print(random.random())\n"),
    # ------------------------------------------------------------ commands
    "subprocess_executable": sample(_SUB + "print(subprocess.run([sys.executable, '-c', 'import sys; print(sys.argv, input()); sys.exit(4)'], input='x', capture_output=True, text=True))\n"),
    "subprocess_python3": sample(_SUB + "print(subprocess.check_output(['python3', '-c', 'import sys, os; print(sys.executable, os.getcwd(), sys.flags.hash_randomization)'], text=True))\n"),
    "subprocess_file": sample(_SUB + "print('a', flush=True)\nsubprocess.run([sys.executable, 'other.py', '1'])\nprint('b')\n", files={"other.py": "import sys\nprint(__name__, sys.argv, sys.path[0])\n"}),
    "subprocess_shell": sample(_SUB + "r = subprocess.run('cat; echo $0 $HOME; exit 3', shell=True, text=True, capture_output=True, input='in ')\nprint(r)\n"),
    "subprocess_inherits": sample(_SUB + "input()\nsys.stdin.flush()\nsubprocess.run(['cat'])\nsubprocess.run(['sh', '-c', 'echo err >&2'])\n", "a\nb\n"),
    "subprocess_missing": sample(_SUB + "subprocess.run(['no-such-command'])\n"),
    "os_system": sample("import os\nprint(os.system('exit 3'), os.popen('echo hi').read())\n"),
    "os_exec": sample("import os, sys\nprint('lost')\nprint('seen', flush=True)\nos.execv(sys.executable, ['python3', '-c', 'print(1); raise SystemExit(6)'])\n"),
    # ------------------------------------------------------------ multiprocessing
    "mp_fork": sample(_MP + "def f(x, q):\n    q.put(x * 2)\n    print('child', x)\nif __name__ == '__main__':\n    mp.set_start_method('fork')\n    q = mp.Queue()\n    p = mp.Process(target=f, args=(4, q))\n    p.start()\n    print(q.get())\n    p.join()\n    print(p.exitcode)\n"),
    "mp_pool": sample(_MP + "def f(x):\n    return x * x\nif __name__ == '__main__':\n    with mp.get_context('fork').Pool(2) as p:\n        print(p.map(f, range(5)))\n"),
    "mp_spawn": sample(_MP + "class C:\n    x = 3\ndef f(c):\n    print(__name__, c.x, flush=True)\nif __name__ == '__main__':\n    mp.set_start_method('spawn')\n    p = mp.Process(target=f, args=(C(),))\n    p.start()\n    p.join()\n    print(p.exitcode)\n"),
    # Without a guard each worker imports the program again: the interpreter refuses that, and it must not go on for ever.
    "mp_spawn_without_guard": sample(_MP + "mp.set_start_method('spawn', force=True)\np = mp.Process(target=print)\np.start()\np.join()\nprint(7)\n"),
    "mp_error": sample(_MP + "def f():\n    raise ValueError('in child')\nif __name__ == '__main__':\n    p = mp.get_context('fork').Process(target=f, name='P')\n    p.start()\n    p.join()\n    print(p.exitcode)\n"),
    "mp_left_running": sample(_MP + "import time\nif __name__ == '__main__':\n    p = mp.get_context('fork').Process(target=time.sleep, args=(30,), daemon=True)\n    p.start()\n    print('end')\n"),
    "process_pool": sample("from concurrent.futures import ProcessPoolExecutor as P\nimport multiprocessing as mp\ndef f(x):\n    return x + 1\nif __name__ == '__main__':\n    with P(2, mp_context=mp.get_context('fork')) as p:\n        print(list(p.map(f, range(4))))\n"),
    # ------------------------------------------------------------ the process and its directory
    "environment": sample("import os\nprint(dict(os.environ), os.environb[b'HOME'], os.path.expanduser('~'))\n"),
    "directory": sample("import os\nprint(os.getcwd(), os.listdir('.'), os.path.abspath('x'), os.path.exists(__file__))\n"),
    "umask": sample("import os\nprint(oct(os.umask(0)))\nos.close(os.open('f', os.O_CREAT | os.O_WRONLY, 0o666))\nprint(oct(os.stat('f').st_mode))\n"),
    "limits": sample("import resource as r\nprint([(n, r.getrlimit(getattr(r, n))) for n in sorted(dir(r)) if n.startswith('RLIMIT_')])\n", native=False),
    "stack_limit": sample("import resource as r\nprint(r.getrlimit(r.RLIMIT_STACK)[0])\n"),
    "scheduling": sample("import os\nprint(os.nice(0), os.sched_getscheduler(0), len(os.sched_getaffinity(0)) == os.cpu_count(), os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid())\n"),
    "identity": sample("import os, pwd\nprint(os.getuid() == os.geteuid(), os.getresuid(), os.getresgid(), os.getgroups(), pwd.getpwuid(os.getuid()).pw_name)\n", native=False),
    "capabilities": sample("print([l for l in open('/proc/self/status') if l.startswith(('Cap', 'NoNew', 'Seccomp'))])\n", native=False),
    "descriptors": sample("import os\nprint(sorted(os.listdir('/proc/self/fd'), key=int)[:-1], os.dup(0))\n"),
    "command_line": sample("print(open('/proc/self/cmdline').read().rstrip(chr(0)).split(chr(0)))\n"),
    "command_line_length": sample("print(len(open('/proc/self/cmdline').read()))\n"),
    "tempfile": sample("import os, tempfile\nwith tempfile.TemporaryDirectory() as d:\n    with open(os.path.join(d, 'x'), 'w') as f:\n        f.write('1')\n    print(os.listdir(d))\nprint(os.path.exists(d), tempfile.gettempdir())\nf = tempfile.NamedTemporaryFile()\n"),
    "files": sample("import pathlib, shutil\np = pathlib.Path('d/e')\np.mkdir(parents=True)\n(p / 'f').write_text('x')\nprint(sorted(map(str, pathlib.Path('.').rglob('*'))))\nshutil.rmtree('d')\nprint(open('missing'))\n"),
    "sockets": sample("import socket\na, b = socket.socketpair()\na.send(b'x')\nprint(b.recv(9), a.family)\n"),
    "terminal": sample("import os, shutil\nprint(shutil.get_terminal_size())\nos.get_terminal_size()\n"),
}  # fmt: skip
