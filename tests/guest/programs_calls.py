"""Programs whose functions are called, and what is called: as by a script that imports them."""

from __future__ import annotations

from typing import Any

CALLS: dict[str, tuple[str, list[tuple[str, tuple[Any, ...]]]]] = {
    "names": (
        "import sys\ndef f():\n    return [__name__, __file__, __doc__, __package__, __spec__.name, __spec__.origin, __cached__ is None,\n"
        "            type(__loader__).__name__, f.__module__, sys.modules['solution'].__dict__ is globals(), sorted(globals())]\n",
        [("f", ())],
    ),
    "main_is_another": (
        "import sys\nseen = __name__ == '__main__'\ndef f():\n    import __main__\n    return seen, __main__.__name__, hasattr(__main__, 'agent')\n",
        [("f", ())],
    ),
    "methods": (
        "class Solution:\n    made = 0\n    def __init__(self):\n        Solution.made += 1\n        self.n = 0\n    def add(self, x, y=2):\n        self.n += 1\n        return x + y, self.n, Solution.made\n"
        "    @staticmethod\n    def s(x):\n        return x * 2\n",
        [("Solution.add", (1,)), ("Solution.add", (1, 5)), ("Solution.s", ("ab",))],
    ),
    "state": (
        "total = 0\ndef f(x):\n    global total\n    total += x\n    return total\n",
        [("f", (1,)), ("f", (2,)), ("f", (3,))],
    ),
    "recursion": (
        "import sys\ndeepest = 0\ndef f(n):\n    global deepest\n    deepest = n\n    return f(n + 1)\ndef g():\n    try:\n        f(1)\n    except RecursionError:\n        return deepest\n",
        [("g", ()), ("g", ())],
    ),
    "errors": (
        "def f(x):\n    return 1 // x\ndef g():\n    raise KeyError('k')\ndef h():\n    import sys\n    sys.exit(3)\n",
        [("f", (0,)), ("f", (1,)), ("g", ()), ("h", ()), ("f", ("a",)), ("missing", ())],
    ),
    "pickle": (
        "import copy, dataclasses, pickle, typing\n@dataclasses.dataclass\nclass D:\n    x: int\n    y: 'typing.List[D]'\n"
        "def f():\n    return pickle.loads(pickle.dumps(D(1, []))) == D(1, []), repr(copy.deepcopy(D(2, []))), str(typing.get_type_hints(D))\n",
        [("f", ())],
    ),
    "future": (
        "from __future__ import annotations\ndef f(x: int) -> Later:\n    return f.__annotations__\n",
        [("f", (1,))],
    ),
    "source": (
        "import inspect\ndef f():\n    return inspect.getsource(f), inspect.getmodule(f).__name__\n",
        [("f", ())],
    ),
    "processes": (
        "import multiprocessing as mp\ndef double(x):\n    return 2 * x\ndef f(how):\n    with mp.get_context(how).Pool(1) as p:\n        return p.map(double, [1, 2])\n",
        [("f", ("fork",)), ("f", ("spawn",))],
    ),
    "imports": (
        "from other import g\nimport os\ndef f():\n    return g(), sorted(os.listdir('.')), os.getcwd()\n",
        [("f", ())],
    ),
}
FILES = {"other.py": "def g():\n    return __name__\n"}

# What such a script does: the same calls, and of each the value or the exception.
DRIVER = """
if __name__ == "__main__":
    import solution
    for target, args in CALLS:
        try:
            value = solution
            for name in target.split("."):
                value = value() if isinstance(value, type) else value
                value = getattr(value, name)
            print(repr(value(*args)))
        except BaseException as exc:
            print(type(exc).__name__, exc)
"""
