"""Runs a command as it would run in a locked-down container.

    python tests/locked_down.py [--] COMMAND ...

What such a container takes away, and so does this: namespaces and mounts (a
seccomp filter answers EPERM to unshare, setns, mount, pivot_root and to clone
with a namespace flag; clone3 is ENOSYS so that the C library falls back to
clone), writing to cgroups (mounted read-only where this process may do that),
and every capability that a container engine does not hand out by default.
The rest stays as it is. x86-64 and aarch64.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from typing import NoReturn

EPERM, ENOSYS = 1, 38
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
CLONE_NEWNS = 0x20000
# mount, cgroup, uts, ipc, user, pid, net and time namespaces
NAMESPACE_FLAGS = CLONE_NEWNS | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_CAPBSET_DROP = 38, 22, 24
SECCOMP_MODE_FILTER = 2
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod,
# audit_write, setfcap: what container engines leave to root.
KEPT_CAPABILITIES = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}

# The same in every architecture: open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr.
NEW_MOUNT_API = (428, 429, 430, 431, 432, 433, 442)
CLONE3 = 435
ARCHITECTURES = {  # audit number; clone; unshare, setns, mount, umount2, pivot_root
    "x86_64": (0xC000003E, 56, (272, 308, 165, 166, 155)),
    "aarch64": (0xC00000B7, 220, (97, 268, 40, 39, 41)),
}

LOAD, JUMP_EQUAL, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000

libc = ctypes.CDLL(None, use_errno=True)


def filter_program(machine: str) -> bytes:
    """The filter as classic BPF: struct sock_filter {u16 code; u8 jt, jf; u32 k} each."""
    audit, clone, denied = ARCHITECTURES[machine]
    code: list[tuple[int, int, int, int]] = [
        (LOAD, 0, 0, 4),  # seccomp_data.arch
        (JUMP_EQUAL, 1, 0, audit),
        (RETURN, 0, 0, ERRNO | ENOSYS),
        (LOAD, 0, 0, 0),  # seccomp_data.nr
    ]
    for number in (*denied, *NEW_MOUNT_API):
        code += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | EPERM)]
    code += [
        (JUMP_EQUAL, 0, 1, CLONE3),
        (RETURN, 0, 0, ERRNO | ENOSYS),
        (JUMP_EQUAL, 0, 3, clone),
        (LOAD, 0, 0, 16),  # the low half of the first argument
        (JUMP_ANY_BIT, 0, 1, NAMESPACE_FLAGS),
        (RETURN, 0, 0, ERRNO | EPERM),
        (RETURN, 0, 0, ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in code)


def install_filter(machine: str) -> None:
    """Filters this process and all that it starts; OSError when the kernel refuses."""
    body = filter_program(machine)
    lines = ctypes.create_string_buffer(body, len(body))
    program = struct.pack("@HP", len(body) // 8, ctypes.addressof(lines))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) != 0:
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # without CAP_SYS_ADMIN a filter wants this first
        if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "the seccomp filter was refused")


def cgroups_read_only() -> None:
    """In a mount namespace of its own; without the right to do that they are not writable anyway."""
    if os.geteuid() != 0 or libc.unshare(CLONE_NEWNS) != 0:
        return
    libc.mount(None, b"/", None, MS_REC | MS_SLAVE, None)
    with open("/proc/self/mountinfo", "rb") as lines:
        points = [line.split()[4] for line in lines]
    for point in points:
        if point == b"/sys/fs/cgroup" or point.startswith(b"/sys/fs/cgroup/"):
            libc.mount(None, point, None, MS_BIND | MS_REMOUNT | MS_RDONLY, None)


def drop_capabilities() -> None:
    """From the bounding set, so that they are gone after the exec that follows."""
    for number in range(64):
        if number not in KEPT_CAPABILITIES:
            libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


def main(arguments: list[str]) -> NoReturn:
    """Locks down, then becomes the command; leaves with 2 when it cannot."""
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    machine = platform.machine()
    if not command or machine not in ARCHITECTURES:
        print(__doc__ if not command else f"{machine}: no filter for this architecture", file=sys.stderr)
        sys.exit(2)
    cgroups_read_only()
    install_filter(machine)
    drop_capabilities()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
