"""The system call filter, run instruction by instruction: both architectures, every number, the arguments that matter."""

from __future__ import annotations

import struct

import pytest

from proctor.guest import seccomp, syscalls

ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, KILL, EPERM, ENOSYS, DONE, ENOTSUP = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026, 0x00050000, 0x0005005F


def verdict(program: bytes, arch: int, number: int, *args: int) -> int:
    """What the kernel would return for one call: an interpreter of the few instructions that the filter uses."""
    args = args + (0,) * (6 - len(args))
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *(a & 0xFFFFFFFFFFFFFFFF for a in args))
    code = list(struct.iter_unpack("=HBBI", program))
    word, at, steps = 0, 0, 0
    while True:
        op, yes, no, k = code[at]
        steps += 1
        assert steps < 100, "a search over ranges is short"
        at += 1
        if op == 0x20:
            word = struct.unpack_from("<I", data, k)[0]
        elif op == 0x05:
            at += k
        elif op == 0x54:
            word &= k
        elif op == 0x06:
            return k
        else:
            true = {0x15: word == k, 0x35: word >= k, 0x45: bool(word & k)}[op]
            at += yes if true else no


@pytest.fixture(params=sorted(ARCHES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_number_gets_what_the_table_says(machine: str) -> None:
    program, arch = seccomp.build(machine), ARCHES[machine]
    names = {number: name for name, number in syscalls.numbers(machine).items()}
    allowed = set(syscalls.allowed(machine).values())
    top = max(names)
    for number in range(top + 1):
        name = names.get(number)
        if name in syscalls.BY_ARGUMENT or name in ("setrlimit", "prlimit64"):
            continue
        refused = ENOTSUP if name in syscalls.EXTENDED else EPERM
        assert verdict(program, arch, number) == (ALLOW if number in allowed else refused), (number, name)
    for number in (top + 1, 600, 5000, 0x3FFFFFFF, 0x40000000 + 39, 0xFFFFFFFF):
        assert verdict(program, arch, number) == ENOSYS


def test_another_architecture_is_killed(machine: str) -> None:
    program = seccomp.build(machine)
    for arch in (0x40000003, 0x40000028, *(set(ARCHES.values()) - {ARCHES[machine]})):
        assert verdict(program, arch, syscalls.numbers(machine)["read"]) == KILL


def test_clone_makes_threads_and_processes_but_no_namespaces(machine: str) -> None:
    program, arch, numbers = seccomp.build(machine), ARCHES[machine], syscalls.numbers(machine)
    assert verdict(program, arch, numbers["clone"], 17) == ALLOW
    assert verdict(program, arch, numbers["clone"], 0x3D0F00) == ALLOW
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(program, arch, numbers["clone"], flag | 17) == EPERM
    assert verdict(program, arch, numbers["clone3"]) == ENOSYS


def test_sockets(machine: str) -> None:
    arch, numbers = ARCHES[machine], syscalls.numbers(machine)
    open_, shut = seccomp.build(machine), seccomp.build(machine, network=False)
    for family in (1, 2, 10):
        assert verdict(open_, arch, numbers["socket"], family, 1 | 0x80000) == ALLOW
        assert verdict(open_, arch, numbers["socket"], family, 3) == EPERM  # raw
        assert verdict(shut, arch, numbers["socket"], family, 1) != ALLOW
    for family in (16, 17, 38, 40):  # netlink, packet, alg, vsock
        assert verdict(open_, arch, numbers["socket"], family, 2) != ALLOW
    for program in (open_, shut):
        assert verdict(program, arch, numbers["socketpair"], 1, 1) == ALLOW
        assert verdict(program, arch, numbers["socketpair"], 2, 1) != ALLOW


def test_the_core_limit_stays(machine: str) -> None:
    program, arch, numbers = seccomp.build(machine), ARCHES[machine], syscalls.numbers(machine)
    pointer, high_pointer = 0x7FFF00001000, 0x7FFF_0000_0000  # its low half is 0, and yet it is not NULL
    assert verdict(program, arch, numbers["prlimit64"], 0, 4, 0, pointer) == ALLOW  # only asks
    for new in (pointer, high_pointer):
        assert verdict(program, arch, numbers["prlimit64"], 0, 4, new, 0) == DONE
        assert verdict(program, arch, numbers["prlimit64"], 0, 7, new, 0) == ALLOW
    if "setrlimit" in numbers:
        assert verdict(program, arch, numbers["setrlimit"], 4, pointer) == DONE
        assert verdict(program, arch, numbers["setrlimit"], 7, pointer) == ALLOW


def test_named_pipes_but_no_devices(machine: str) -> None:
    program, arch, numbers = seccomp.build(machine), ARCHES[machine], syscalls.numbers(machine)
    for name, before in (("mknod", (0,)), ("mknodat", (0, 0))):
        for mode, want in ((0o010600, ALLOW), (0o100600, ALLOW), (0o600, ALLOW), (0o020600, EPERM), (0o060600, EPERM)):
            if name in numbers:
                assert verdict(program, arch, numbers[name], *before, mode) == want


def test_prctl_and_ioctl_by_list(machine: str) -> None:
    program, arch, numbers = seccomp.build(machine), ARCHES[machine], syscalls.numbers(machine)
    for option, want in (
        (15, ALLOW),
        (3, ALLOW),
        (1, EPERM),
        (4, EPERM),
        (22, EPERM),
        (24, EPERM),
        (28, EPERM),
        (47, EPERM),
    ):
        assert verdict(program, arch, numbers["prctl"], option) == want, option
    for request, good in ((0x5401, True), (0x541B, True), (0x5412, False), (0x541C, False), (0x40086602, False)):
        assert (verdict(program, arch, numbers["ioctl"], 0, request) == ALLOW) is good, hex(request)


def test_with_a_gpu_orders_to_its_driver_pass_as_well(machine: str) -> None:
    program, arch, numbers = seccomp.build(machine, gpu=True), ARCHES[machine], syscalls.numbers(machine)
    plain = seccomp.build(machine)
    # nvidiactl and nvidiaN have the letter F, nvidia-uvm plain numbers and two of its own.
    orders = (0xC00846D6, 0xC020462B, 0xC0384627, 0x30000001, 0x30000002, 1, 0x4B, 0xFF)
    for request in (0x5401, 0x541B, *orders):
        assert verdict(program, arch, numbers["ioctl"], 3, request) == ALLOW, hex(request)
    for request in orders:
        assert verdict(plain, arch, numbers["ioctl"], 3, request) != ALLOW, hex(request)
    # Terminals' input, what files are (letter f), block devices, network interfaces, tunnels, other numbers.
    for request in (0x5412, 0x541C, 0x40086602, 0xC0185879, 0x1260, 0x8927, 0x400454CA, 0x30000003, 0x100, 0x0000AE01):
        assert verdict(program, arch, numbers["ioctl"], 3, request) != ALLOW, hex(request)
    for number in range(max(numbers.values()) + 2):
        if number != numbers["ioctl"]:
            assert verdict(program, arch, number) == verdict(plain, arch, number)


def test_attributes_are_refused_where_no_mount_hides_files(machine: str) -> None:
    program, arch, numbers = seccomp.build(machine, hide_attributes=True), ARCHES[machine], syscalls.numbers(machine)
    for name in syscalls.ATTRIBUTES & set(numbers):
        assert verdict(program, arch, numbers[name]) == EPERM, name


def test_what_a_solution_has_no_business_with(machine: str) -> None:
    numbers = syscalls.numbers(machine)
    for name in [
        "mount",
        "umount2",
        "pivot_root",
        "chroot",
        "unshare",
        "setns",
        "ptrace",
        "bpf",
        "io_uring_setup",
        "keyctl",
        "userfaultfd",
    ]:
        assert name not in numbers
    for name in [
        "sync",
        "syncfs",
        "perf_event_open",
        "process_vm_readv",
        "open_by_handle_at",
        "init_module",
        "kexec_load",
        "shmget",
    ]:
        assert name not in numbers


def test_no_table_for_other_machines() -> None:
    with pytest.raises(ValueError, match="riscv64"):
        seccomp.build("riscv64")


def test_without_a_network_only_pairs_of_streams(machine: str) -> None:
    arch, numbers = ARCHES[machine], syscalls.numbers(machine)
    open_, shut = seccomp.build(machine), seccomp.build(machine, network=False)
    for name in syscalls.SOCKETS:
        assert verdict(open_, arch, numbers[name], 3, 1) == ALLOW
        assert verdict(shut, arch, numbers[name], 3, 1) == EPERM, name
    for kind in (2, 3, 4, 5, 2 | 0x80800):  # a datagram socket can send to a path
        assert verdict(shut, arch, numbers["socketpair"], 1, kind) == EPERM, kind
    assert verdict(shut, arch, numbers["socketpair"], 1, 1 | 0x80800) == ALLOW
    assert verdict(shut, arch, numbers["sendto"], 3, 1 << 40, 5, 0, 0, 0) == ALLOW
    for address in (0x7FFF00001000, 0x7FFF_0000_0000, 8):
        assert verdict(shut, arch, numbers["sendto"], 3, 1 << 40, 5, 0, address, 16) == EPERM
        assert verdict(open_, arch, numbers["sendto"], 3, 1 << 40, 5, 0, address, 16) == ALLOW


BY_PID = [
    "getpgid",
    "getsid",
    "get_robust_list",
    "sched_getaffinity",
    "sched_getattr",
    "sched_getparam",
    "sched_getscheduler",
    "sched_rr_get_interval",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "prlimit64",
]


@pytest.mark.parametrize("name", BY_PID)
def test_other_processes_have_no_numbers_without_namespaces(machine: str, name: str) -> None:
    arch, number = ARCHES[machine], syscalls.numbers(machine)[name]
    inside, degraded = seccomp.build(machine), seccomp.build(machine, network=False, hide_attributes=True)
    assert verdict(degraded, arch, number, 0, 7) == ALLOW
    for pid in (1, 4000, 0xFFFFFFFF):
        assert verdict(inside, arch, number, pid, 7) == ALLOW
        assert verdict(degraded, arch, number, pid, 7) == (ENOSYS if name == "sched_getaffinity" else EPERM)


@pytest.mark.parametrize("name", ["setpriority", "getpriority"])
def test_priority_is_ones_own_without_namespaces(machine: str, name: str) -> None:
    arch, number = ARCHES[machine], syscalls.numbers(machine)[name]
    degraded = seccomp.build(machine, network=False, hide_attributes=True)
    assert verdict(degraded, arch, number, 0, 0) == ALLOW
    for which, who in ((0, 1), (0, 4000), (1, 0), (1, 77), (2, 0), (2, 65534)):
        assert verdict(degraded, arch, number, which, who) == EPERM, (which, who)


def test_what_else_reaches_past_landlock_without_namespaces(machine: str) -> None:
    arch, numbers = ARCHES[machine], syscalls.numbers(machine)
    inside, degraded = seccomp.build(machine), seccomp.build(machine, network=False, hide_attributes=True)
    for name in syscalls.WATCHES & set(numbers):
        assert verdict(inside, arch, numbers[name]) == ALLOW
        assert verdict(degraded, arch, numbers[name]) == EPERM, name
    for command in range(1100):
        owner = command in (8, 10, 15)  # F_SETOWN, F_SETSIG, F_SETOWN_EX
        assert verdict(degraded, arch, numbers["fcntl"], 3, command) == (EPERM if owner else ALLOW), command
    for name in ["clock_getres", "clock_gettime", "clock_nanosleep", "timer_create"]:
        for pid, fine in ((0, True), (1, False), (2, True), (4000, True)):  # of pid 1, the jail, nobody asks
            assert (verdict(inside, arch, numbers[name], (~pid << 3) | 2) == ALLOW) is fine, pid
            assert (verdict(inside, arch, numbers[name], (~pid << 3) | 6) == ALLOW) is fine, pid
        for clock in (0, 1, 2, 3, 11, -1, -2, -6, -8):
            assert verdict(degraded, arch, numbers[name], clock) == ALLOW, clock
        for pid in (1, 4000, 4_000_000):
            assert verdict(degraded, arch, numbers[name], (~pid << 3) | 2) & 0xFFFF0000 == 0x00050000, pid
    pointer = 0x7FFF00001000
    assert verdict(degraded, arch, numbers["prlimit64"], 0, 4, pointer, 0) == DONE


def test_children_stay_to_be_waited_for_where_they_are_summed_up(machine: str) -> None:
    arch, numbers = ARCHES[machine], syscalls.numbers(machine)
    plain = seccomp.build(machine)
    program = seccomp.counting(plain, machine)
    number = numbers["rt_sigaction"]
    for pointer in (0x7FFF00001000, 0x7FFF_0000_0000, 8):
        assert verdict(program, arch, number, 17, pointer) == 0x00050000  # as if it were done
        assert verdict(program, arch, number, 2, pointer) == ALLOW
    assert verdict(program, arch, number, 17, 0, 0x7FFF00001000) == ALLOW  # only asks
    for other in range(700):
        if other != number:
            assert verdict(program, arch, other, 17, 3) == verdict(plain, arch, other, 17, 3)
    assert verdict(program, 0x40000003, number) == KILL
