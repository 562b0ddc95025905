"""Programs that look at themselves, at the interpreter and at what surrounds them."""

from __future__ import annotations

from programs_sample import Sample, sample

_DEPTH = "import sys\ndef f(n):\n    global deepest\n    deepest = n\n    f(n + 1)\n"

LANGUAGE: dict[str, Sample] = {
    # ------------------------------------------------------------ the main module
    "names": sample(
        "print(__name__, __file__, __doc__, __package__, __spec__, __cached__)\n"
        "print(type(__loader__).__name__, __loader__.name, __loader__.path, __builtins__, __annotations__)\nprint(list(globals()))\n"
    ),
    "docstring": sample('"""Text of the module."""\nprint(__doc__)\n'),
    "annotations": sample("import sys, typing\nx: int = 3\ny: 'str'\nprint(__annotations__, typing.get_type_hints(sys.modules['__main__']))\n"),
    "main_module": sample(
        "import sys, __main__\nx = 1\n__main__.y = 2\nprint(y, sys.modules['__main__'] is __main__, vars(__main__) is globals(), __main__)\n"
        "print(sorted(dir(__main__)), locals() is globals())\n"
    ),
    "argv": sample("import sys\nprint(sys.argv, sys.orig_argv, sys.flags, sys.executable, sys.warnoptions, sys._xoptions)\n"),
    "path": sample(
        "import sys\nprint([p for p in sys.path if not p.endswith('-packages')])\nprint(sys.prefix, sys.base_prefix, sys.exec_prefix)\n"
        "print([getattr(f, '__name__', f) for f in sys.meta_path], len(sys.path_hooks))\n",
        native=False,
    ),
    "interpreter": sample(
        "import sys\nprint(sys.version, sys.implementation.cache_tag, sys.dont_write_bytecode, sys.pycache_prefix, sys.getswitchinterval())\n"
        "print(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), sys.getdefaultencoding(), sys.get_int_max_str_digits())\n"
        "print(sys.displayhook is sys.__displayhook__, sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__)\n"
        "print(sys.gettrace(), sys.getprofile(), hasattr(sys, 'ps1'), hasattr(sys, 'last_value'), hasattr(sys, 'tracebacklimit'))\n"
        "print(sys.exc_info(), sys.is_finalizing(), sys.getallocatedblocks() > 1000, sys.thread_info, sys.hash_info.algorithm)\n"
    ),
    "builtins": sample("import builtins\nprint(sorted(dir(builtins)), type(exit), repr(quit), type(help))\n"),
    "sys_names": sample("import sys\nprint(sorted(n for n in dir(sys) if n != '_git'))\n"),
    "modules": sample("import sys\nprint('json' in sys.modules, 'decimal' in sys.modules)\n"),
    "submodule_not_imported": sample("import importlib\nprint(importlib.util.find_spec('json').name)\n", native=False),
    "frames": sample("import inspect, sys\nprint(sys._getframe().f_back, len(inspect.stack()), sys._getframe().f_code.co_name)\n"),
    "frame_names": sample("import sys\ndef f():\n    g = sys._getframe(1)\n    return g.f_code.co_name, g.f_globals is globals(), g.f_locals is g.f_globals\nprint(f())\n"),
    "print_stack": sample("import traceback\ndef f():\n    traceback.print_stack()\nf()\n"),
    "warning_beyond_the_top": sample("import warnings\nwarnings.warn('careful', stacklevel=2)\n"),
    "own_source": sample("import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f), inspect.getmodule(f), inspect.getfile(f), open(__file__).readline())\n"),
    "import_itself": sample("print(__name__)\nimport solution\nprint(solution.__name__, solution.__spec__.name)\n"),
    "run_path": sample("import runpy\nprint(runpy.run_path('b.py', run_name='r')['x'])\n", files={"b.py": "print(__name__, __file__)\nx = 4\n"}),
    "second_file": sample("import helper, os\nprint(helper.f(2), helper.__file__, helper.__name__)\nprint(sorted(os.listdir('.')))\n", files={"helper.py": "def f(x):\n    return x + 1\n"}),
    "package_of_its_own": sample("from pack.inner import f\nimport pack\nprint(f(), pack.__path__)\n", files={"pack/__init__.py": "", "pack/inner.py": "from . import other\ndef f():\n    return other.x\n", "pack/other.py": "x = 5\n"}),
    "shadows_json": sample("import json\nprint(json.dumps([1]))\n", files={"json.py": "def dumps(x):\n    return 'mine'\n"}),
    "shadows_random": sample("import random\nprint(random.choice([1]))\nimport tempfile\n", files={"random.py": "def choice(x):\n    return 'mine'\n"}, native=False),
    "shadows_rare_module": sample("import wave\nprint(wave.mine)\n", files={"wave.py": "mine = 1\n"}),
    "shadows_builtin": sample("import math, sys\nprint(math.sqrt(4))\n", files={"math.py": "sqrt = lambda x: 'mine'\n"}, native=False),
    "shadows_by_package": sample("import string\nprint(string.mine)\n", files={"string/__init__.py": "mine = 2\n"}),
    "reload": sample("import importlib, helper\nhelper.x = 2\nimportlib.reload(helper)\nprint(helper.x)\n", files={"helper.py": "x = 1\n"}),
    "tracing": sample("import sys\ndef t(frame, event, arg):\n    print(event, frame.f_code.co_name, frame.f_lineno)\n    return t\ndef f():\n    return 1\nsys.settrace(t)\nf()\nsys.settrace(None)\n"),
    "tracing_to_the_end": sample("import sys\ndef t(frame, event, arg):\n    print(event, frame.f_code.co_name)\ndef f():\n    return 1\nsys.settrace(t)\nf()\n", native=False),
    "profiling_to_the_end": sample("import sys\ndef t(frame, event, arg):\n    print(event, getattr(arg, '__name__', arg))\nsys.setprofile(t)\nlen('a')\n", native=False),
    "profile": sample("import cProfile, io, pstats\np = cProfile.Profile()\np.runcall(sum, [1, 2])\ns = pstats.Stats(p, stream=io.StringIO())\nprint(s.total_calls)\n"),
    # ------------------------------------------------------------ recursion
    "recursion_limit": sample("import sys\nprint(sys.getrecursionlimit())\nsys.setrecursionlimit(5000)\nprint(sys.getrecursionlimit())\n"),
    "recursion_depth": sample(_DEPTH + "try:\n    f(1)\nexcept RecursionError as e:\n    print(deepest, e)\n"),
    "recursion_depth_raised": sample(_DEPTH + "sys.setrecursionlimit(3210)\ntry:\n    f(1)\nexcept RecursionError as e:\n    print(deepest, e)\n"),
    "recursion_depth_in_thread": sample(_DEPTH + "import threading\ndef g():\n    try:\n        f(1)\n    except RecursionError as e:\n        print(deepest, e)\nt = threading.Thread(target=g)\nt.start()\nt.join()\n"),
    "recursion_of_methods": sample("import functools, sys\n@functools.lru_cache(None)\ndef f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\ntry:\n    print(f(5000))\nexcept RecursionError as e:\n    print(f.cache_info().currsize, e)\n"),
    "recursion_deep": sample("import sys\nsys.setrecursionlimit(1 << 25)\ndef f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nprint(f(50_000))\n"),
    "recursion_deep_thread": sample("import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 26)\ndef f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nt = threading.Thread(target=lambda: print(f(40_000)))\nt.start()\nt.join()\n"),
    "recursion_limit_wrong": sample("import sys\nfor x in (0, -1, 'a', 1, 2.5, 2**40):\n    try:\n        print(sys.setrecursionlimit(x))\n    except Exception as e:\n        print(type(e).__name__, e)\n"),
    "recursion_limit_function": sample("import sys\nprint(sys.setrecursionlimit, sys.getrecursionlimit)\n"),
    "recursion_repr": sample("x = []\nfor i in range(100_000):\n    x = [x]\ntry:\n    repr(x)\nexcept RecursionError as e:\n    print(e)\n"),
    # ------------------------------------------------------------ the language
    "future_annotations": sample("from __future__ import annotations\nimport typing\nclass N:\n    next: N | None = None\ndef f(x: Later) -> int: ...\nclass Later: pass\nprint(f.__annotations__, typing.get_type_hints(f), typing.get_type_hints(N), annotations)\n"),
    "future_is_not_inherited": sample("def f(x: int) -> str: ...\nprint(f.__annotations__, eval('1 / 2'), compile('1', 's', 'eval').co_flags)\n"),
    "scopes": sample("x = 1\ndef f():\n    global x\n    x += 1\n    y = 0\n    def g():\n        nonlocal y\n        y += x\n        return y\n    return g() + g()\nprint(f(), x, [x for x in range(3)], x)\n"),
    "pickle": sample("import copy, pickle\nclass P:\n    def __init__(self): self.x = 1\nclass Q(P):\n    class R: pass\nq = pickle.loads(pickle.dumps(Q()))\nprint(q.x, type(q) is Q, pickle.dumps(Q.R, 0), pickle.loads(pickle.dumps(P)) is P, copy.deepcopy(q).x)\n"),
    "dataclasses": sample("import dataclasses, typing\n@dataclasses.dataclass(order=True, slots=True)\nclass D:\n    a: int\n    b: typing.List[int] = dataclasses.field(default_factory=list)\nprint(D(1), D(1) < D(2), dataclasses.asdict(D(3)), D.__module__, typing.get_type_hints(D))\n"),
    "classes": sample("import collections, enum, typing\nC = collections.namedtuple('C', 'x')\nclass E(enum.Enum):\n    A = 1\nclass T(typing.NamedTuple):\n    x: int\nprint(C.__module__, repr(C), E.A, repr(E), T(1), T, typing.NewType('U', int).__module__, typing.TypeVar('V').__module__)\n"),
    "decimal_context": sample("import decimal, fractions\nprint(decimal.getcontext(), decimal.Decimal(1) / 3, fractions.Fraction('0.1'))\n"),
    "integer_digits": sample("import sys\nx = 10 ** 9999\nprint(len(str(10 ** 4200)))\ntry:\n    print(x)\nexcept ValueError as e:\n    print(e)\nsys.set_int_max_str_digits(0)\nprint(len(str(x)))\n"),
    "hash_order": sample("print(hash('a'), hash(b'a'), list({'a', 'b', 'c', 'd', 'e'}), {(1, 'x'): 2}, hash((1, 2.5, None is None)))\n"),
    "random_seeded": sample("import random\nrandom.seed(5)\nprint(random.random(), random.randint(1, 9), random.sample(range(9), 3), random.gauss(0, 1))\nrandom.seed('x')\nprint(random.getstate()[1][:3])\n"),
    "random_unseeded": sample("import random\nprint(random.random(), random.Random(3).random(), random.gauss(0, 1), random.choices(range(9), k=3))\n", native=False, fresh=False),
    "regular_expressions": sample("import re\nprint(re.findall(r'(\\d+)-(?P<n>\\w)', '12-a 3-b'), re.compile('a|b'), re.sub('x*', '-', 'abxd'))\n"),
    "garbage": sample("import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.garbage, gc.callbacks)\nclass A: pass\na = A()\na.a = a\ndel a\nprint(gc.collect() > 0, gc.is_tracked([]), gc.isenabled())\n"),
    "garbage_by_itself": sample("import weakref\nclass A: pass\nseen = []\nfor i in range(5000):\n    a = A()\n    a.a = a\n    weakref.finalize(a, seen.append, i)\nprint(len(seen) > 1000)\n"),
    "garbage_frozen": sample("import gc\nprint(gc.get_freeze_count())\n"),
    "unittest_main": sample("import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(1, 1)\n    def test_b(self): self.fail('no')\nif __name__ == '__main__':\n    import re, sys\n    sys.stderr = sys.stdout\n    try:\n        unittest.main()\n    finally:\n        pass\n"),
    "doctest": sample("def f(x):\n    '''\n    >>> f(1)\n    2\n    >>> f(2)\n    4\n    '''\n    return x + 1\nimport doctest\nprint(doctest.testmod())\n"),
    "time": sample("import time\nprint(time.tzname, time.timezone, time.localtime(0)[:6], time.process_time() < 5, time.time() > 1.7e9, time.perf_counter() > 0)\n"),
    "datetime": sample("import datetime\nprint(datetime.datetime.fromtimestamp(0), datetime.datetime.now().astimezone().tzinfo)\n"),
    "locale": sample("import locale\nprint(locale.getlocale(), locale.getpreferredencoding(), locale.setlocale(locale.LC_ALL), locale.localeconv()['decimal_point'], locale.getencoding())\n"),
    "json_and_others": sample("import base64, bisect, calendar, csv, functools, hashlib, itertools, json, operator, statistics, struct, zlib\nprint(json.dumps({'a': [1, None]}), hashlib.sha256(b'').hexdigest()[:8], statistics.median([1, 2]), list(itertools.batched('abc', 2)) if hasattr(itertools, 'batched') else 0)\n"),
}  # fmt: skip
