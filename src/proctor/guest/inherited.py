"""What an agent inherits from the trainer and must not keep: address layout, memory score, limits."""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

from . import linux

_ROOM = 256 << 20  # address space that an interpreter has beside its memory


def fix_layout() -> None:
    """Same addresses in every run: start again without address space randomisation, where allowed."""
    try:
        persona = linux.personality(0xFFFFFFFF)
        if not persona & linux.ADDR_NO_RANDOMIZE:
            linux.personality(persona | linux.ADDR_NO_RANDOMIZE)
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    except OSError:
        pass  # a filter around us forbids it: layouts then differ from slot to slot


def spare_agent() -> None:
    """Where this user may, the kernel shall never kill an agent for want of memory: a case gives itself the highest score.

    A program that was killed holds its memory for a moment longer, and the
    jail, which is in the same group, may need a page in that moment.
    """
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("-1000")
    except OSError:
        pass  # not root's


def lift_limits() -> None:
    """Undo limits inherited from the trainer's shell, as far as the hard ones let us."""
    whiches = (
        resource.RLIMIT_AS,
        resource.RLIMIT_DATA,
        resource.RLIMIT_CPU,
        resource.RLIMIT_FSIZE,
        resource.RLIMIT_STACK,
        resource.RLIMIT_NPROC,
    )
    for which in (*whiches, resource.RLIMIT_NOFILE):
        soft, hard = resource.getrlimit(which)
        top = resource.RLIM_INFINITY if which != resource.RLIMIT_NOFILE else max(hard, 65_536)
        try:
            resource.setrlimit(which, (soft if which == resource.RLIMIT_NOFILE else top, top))
        except (OSError, ValueError):
            resource.setrlimit(which, (hard, hard))


def shortage(limits: dict[str, Any]) -> str | None:
    """A hard limit of this host below what a job asks for would show as the program's fault: say which."""
    for name, which, needed in (
        ("v", resource.RLIMIT_AS, limits["memory"] + _ROOM),
        ("d", resource.RLIMIT_DATA, limits["memory"] + _ROOM),
        ("t", resource.RLIMIT_CPU, limits["cpu"] // 10**9 + 1),
        ("f", resource.RLIMIT_FSIZE, max(limits["workspace"], limits["output"])),
        ("n", resource.RLIMIT_NOFILE, limits["files"]),
    ):
        hard = resource.getrlimit(which)[1]
        if hard != resource.RLIM_INFINITY and hard < needed:
            return f"the hard limit `ulimit -H{name}` of the calling process is {hard}, and the job may need {needed}"
    return None


def own_threads() -> int:
    """Threads of this user on the host, which its process limit counts too where nothing separates them."""
    count, uid = 0, os.getuid()
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return count


def told(text: str) -> str:
    """Settings as JSON, from the command line or from the file that it names."""
    if text.startswith("/"):
        with open(text) as file:
            return file.read()
    return text
