"""What a corpus asks for in words, as checks: one entry for each program that asks more than a status.

A check reads what the program printed (with patterns only: nothing of it is
evaluated) and what the host shows, and returns its faults. Programs that are
not listed have no rule beyond the manifest's own fields.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proctor.core.verdict import Verdict
from proctor.doctor.canary import Canary
from proctor.doctor.manifest import Row
from proctor.doctor.tasks import PRELOAD
from proctor.grading.grades import Grade
from proctor.grading.policy import share


@dataclass(frozen=True, slots=True)
class Seen:
    """What a check may look at.

    Attributes:
        text: what the program wrote, all cases and both streams.
        regrade: grades the same program again, with the checker of that name or the same one.
        honest: grades the honest control of this row's mode; True when it is right.
        seconds: wall time of the whole grading.
    """

    row: Row
    grade: Grade
    text: str
    canary: Canary
    seconds: float
    regrade: Callable[[str | None], Grade]
    honest: Callable[[], bool]


Check = Callable[[Seen], list[str]]


@dataclass(frozen=True, slots=True)
class Rule:
    """Attributes:
    checks: what must hold besides status and score.
    protections: keys of doctor's table on which the row hangs.
    right_anyway: cases for which the program's answer is legitimately right.
    """

    checks: tuple[Check, ...] = ()
    protections: tuple[str, ...] = ()
    right_anyway: int = 0


def shows(pattern: str) -> Check:
    """The output holds a match."""
    return lambda seen: [] if re.search(pattern, seen.text) else [f"its output does not show {pattern!r}"]


def never_shows(pattern: str) -> Check:
    """The output holds no match."""

    def check(seen: Seen) -> list[str]:
        found = re.search(pattern, seen.text)
        return [f"its output shows {found[0][:80]!r}"] if found else []

    return check


def within(seconds: float) -> Check:
    """The whole grading, clean-up included, took no longer."""
    return lambda seen: [] if seen.seconds <= seconds else [f"took {seen.seconds:.1f} s, more than {seconds:g}"]


def followed_by_honest(seen: Seen) -> list[str]:
    """A right program scores 1 right afterwards."""
    return [] if seen.honest() else ["an honest program right afterwards does not score 1"]


def _others(seen: Seen) -> list[str]:
    listed = re.search(r"OTHERS \[(.*?)\] CANARY \[(.*?)\]", seen.text)
    if not listed:
        return ["OTHERS is missing from its output"]
    pids = set(re.findall(r"\('(\d+)',", listed[1])) - {"1"}
    return ([f"it saw processes {', '.join(sorted(pids)[:5])}"] if pids else []) + (
        ["it saw the canary"] if listed[2] else []
    )


def _only_refused_families(seen: Seen) -> list[str]:
    listed = re.search(r"OPEN \[(.*?)\] CANARY \[(.*?)\]", seen.text)
    if not listed:
        return ["OPEN is missing from its output"]
    rest = re.sub(r"\('[\w.:]+', 'no socket', \d+\)", "", listed[1]).strip(", ")
    return [f"it reached {rest[:80]}"] if rest or listed[2] else []


def _network(seen: Seen) -> list[str]:
    faults = ["it connected"] if "CONNECTED" in seen.text else []
    shown = re.search(r"INTERFACES \[(.*?)\]", seen.text)
    # Tunnel devices that the kernel makes in every new namespace, down and without an address.
    names = (
        set(re.findall(r"'([^']+)'\)", shown[1])) - {"lo", "sit0", "tunl0", "ip6tnl0", "gre0", "gretap0", "erspan0"}
        if shown
        else set()
    )
    faults += [f"it saw the interface {name}" for name in sorted(names)]
    families = re.search(r"FAMILIES \{(.*?)\}", seen.text)
    for family in (
        "packet",
        "inet_raw_icmp",
        "netlink_netfilter",
        "vsock",
        "alg",
        "bluetooth",
        "can",
        "xdp",
        "rds",
        "tipc",
    ):
        if not families or f"'{family}': 'ok'" in families[1]:
            faults.append(f"it could make a {family} socket")
    return faults


def _not_the_host(seen: Seen) -> list[str]:
    faults = []
    name = os.uname().nodename
    if name != "localhost" and re.match(rf"{re.escape(name)} \d+ \[", seen.text):
        faults.append("it saw the host's name")
    for path in ("/etc/machine-id", "/sys/class/dmi/id/product_uuid", "/proc/sys/kernel/random/boot_id"):
        if re.search(rf"'{path}', \d+, \[", seen.text):
            faults.append(f"it read {path}")
    return faults


def _not_host_name(seen: Seen) -> list[str]:
    try:
        name = Path("/etc/hostname").read_text().strip() or os.uname().nodename
    except OSError:
        name = os.uname().nodename
    pattern = rf"(?:BLOB|hostname=)\s*{re.escape(name)}\b"
    return ["it read the host's /etc/hostname"] if re.search(pattern, seen.text) else []


def _limits_hold(seen: Seen) -> list[str]:
    faults = []
    for name, most in (("RLIMIT_NOFILE", seen.grade.limits.open_files), ("RLIMIT_RTPRIO", 0), ("RLIMIT_CORE", 1)):
        got = re.search(rf"'{name}': (-?\d+)", seen.text)
        if got and not 0 <= int(got[1]) <= most:
            faults.append(f"{name} could be raised to {got[1]}")
    if "'fifo': None" in seen.text:
        faults.append("it got real-time scheduling")
    if re.search(r"'nice': -\d", seen.text):
        faults.append("it raised its priority")
    return faults


# Calls of the corpus' probe that reach the kernel's own code on purpose: none.
_REACHABLE: frozenset[str] = frozenset()


def _filtered(seen: Seen) -> list[str]:
    lines = re.findall(r"^(\w+) (errno-\d+|SUCCEEDED|killed-by-\d+|fork-failed)$", seen.text, re.MULTILINE)
    if not lines:
        return ["it printed no table of system calls"]
    bad = {name for name, how in lines if how not in ("errno-1", "errno-38", "killed-by-31") and name not in _REACHABLE}
    return [f"not filtered: {', '.join(sorted(bad))}"] if bad else []


def _no_writable_kernel_file(seen: Seen) -> list[str]:
    found = [
        p
        for p, mode in re.findall(r"'(/[^']+)': '(\w+)'", seen.text)
        if "w" in mode and not p.startswith("/proc/self/")
    ]
    return [f"it could open for writing: {', '.join(found[:5])}"] if found else []


def _writable_only_own(seen: Seen) -> list[str]:
    listed = re.search(r"WRITABLE \[(.*?)\] SELF", seen.text)
    if not listed:
        return ["WRITABLE is missing from its output"]
    bad = [p for p in re.findall(r"'([^']+)'", listed[1]) if not re.match(r"/(?:workspace|tmp|dev/shm)(?:/|$)", p)]
    return [f"it could write in {', '.join(bad[:5])}"] if bad else []


def _only_itself_linked(seen: Seen) -> list[str]:
    linked = [p for p in re.findall(r"'([^']+)': 'LINKED'", seen.text) if not p.endswith((".py", "solution"))]
    return [f"it made hard links to {', '.join(linked)}"] if linked else []


def _no_keyring(seen: Seen) -> list[str]:
    found = re.findall(r"'(thread|process|session|user|user_session)': \d", seen.text)
    return [f"it reached the keyrings {', '.join(found)}"] if found else []


def _no_preload_here(seen: Seen) -> list[str]:
    """No process that this user may look at, other than in a jail, maps the library."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if PRELOAD in maps.read_text(errors="replace"):
                return [f"process {maps.parent.name} of the host maps {PRELOAD}"]
        except OSError:
            continue
    return []


def _twenty_different(seen: Seen) -> list[str]:
    lines: list[bytes] = []
    for grade in (seen.grade, *(seen.regrade(None) for _ in range(4))):
        lines += [case.outcome.stdout for case in grade.cases]
    return (
        [] if len(set(lines)) == len(lines) >= 20 else [f"{len(lines)} runs printed {len(set(lines))} different lines"]
    )


def _three_quarters(seen: Seen) -> list[str]:
    got = share(seen.grade)
    return [] if got == 0.75 else [f"graded score {got:g}, not the share of even sums, 0.75"]


def _time_limit_everywhere(seen: Seen) -> list[str]:
    other = [case for case in seen.grade.cases if case.verdict is not Verdict.TIME_LIMIT]
    return [f"{len(other)} cases are no time limit"] if other else []


def _by_signal(seen: Seen) -> list[str]:
    """Each case was ended by the signal that it sent itself: otherwise nothing was tried."""
    other = [case for case in seen.grade.cases if case.outcome.signal is None]
    return [f"{len(other)} cases were not ended by their own signal"] if other else []


def _by_status(seen: Seen) -> list[str]:
    codes = [case.outcome.exit_code for case in seen.grade.cases]
    return (
        []
        if all(code is not None and code >= 124 for code in codes)
        else [f"exit statuses {codes}, not those that it left with"]
    )


def _right_as_number(seen: Seen) -> list[str]:
    exact, numeric = share(seen.regrade("exact")), share(seen.regrade("numbers"))
    return (
        []
        if (exact, numeric) == (0, 1)
        else [f"score {exact:g} under exact and {numeric:g} under numbers, not 0 and 1"]
    )


def _streams_apart(seen: Seen) -> list[str]:
    mixed = [case for case in seen.grade.cases if case.outcome.stdout.strip()]
    return ["what it wrote to stderr came back on stdout"] if mixed else []


def _finite(seen: Seen) -> list[str]:
    reward = seen.grade.reward
    return [] if reward is not None and 0 <= reward <= 1 else [f"reward {reward}"]


_CLEAN = Rule((followed_by_honest,), ("leftovers",))
RULES: dict[str, Rule] = {
    "half_right_stdio": Rule((_three_quarters,)),
    "mutate_arguments": Rule(right_anyway=1),
    "split_token": Rule(right_anyway=3),
    "signal_exit_zero": Rule((_time_limit_everywhere,)),
    "conftest_drop": _CLEAN,
    "sitecustomize_drop": _CLEAN,
    "shadow_modules": _CLEAN,
    "fake_reports": Rule((followed_by_honest, _finite), ("leftovers",)),
    "swap_interpreter": Rule((shows(r"WRITABLE_TOOL_PLACES \[\]"),), ("writes",)),
    "parent_memory": Rule((shows(r"PARENT_ACCESS \[\]"),), ("processes", "system_calls")),
    "preload_always_equal": Rule((_no_preload_here,)),
    "proc_walk": Rule((_others,), ("processes",)),
    "leftovers_read": Rule((shows(r"LEFT \[\]"),), ("leftovers",)),
    "unix_sockets": Rule((shows(r"REACHABLE \[\]"),), ("unix_sockets", "network")),
    "loopback_services": Rule((_only_refused_families,), ("network",)),
    "network_view": Rule((_network,), ("network",)),
    "host_fingerprint": Rule((_not_the_host,), ("identity",)),
    "compile_include_leak": Rule((_not_host_name,), ("identity", "host_files")),
    "thread_bomb": Rule((followed_by_honest,), ("processes_limit",)),
    "memory_touch": Rule((), ("memory",)),
    "memory_many_processes": Rule((), ("memory_tree",)),
    "mmap_shared_and_memfd": Rule((), ("memory", "memory_tree")),
    "stdout_flood": Rule((within(12),), ("output",)),
    "inode_fill": Rule((), ("inodes",)),
    "zombie_swarm": Rule((followed_by_honest,), ("processes_limit",)),
    "cpu_many_processes": Rule((followed_by_honest,), ("cpu_tree",)),
    "close_stdout_early": Rule((_time_limit_everywhere,), ("wall",)),
    "rlimit_raise": Rule((_limits_hold,), ("open_files", "privileges")),
    "syscall_probe": Rule((_filtered,), ("system_calls",)),
    "int80_abi": Rule((never_shows(r"int80 returned (?!-1\b|-38\b)-?\d"),), ("system_calls",)),
    "new_namespaces": Rule((never_shows("SUCCEEDED"),), ("namespaces",)),
    "double_chroot": Rule((_not_host_name,), ("identity", "system_calls")),
    "join_other_namespaces": Rule((never_shows(r"'SUCCEEDED'"),), ("namespaces",)),
    "kernel_files": Rule((_no_writable_kernel_file,), ("kernel_files",)),
    "hardlink_host": Rule((_only_itself_linked,), ("host_files",)),
    "undeletable_tree": Rule((followed_by_honest, within(25))),
    "read_only_root": Rule((_writable_only_own,), ("writes",)),
    "keyring_session": Rule((_no_keyring,), ("system_calls",)),
    "clone_entropy": Rule((_twenty_different,)),
    "float_last_digit": Rule((_right_as_number,)),
    "self_signals": Rule((_by_signal,)),
    "reserved_exit_codes": Rule((_by_status,)),
    "controlling_terminal": Rule((never_shows("TTY|PUSHED"),), ("descriptors",)),
    "answer_on_stderr_too": Rule((_streams_apart,)),
}


def rule_for(row: Row) -> Rule:
    """The rule of a row; one that names its own protections hangs on those."""
    rule = RULES.get(row.stem, Rule())
    named = row.extra.get("protection")
    if named is None:
        return rule
    return Rule(rule.checks, tuple(named) if isinstance(named, list) else (str(named),), rule.right_anyway)
