"""System calls that the standard library does not wrap. Raises ``OSError``; changes nothing by itself."""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import os
import struct
import sys
from collections.abc import Callable
from typing import Any

# PyDLL keeps the interpreter lock: these calls are short, and between fork and
# exec giving it away would only let something else run.
_LIBC = ctypes.PyDLL(None, use_errno=True)
# Bound once: each first use in a forked process would copy pages.
_PRCTL, _FFLUSH = _LIBC.prctl, _LIBC.fflush
_PRCTL.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
_MACHINE = os.uname().machine

NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE, MS_NOSYMFOLLOW, MS_NOATIME = 4096, 16384, 1 << 18, 256, 1024
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECCOMP = 1, 4, 24, 22
PR_SET_SECUREBITS, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 28, 36, 38, 47
SECUREBITS_LOCKED = 0b101011  # NOROOT on; NO_SETUID_FIXUP and KEEP_CAPS off; each locked
ADDR_NO_RANDOMIZE = 0x0040000

_NUMBERS = {  # x86-64, aarch64
    "pivot_root": (155, 41),
    "close_range": (436, 436),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "capset": (126, 91),
    "personality": (135, 92),
    "mount_setattr": (442, 442),
}
_CAPSET, _NO_CAPABILITIES = struct.pack("=Ii", 0x20080522, 0), bytes(24)
_COLUMN = 0 if _MACHINE == "x86_64" else 1


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(name: str, *args: Any) -> int:
    return _check(_LIBC.syscall(_NUMBERS[name][_COLUMN], *args), name)


def unshare(flags: int) -> None:
    """Leave the namespaces named by ``flags``."""
    _check(_LIBC.unshare(flags), f"unshare {flags:#x}")


def setns(fd: int, kind: int) -> None:
    """Join the namespace that ``fd`` refers to."""
    _check(_LIBC.setns(fd, kind), "setns")


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str | None = None) -> None:
    """mount(2); paths are encoded as the file system's."""
    encode: Callable[[str | None], bytes | None] = lambda text: None if text is None else os.fsencode(text)  # noqa: E731
    _check(
        _LIBC.mount(encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(data)),
        f"mount {target}",
    )


def mount_readonly(target: str) -> None:
    """Make the mount at ``target``, and all below it, read-only, nosuid and nodev."""
    attributes = struct.pack("=QQQQ", 1 | 2 | 4, 0, 0, 0)
    try:
        _syscall(
            "mount_setattr",
            ctypes.c_int(-100),
            os.fsencode(target),
            ctypes.c_uint(0x8000),
            attributes,
            ctypes.c_size_t(32),
        )
    except OSError:  # before Linux 5.12: only the top mount, its locked flags kept
        locked = MS_NOEXEC if os.statvfs(target).f_flag & os.ST_NOEXEC else 0
        mount("none", target, None, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | locked)


def umount(target: str, flags: int = 0) -> None:
    """umount2(2)."""
    _check(_LIBC.umount2(os.fsencode(target), flags), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """Make ``new`` the root of this mount namespace and hang the old one below it."""
    _syscall("pivot_root", os.fsencode(new), os.fsencode(old))


def prctl(option: int, a: int = 0, b: int = 0, c: int = 0, d: int = 0) -> int:
    """prctl(2) with plain numbers."""
    return _check(_PRCTL(option, a, b, c, d), "prctl")


def close_range(first: int) -> None:
    """Close every descriptor from ``first`` on; falls back to a loop on old kernels."""
    try:
        _syscall("close_range", ctypes.c_uint(first), ctypes.c_uint(0xFFFFFFFF), ctypes.c_uint(0))
    except OSError:
        os.closerange(first, 65_536)


def filesystem(fd: int) -> int:
    """Number of the kind of file system that an open file lies on (``f_type`` of fstatfs)."""
    buffer = ctypes.create_string_buffer(256)
    _check(_LIBC.fstatfs(fd, buffer), "fstatfs")
    return int.from_bytes(buffer.raw[:8], sys.byteorder)


def loopback_up() -> None:
    """Switch on the loopback of this network namespace."""
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        fcntl.ioctl(
            sock.fileno(), 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40)
        )  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING
    finally:
        sock.close()


def set_hostname(name: str) -> None:
    """sethostname(2) in this UTS namespace."""
    data = name.encode()
    _check(_LIBC.sethostname(data, ctypes.c_size_t(len(data))), "sethostname")


def personality(persona: int) -> int:
    """Set the persona and return the one before; 0xffffffff only asks."""
    return _syscall("personality", ctypes.c_ulong(persona))


# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL: root's power over files and processes of its own namespaces.
CAPABILITIES_OF_ROOT = 0b111011
_IDENTITY = 1 << 6 | 1 << 7 | 1 << 8  # setgid, setuid, setpcap


def changes_identity() -> bool:
    """This process has the capabilities to become somebody else for good."""
    with open("/proc/self/status") as file:
        row = next(line for line in file if line.startswith("CapEff:"))
    return int(row.split()[1], 16) & _IDENTITY == _IDENTITY


def drop_bounding_set(keep: int = 0) -> None:
    """Empty the capability bounding set but for ``keep``: no exec gives another capability back."""
    for capability in range(64):
        try:
            if not keep >> capability & 1:
                prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            break  # past the last one that this kernel knows


def drop_capabilities(keep: int = 0) -> None:
    """Clear the ambient, effective, permitted and inheritable sets of this process but for ``keep`` (a mask below 1 << 32).

    What is kept lasts through an exec.
    """
    try:
        prctl(PR_CAP_AMBIENT, 4)
    except OSError:
        pass  # no ambient set in this kernel: nothing to clear
    _syscall("capset", _CAPSET, struct.pack("=6I", keep, keep, keep, 0, 0, 0) if keep else _NO_CAPABILITIES)
    for capability in range(keep.bit_length()):
        try:
            if keep >> capability & 1:
                prctl(PR_CAP_AMBIENT, 2, capability)
        except OSError:
            break  # no such set, as in gVisor: there root has what is in its bounding set


def flush_libc() -> None:
    """Write out what C code in this process has left in its stdio buffers."""
    _FFLUSH(None)


# Under a script's frames lies main.py's, and before 3.12 its call of exec counts too.
OUR_DEPTH = 1 if sys.version_info >= (3, 12) else 2


def lower_depth(frames: int) -> None:
    """Let ``frames`` of the frames under the caller not count towards the recursion limit.

    The count lies beside the limit in the thread's state, whose layout is the
    version's own: it is looked for by a limit that nothing else there has, and
    left alone when it is not found.
    """
    limit, mark = sys.getrecursionlimit(), 54_321
    state = ctypes.pythonapi.PyThreadState_Get
    state.restype = ctypes.c_void_p
    sys.setrecursionlimit(mark)
    words = (ctypes.c_int * 64).from_address(state())
    places = [i for i in range(1, 64) if words[i] == mark and 0 < mark - words[i - 1] < 200]
    if len(places) == 1:
        words[places[0] - 1] += frames
    sys.setrecursionlimit(limit)


def set_flag(name: str, value: int) -> None:
    """Change a field of ``sys.flags``, which is a tuple that nobody may make a second of."""
    place = type(sys.flags).__match_args__.index(name)
    item = ctypes.c_void_p.from_address(id(sys.flags) + tuple.__basicsize__ + place * ctypes.sizeof(ctypes.c_void_p))
    if item.value == id(sys.flags[place]):
        item.value = id(value)  # both are small numbers, which live for ever


def hide_arguments(text: bytes) -> None:
    """Write ``text`` over this process's command line, as far as it fits; zeros fill the rest."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, min(len(text), end - start - 1))


def exact_times() -> bool:
    """A file's change time tells two changes apart that follow one another (Linux 6.13+), not only those of two ticks."""
    fd = os.memfd_create("times", os.MFD_CLOEXEC)
    times = []
    for mode in (0o600, 0o400, 0o600, 0o400):
        os.fchmod(fd, mode)
        times.append(os.fstat(fd).st_ctime_ns)
    os.close(fd)
    return len(set(times)) == len(times)


def public(path: str) -> bool:
    """Any user may run the file at ``path``."""
    if not os.stat(path).st_mode & 0o001:
        return False
    while path != "/":
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & 0o001:
            return False
    return True


def signalfd(signals: set[int]) -> int:
    """A descriptor that reads as ready while one of the (blocked) signals is pending."""
    mask = bytearray(128)
    for number in signals:
        mask[(number - 1) // 8] |= 1 << ((number - 1) % 8)
    return _check(_LIBC.signalfd(-1, bytes(mask), 0o2004000), "signalfd")  # CLOEXEC | NONBLOCK


_filters: dict[bytes, tuple[int, Any]] = {}


def seccomp_prepare(program: bytes) -> int:
    """The address of a filter's descriptor, kept for ``seccomp_load`` in this process and its forks."""
    if program not in _filters:
        buffer = ctypes.create_string_buffer(program, len(program))
        packed = struct.pack("@HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
        holder = ctypes.create_string_buffer(packed, len(packed))
        _filters[program] = ctypes.addressof(holder), (buffer, holder)
    return _filters[program][0]


def seccomp_load(program: bytes) -> None:
    """Install a classic BPF filter on this process and all that come from it."""
    prctl(PR_SET_SECCOMP, 2, seccomp_prepare(program))


def landlock_create(attributes: bytes | None, flags: int = 0) -> int:
    """A ruleset's descriptor, or with ``flags=1`` and no attributes the ABI version."""
    size = ctypes.c_size_t(len(attributes) if attributes else 0)
    return _syscall("landlock_create_ruleset", attributes, size, ctypes.c_uint(flags))


def landlock_add_path(ruleset: int, access: int, fd: int) -> None:
    """Allow ``access`` beneath the open directory (or on the file) ``fd``."""
    _syscall(
        "landlock_add_rule", ctypes.c_int(ruleset), ctypes.c_int(1), struct.pack("=Qi", access, fd), ctypes.c_uint(0)
    )


def landlock_restrict(ruleset: int) -> None:
    """Hold this process, and all that come from it, to the ruleset for good."""
    _syscall("landlock_restrict_self", ctypes.c_int(ruleset), ctypes.c_uint(0))
