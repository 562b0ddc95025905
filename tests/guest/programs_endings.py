"""Programs that end in every way: statuses, uncaught exceptions, exit functions, signals, threads, destructors."""

from __future__ import annotations

from programs_sample import Sample, sample

_CODES = {
    "none": "None", "zero": "0", "three": "3", "minus_one": "-1", "256": "256", "text": "'text'", "object": "[1, 'x']",
    "tuple": "(1, 2)", "true": "True", "float": "3.5", "2_to_70": "2**70", "minus_2_to_70": "-(2**70)", "2_to_32": "2**32 + 5",
    "empty": "", "two": "1", "unicode": "'\\u00e4\\ud800'",
}  # fmt: skip
_ATEXIT = "import atexit, sys\natexit.register(print, 'first')\natexit.register(print, 'second')\n"
_THREAD = "import sys, threading, time\n"
_DEL = "class A:\n    def __init__(self, n): self.n = n\n    def __del__(self): print('deleted', self.n)\n"

ENDINGS: dict[str, Sample] = {
    # ------------------------------------------------------------ statuses
    **{f"exit_{name}": sample(f"import sys\nprint('out')\nsys.exit({code})\n") for name, code in _CODES.items()},
    "exit_builtin": sample("print('x')\nexit(4)\n"),
    "quit_builtin": sample("print('x')\nquit()\n"),
    "exit_closes_stdin": sample("import sys\ntry:\n    exit()\nexcept SystemExit:\n    print(sys.stdin.closed)\n"),
    "raise_system_exit": sample("raise SystemExit\n"),
    "system_exit_two_args": sample("raise SystemExit(1, 2)\n"),
    "system_exit_odd_code": sample("class E(SystemExit):\n    @property\n    def code(self): raise ValueError('no code')\nraise E(4)\n"),
    "system_exit_bad_str": sample("class T:\n    def __str__(self): raise ValueError('no text')\nraise SystemExit(T())\n"),
    "exit_in_finally": sample("import sys\ntry:\n    1 / 0\nfinally:\n    sys.exit(9)\n"),
    "exit_caught": sample("import sys\ntry:\n    sys.exit(2)\nexcept SystemExit as e:\n    print(e.code)\n"),
    "os_exit": sample("import os\nprint('lost')\nprint('seen', flush=True)\nos._exit(7)\n"),
    "os_abort": sample("import os\nprint('seen', flush=True)\nos.abort()\n"),
    "end_of_file": sample("print(1)"),
    # ------------------------------------------------------------ sources
    "source_empty": sample(""),
    "source_syntax_error": sample("print('a')\nx = = 2\n"),
    "source_indentation": sample("if True:\n    a = 1\n  b = 2\n"),
    "source_tabs": sample("if True:\n\tprint(1)\n        print(2)\n"),
    "source_unterminated": sample("print('a)\n"),
    "source_unclosed": sample("x = (1,\n     2\nprint(x)\n"),
    "source_deep": sample("x = " + "(" * 300 + ")" * 300 + "\n"),
    "source_null": sample("print('a')\n\0print('b')\n"),
    "source_bom": Sample(b"\xef\xbb\xbfprint('\xc3\xa4')\n"),
    "source_cookie": Sample(b"# -*- coding: latin-1 -*-\nprint('\xe4')\n"),
    "source_bad_cookie": Sample(b"# -*- coding: no-such -*-\nprint(1)\n"),
    "source_not_utf8": Sample(b"print('a')\nprint('\xe4')\n"),
    "source_crlf": Sample(b"print(1)\r\nif 1:\r\n    print('''a\r\nb''')\r\n"),
    "source_form_feed": Sample(b"\x0cprint(1)\n\x0c\nprint(2)"),
    "source_return": sample("print(1)\nreturn 2\n"),
    "source_break": sample("print(1)\nbreak\n"),
    "source_future_late": sample("print(1)\nfrom __future__ import annotations\n"),
    "source_warning": sample("x = 1\nprint(x is 1)\nprint('\\d')\n"),
    "source_large": sample("\n".join(f"x{i} = {i}" for i in range(4000)) + "\nprint(x3999)\n"),
    # ------------------------------------------------------------ uncaught exceptions
    "error_plain": sample("print('a')\nraise ValueError('bad', 2)\n"),
    "error_in_functions": sample("def f(n):\n    return g(n) + 1\n\ndef g(n):\n    return 1 // n\n\nprint(f(1))\nf(0)\n"),
    "error_chained": sample(
        "def f():\n    try:\n        {}['k']\n    except KeyError as e:\n        raise RuntimeError('outer') from e\n"
        "try:\n    f()\nexcept RuntimeError:\n    int('x')\n"
    ),
    "error_from_none": sample("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise OSError(2, 'gone', 'file') from None\n"),
    "error_group": sample("raise ExceptionGroup('many', [ValueError(1), TypeError('x'), ExceptionGroup('in', [OSError()])])\n"),
    "error_notes": sample("e = ValueError('x')\ne.add_note('a note\\nof two lines')\nraise e\n"),
    "error_own_class": sample("class MyError(Exception):\n    pass\nclass Outer:\n    class In(MyError):\n        pass\nraise Outer.In('x')\n"),
    "error_bad_str": sample("class E(Exception):\n    def __str__(self): raise ValueError\nraise E\n"),
    "error_in_exec": sample("exec('def f():\\n  1/0\\nf()')\n"),
    "error_long_expression": sample("d = {'a': {'b': None}}\nprint(d['a']['b']['c'] + [x for x in range(3)][0])\n"),
    "error_recursion": sample("def f(n):\n    return f(n + 1)\nf(0)\n"),
    "error_mutual_recursion": sample("def f(n):\n    return g(n + 1)\ndef g(n):\n    return f(n)\nf(0)\n"),
    "error_assert": sample("x = 3\nassert x == 4, f'{x} is not 4'\n"),
    "error_name_hint": sample("import math\nvalue = 1\nprint(valeu)\n"),
    "error_attribute_hint": sample("import math\nmath.sqr(2)\n"),
    "error_import": sample("import no_such_module\n"),
    "error_syntax_in_eval": sample("eval('1 +')\n"),
    "error_unpack": sample("a, b = map(int, input().split())\n", "1 2 3\n"),
    "error_base_exception": sample("class B(BaseException):\n    pass\nraise B('x')\n"),
    "error_generator_exit": sample("raise GeneratorExit\n"),
    "error_stop_iteration": sample("next(iter([]))\n"),
    "error_caught_and_printed": sample("import sys, traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc(file=sys.stdout)\nprint(sys.exc_info())\n"),
    "traceback_limit": sample("import sys\nsys.tracebacklimit = 0\ndef f():\n    1 / 0\nf()\n"),
    "excepthook": sample("import sys\ndef hook(kind, value, tb):\n    print('hook', kind.__name__, value, tb.tb_lineno, tb.tb_frame.f_code.co_name)\nsys.excepthook = hook\nprint(sys.exc_info())\n1 / 0\n"),
    "excepthook_raises": sample("import sys\ndef hook(*a):\n    raise KeyError('in hook')\nsys.excepthook = hook\n1 / 0\n"),
    "excepthook_exits": sample("import sys\ndef hook(*a):\n    sys.exit(5)\nsys.excepthook = hook\n1 / 0\n"),
    "excepthook_missing": sample("import sys\ndel sys.excepthook\n1 / 0\n"),
    "last_value_at_exit": sample("import atexit, sys\natexit.register(lambda: print(sys.last_type.__name__, sys.last_value, sys.last_traceback.tb_lineno))\n1 / 0\n"),
    "exc_info_at_exit": sample("import atexit, sys\natexit.register(lambda: print(sys.exc_info()))\n1 / 0\n"),
    "logging_exception": sample("import logging\ntry:\n    1 / 0\nexcept Exception:\n    logging.exception('oops')\n"),
    "memory_error": sample("raise MemoryError\n"),
    # ------------------------------------------------------------ warnings
    "warning": sample("import warnings\nwarnings.warn('careful')\ndef f():\n    warnings.warn('below', DeprecationWarning, stacklevel=2)\nf()\n"),
    "warning_is_error": sample("import warnings\nwarnings.simplefilter('error')\nwarnings.warn('careful')\n"),
    "warning_filters": sample("import warnings\nprint(warnings.filters)\nprint(warnings.defaultaction)\n"),
    "warning_deprecated": sample("import warnings\nwarnings.simplefilter('always')\nopen('x', 'w')\nprint(~True if False else 1)\n"),
    "coroutine_not_awaited": sample("async def f():\n    pass\nf()\nx = f()\n"),
    # ------------------------------------------------------------ exit functions
    "atexit_order": sample(_ATEXIT + "print('main')\n"),
    "atexit_after_error": sample(_ATEXIT + "1 / 0\n"),
    "atexit_after_exit": sample(_ATEXIT + "sys.exit(6)\n"),
    "atexit_error": sample(_ATEXIT + "def bad():\n    raise ValueError('in atexit')\natexit.register(bad)\natexit.register(sys.exit, 3)\n"),
    "atexit_in_atexit": sample(_ATEXIT + "atexit.register(lambda: atexit.register(print, 'late'))\n"),
    "atexit_os_exit": sample("import os\n" + _ATEXIT + "atexit.register(os._exit, 8)\nprint('lost')\n"),
    "atexit_unregister": sample(_ATEXIT + "atexit.unregister(print)\n@atexit.register\ndef f():\n    print('third', len(sys.modules) > 3)\n"),
    "atexit_flushes": sample("import atexit, io, os\nout = io.StringIO()\natexit.register(lambda: os.write(1, out.getvalue().encode()))\nprint('x', file=out)\n"),
    # ------------------------------------------------------------ what dies last
    "del_at_end": sample(_DEL + "a = A(1)\nb = A(2)\nx = [A(3)]\n"),
    "del_now": sample(_DEL + "a = A(1)\ndel a\nA(2)\nprint('end')\n"),
    "del_cycle": sample(_DEL + "import gc\ngc.disable()\na = A(1)\na.me = a\ndel a\nprint(gc.collect() > 0)\nb = A(2)\nb.me = b\n"),
    "del_after_error": sample(_DEL + "def f():\n    a = A(1)\n    1 / 0\nf()\n"),
    "del_after_exit": sample(_DEL + "import sys\na = A(1)\nsys.exit(2)\n"),
    "del_raises": sample("class A:\n    def __del__(self): raise ValueError('in del')\na = A()\n"),
    "del_imports": sample("class A:\n    def __del__(self):\n        import wave\na = A()\n"),
    "del_uses_globals": sample(_DEL + "name = 'x'\nclass B:\n    def __del__(self): print(name, print.__name__)\nb = B()\n"),
    "del_in_module": sample("import other\nprint(other.a.n)\n", files={"other.py": _DEL + "a = A(1)\n"}),
    "del_with_hook": sample(_DEL + "import sys\nsys.excepthook = lambda *a: None\na = A(1)\n"),
    "del_with_handler": sample(_DEL + "import signal\nsignal.signal(signal.SIGUSR1, lambda *a: None)\na = A(1)\n"),
    "del_with_cache": sample(_DEL + "import typing\nx = typing.List[A]\na = A(1)\nb = A(x)\n"),
    "del_on_builtin": sample(_DEL + "import math\nmath.mine = A(1)\n"),
    "generator_at_end": sample("def g():\n    try:\n        yield 1\n    finally:\n        print('closed')\nx = g()\nnext(x)\n"),
    "weakref_finalize": sample("import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'finalized')\nprint('end')\n"),
    "weakref_callback": sample("import weakref\nclass A: pass\na = A()\nr = weakref.ref(a, lambda r: print('gone'))\nprint('end')\n"),
    "file_not_closed": sample("import atexit, os\nf = open('o.txt', 'w')\nf.write('x')\nos.system('cat o.txt; echo end')\n"),
    # ------------------------------------------------------------ threads
    "thread_joined_at_exit": sample(_THREAD + "def f():\n    time.sleep(0.05)\n    print('thread done')\nthreading.Thread(target=f).start()\nprint('main done')\n"),
    "thread_daemon": sample(_THREAD + "def f():\n    time.sleep(30)\n    print('never')\nthreading.Thread(target=f, daemon=True).start()\nprint('main done')\n"),
    "thread_error": sample(_THREAD + "def f():\n    1 / 0\nt = threading.Thread(target=f, name='T')\nt.start()\nt.join()\nprint('main done')\n"),
    "thread_excepthook": sample(_THREAD + "threading.excepthook = lambda a: print(a.exc_type.__name__, a.thread.name)\nt = threading.Thread(target=lambda: [][0], name='T')\nt.start()\nt.join()\n"),
    "thread_exit": sample(_THREAD + "t = threading.Thread(target=sys.exit, args=(3,))\nt.start()\nt.join()\nprint('main done')\n"),
    "thread_after_error": sample(_THREAD + "def f():\n    time.sleep(0.05)\n    print('thread done')\nthreading.Thread(target=f).start()\n1 / 0\n"),
    "thread_names": sample(
        _THREAD + "import os\nprint(threading.current_thread(), threading.main_thread() is threading.current_thread(), threading.active_count())\n"
        "print(threading.get_native_id() == os.getpid(), threading.current_thread().native_id == os.getpid())\n"
        "t = threading.Thread(target=lambda: None)\nprint(t.name, threading.stack_size(), threading.enumerate())\n".replace("threading.current_thread(), ", "threading.current_thread().name, ").replace(", threading.enumerate()", "")
    ),
    "thread_pool": sample("from concurrent.futures import ThreadPoolExecutor as P\nwith P(4) as p:\n    print(list(p.map(lambda x: x * x, range(5))))\nq = P(1)\nq.submit(print, 'left')\n"),
    "thread_timer": sample(_THREAD + "threading.Timer(0.05, print, ['timer']).start()\nprint('main')\n"),
    "thread_local": sample(_THREAD + "l = threading.local()\nl.x = 1\nt = threading.Thread(target=lambda: print(hasattr(l, 'x')))\nt.start()\nt.join()\nprint(l.x)\n"),
    "asyncio": sample("import asyncio\nasync def f(n):\n    await asyncio.sleep(0.01 * n)\n    print(n)\n    return n\nasync def main():\n    print(await asyncio.gather(*map(f, (3, 1, 2))))\nasyncio.run(main())\n"),
    "queue_workers": sample(_THREAD + "import queue\nq = queue.Queue()\ndef w():\n    while (x := q.get()) is not None:\n        print(x)\nt = threading.Thread(target=w)\nt.start()\n[q.put(i) for i in range(3)]\nq.put(None)\n"),
    # ------------------------------------------------------------ signals
    "keyboard_interrupt": sample("import atexit\natexit.register(print, 'atexit')\nprint('a')\nraise KeyboardInterrupt\n"),
    "keyboard_interrupt_caught": sample("try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    print('caught')\n"),
    "sigint_default": sample("import os, signal\nprint('a')\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('caught')\nos.kill(os.getpid(), 2)\n"),
    "sigterm_default": sample("import os, signal\nprint('a', flush=True)\nos.kill(os.getpid(), signal.SIGTERM)\nprint('never')\n"),
    "sigterm_handled": sample("import os, signal, sys\ndef h(n, frame):\n    print('handler', n, frame.f_code.co_name)\n    sys.exit(4)\nsignal.signal(signal.SIGTERM, h)\nos.kill(os.getpid(), 15)\n"),
    "sigalrm_default": sample("import signal, time\nprint('a', flush=True)\nsignal.setitimer(signal.ITIMER_REAL, 0.02)\ntime.sleep(20)\n"),
    "sigalrm_handled": sample("import signal, time\nclass T(Exception): pass\ndef h(n, f):\n    raise T('late')\nsignal.signal(signal.SIGALRM, h)\nsignal.setitimer(signal.ITIMER_REAL, 0.02)\ntime.sleep(20)\n"),
    "sigusr_ignored": sample("import os, signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\nos.kill(os.getpid(), signal.SIGUSR1)\nprint('alive')\nos.kill(os.getpid(), signal.SIGUSR2)\n"),
    "sigpipe": sample("import os\nr, w = os.pipe()\nos.close(r)\nos.write(w, b'x')\n"),
    "sigsegv": sample("import ctypes\nprint('a', flush=True)\nctypes.string_at(0)\n"),
    "signals_all": sample("import signal\nfor s in sorted(signal.valid_signals()):\n    print(int(s), signal.getsignal(s))\nprint(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getitimer(signal.ITIMER_REAL), signal.sigpending())\n"),
    "signal_mask_exec": sample("import subprocess\nprint(subprocess.run('grep Sig /proc/self/status | grep -v SigQ', shell=True, capture_output=True, text=True).stdout)\n"),
}  # fmt: skip
