"""Start of the agent, and the frame that a program's module code runs on.

Run as a script by the image's interpreter. The last lines are executed only in
the process of a case: this module's frame is then the one below the program's,
and what follows is what the interpreter does for a script, without tearing
itself down (6.6 ms for nothing: the process is about to be gone).
"""

import os
import sys
import types

_folder = os.path.dirname(os.path.abspath(__file__))
if "proctor_guest" not in sys.modules:
    _package = types.ModuleType("proctor_guest")
    _package.__path__ = [_folder]  # the guest's modules under a name of their own
    sys.modules["proctor_guest"] = _package

from proctor_guest import forks  # type: ignore[import-not-found]  # noqa: E402

forks.hold()  # before anything is imported that registers a hook

from proctor_guest import agent, finish  # noqa: E402

_start = [agent.main(_folder)]
_failures = []
try:
    exec(*_start.pop())  # nothing here keeps the program's names alive after its end
except BaseException as _exc:
    _failures.append(_exc)
sys.setprofile(None)
sys.settrace(None)
finish.finish(_failures.pop() if _failures else None)
