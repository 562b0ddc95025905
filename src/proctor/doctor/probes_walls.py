"""Probes of what a program may see and reach: network, processes, files, kernel."""

from __future__ import annotations

from dataclasses import replace

from proctor.doctor.probe import LIMITS, Probe, nothing_worked

NAMESPACES = (
    "run as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0, "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container, a seccomp profile that lets unshare and mount through"
)
LANDLOCK = f"Linux 6.12 or newer with Landlock in the lsm= boot option; or {NAMESPACES}"
SECCOMP = "a kernel with CONFIG_SECCOMP_FILTER (every distribution's has it)"

WALLS: tuple[Probe, ...] = (
    Probe(
        key="network",
        title="no network, not even loopback",
        visits=("tcp", "udp"),
        judge=nothing_worked,
        remedy=LANDLOCK,
        program="""
        def tcp(address, port):
            box = socket.create_connection((address, port), timeout=0.5)
            return box.recv(100).decode("latin-1") or None
        def udp(address, port):
            box = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            box.settimeout(0.3)
            box.connect((address, port))
            box.send(b"probe")
            box.recv(10)  # ECONNREFUSED when nobody is there
        def raw(family, kind, protocol):
            socket.socket(family, kind, protocol).close()
        attempt("loopback TCP", lambda: tcp("127.0.0.1", host["tcp"]))
        attempt("loopback TCP through 0.0.0.0", lambda: tcp("0.0.0.0", host["tcp"]))
        attempt("loopback TCP over IPv6", lambda: tcp("::ffff:127.0.0.1", host["tcp"]))
        attempt("loopback UDP", lambda: udp("127.0.0.1", host["udp"]))
        attempt("interfaces", lambda: [n for _, n in socket.if_nameindex() if n != "lo" and n not in ("sit0", "tunl0", "ip6tnl0")] or False)
        attempt("packet socket", lambda: raw(17, socket.SOCK_RAW, 0x300))
        attempt("raw socket", lambda: raw(socket.AF_INET, socket.SOCK_RAW, 1))
        attempt("vsock", lambda: raw(40, socket.SOCK_STREAM, 0))
        attempt("kernel crypto socket", lambda: raw(38, socket.SOCK_SEQPACKET, 0))
        done()
        """,
    ),
    Probe(
        key="unix_sockets",
        title="the host's unix sockets are out of reach",
        visits=("unix",),
        judge=nothing_worked,
        remedy=LANDLOCK,
        program="""
        def reach(name):
            box = socket.socket(socket.AF_UNIX)
            box.settimeout(0.5)
            box.connect(name)
        attempt("abstract socket", lambda: reach("\\0escape_mark_host"))
        for name in ("/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
                     f"/run/user/{os.getuid()}/bus", "/tmp/.X11-unix/X0"):
            attempt(name, lambda: reach(name))
        attempt("list of sockets", lambda: [n for n in open("/proc/net/unix").read().split() if "escape_mark_host" in n] or False)
        done()
        """,
    ),
    Probe(
        key="processes",
        title="the host's processes are invisible",
        judge=nothing_worked,
        remedy=NAMESPACES,
        program="""
        def command(pid):
            text = open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\\0", b" ").decode("latin-1")
            return f"{pid} {text[:40]}"
        pid = host["pid"]
        attempt("the beacon's command line", lambda: "beacon" in command(pid) and "read")
        attempt("the beacon's environment", lambda: len(open(f"/proc/{pid}/environ", "rb").read()) > 0)
        attempt("the beacon's namespaces", lambda: os.readlink(f"/proc/{pid}/ns/net") and "beacon" in command(pid))
        family = {os.getpid(), os.getppid(), 1}
        attempt("processes", lambda: [p for p in os.listdir("/proc") if p.isdigit() and int(p) not in family][:3] or False)
        attempt("command line of process 1", lambda: open("/proc/1/cmdline").read()[:30] if os.getppid() not in (0, 1) else False)
        done()
        """,
    ),
    Probe(
        key="signals",
        title="no signal reaches a process outside",
        visits=("signals",),
        judge=nothing_worked,
        remedy=LANDLOCK,
        program="""
        import signal
        pid = host["pid"]
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            attempt(f"signal {number} to process {pid}", lambda: os.kill(pid, number))
        attempt("signal to the parent", lambda: os.kill(os.getppid(), signal.SIGCONT) if os.getppid() > 1 else False)
        attempt("priority of another process", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
        done()
        """,
    ),
    Probe(
        key="host_files",
        title="files of the host and homes are invisible",
        judge=nothing_worked,
        remedy=LANDLOCK,
        program="""
        for path in host["files"]:
            attempt(path, lambda: "read" if open(path, "rb").read(50) else False)
        for path in ("/etc/shadow", "/etc/ssh/sshd_config", "/etc/machine-id", "/proc/kcore", "/dev/mem"):
            attempt(path, lambda: "read" if open(path, "rb").read(50) else False)
        for path in dict.fromkeys((host["home"], "/root", "/home", "/var/lib", "/var/log", "/boot", "/srv", "/mnt")):
            # A folder may be there that leads to the interpreter, as on the host; nothing beside that.
            attempt(path, lambda: [n for n in os.listdir(path) if not (sys.base_prefix + "/").startswith(f"{path}/{n}/")][:3] or False)
        done()
        """,
    ),
    Probe(
        key="environment",
        title="no variable of the trainer's environment",
        judge=nothing_worked,
        remedy="nothing: this is a fault of Proctor's, please report it",
        program="""
        tried += 1
        got += [name for name in os.environ if "CANARY" in name or name in host["names"]]
        attempt("initial environment", lambda: b"CANARY" in open("/proc/self/environ", "rb").read())
        done()
        """,
    ),
    Probe(
        key="writes",
        title="nothing but /workspace, /tmp and a private /dev/shm can be written",
        judge=nothing_worked,
        remedy=LANDLOCK,
        program="""
        def write(folder):
            path = os.path.join(folder, "escape_mark_write")
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            os.unlink(path)
        for folder in ("/", "/etc", "/usr", "/usr/bin", "/usr/lib", "/bin", "/lib", "/opt", "/srv", "/home", "/root", "/run", "/run/lock",
                       "/var", "/var/tmp", "/dev", "/dev/mqueue", sys.prefix, os.path.dirname(os.__file__),
                       os.path.dirname(os.path.realpath(sys.executable)), host["home"]):
            attempt(folder, lambda: write(folder))
        attempt("the victim", lambda: os.close(os.open("/tmp/escape_mark_victim", os.O_WRONLY)))
        attempt("the victim's mode", lambda: os.chmod("/tmp/escape_mark_victim", 0o666))
        attempt("the victim's times", lambda: os.utime("/tmp/escape_mark_victim"))
        done()
        """,
    ),
    Probe(
        key="system_calls",
        limits=replace(LIMITS, cpu_s=5.0),  # a process for each, which takes a while where forks are slow
        title="system calls that solutions do not need are refused",
        judge=nothing_worked,
        remedy=SECCOMP,
        program="""
        import platform
        X86 = platform.machine() == "x86_64"
        NONE = b"/escape_mark_none"
        # Numbers for x86-64 and aarch64; arguments that do nothing even where the call is let through.
        CALLS = {
            "mount": (165, 40), "umount2": (166, 39, NONE), "pivot_root": (155, 41, NONE, NONE), "chroot": (161, 51, NONE),
            "swapon": (167, 224, NONE), "setns": (308, 268, -1), "init_module": (175, 105), "finit_module": (313, 273, -1),
            "kexec_load": (246, 104, 0, 1, 0, 0xFFF0), "bpf": (321, 280, 9999), "perf_event_open": (298, 241, 0, 0, -1, -1),
            "userfaultfd": (323, 282, 0x7FFF0000), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426, -1),
            "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219, 9999), "ptrace": (101, 117, 9999),
            "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272, 0, 0, 99),
            "pidfd_getfd": (438, 438, -1), "open_by_handle_at": (304, 265, -1), "fanotify_init": (300, 262, -1),
            "quotactl": (179, 60, -1), "acct": (163, 89, NONE), "syslog": (103, 116, 9999), "clock_settime": (227, 112, 9999),
            "adjtimex": (159, 171), "reboot": (169, 142, 1, 1, 1), "move_mount": (429, 429, -1, 0, -1), "open_tree": (428, 428, -1, 0, -1),
            "fsopen": (430, 430), "mount_setattr": (442, 442, -1, 0, -1), "memfd_secret": (447, 447, -1), "clone3": (435, 435),
            "migrate_pages": (256, 238, -1), "move_pages": (279, 239, -1), "personality": (135, 92, 0xFFFFFFFF),
        }
        if X86:
            CALLS |= {"iopl": (172, 0, 9999), "ioperm": (173, 0, -1, -1), "modify_ldt": (154, 0, 9999), "x32 getpid": (0x40000000 + 39, 0)}
        def call(numbers):
            kid = os.fork()
            if kid == 0:
                result = libc.syscall(numbers[0 if X86 else 1], *numbers[2:], *[0] * (7 - len(numbers)))
                os._exit(ctypes.get_errno() & 127 if result < 0 else 126)
            status = os.waitpid(kid, 0)[1]
            # EPERM, ENOSYS or death: the kernel's own code was not reached.
            return not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) not in (1, 38)
        for name, numbers in CALLS.items():
            attempt(name, lambda: call(numbers))
        done()
        """,
    ),
    Probe(
        key="namespaces",
        title="no new namespaces, where kernel attack surface begins",
        judge=nothing_worked,
        remedy=SECCOMP,
        program="""
        FLAGS = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000}
        def unshare(flags):
            kid = os.fork()
            if kid == 0:
                os._exit(libc.unshare(flags) == 0)
            return os.WEXITSTATUS(os.waitpid(kid, 0)[1]) == 1
        for name, flag in FLAGS.items():
            attempt(name, lambda: unshare(flag))
            attempt(f"user and {name}", lambda: unshare(flag | FLAGS["user"]))
        done()
        """,
    ),
    Probe(
        key="kernel_files",
        title="the kernel's control files cannot be written",
        judge=nothing_worked,
        remedy=LANDLOCK,
        program="""
        def writable(path):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sysrq-trigger", "/proc/sys/vm/drop_caches",
                     "/proc/sys/fs/binfmt_misc/register", "/proc/sys/vm/overcommit_memory", "/proc/1/oom_score_adj",
                     "/sys/kernel/uevent_helper", "/sys/power/state",
                     "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/tasks", "/sys/fs/cgroup/pids/tasks"):
            attempt(path, lambda: writable(path))
        def spare():
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("-1")
        def map_root():
            with open("/proc/self/uid_map", "w") as file:
                file.write("0 0 1")
        if not host["own_kernel"]:  # gVisor takes the word and kills nobody for memory
            attempt("spares itself from the OOM killer", spare)
        attempt("root in its own user namespace", map_root)
        done()
        """,
    ),
    Probe(
        key="privileges",
        title="an ordinary user without capabilities, for good",
        judge=nothing_worked,
        remedy="a kernel with no_new_privs (3.5 or newer); nothing to install",
        program="""
        PR_CAPBSET_READ, PR_GET_NO_NEW_PRIVS, PR_GET_SECCOMP = 23, 39, 21
        attempt("is root", lambda: os.getuid() == 0 or os.geteuid() == 0 or os.getgid() == 0)
        attempt("groups of root", lambda: [g for g in os.getgroups() if g < 100] or False)
        attempt("becomes root", lambda: os.setuid(0))
        attempt("group root", lambda: os.setgid(0))
        attempt("drops its groups", lambda: os.setgroups([]))
        attempt("new privileges by exec", lambda: libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
        attempt("no system call filter", lambda: libc.prctl(PR_GET_SECCOMP, 0, 0, 0, 0) != 2)
        def capabilities():
            # capget: header {version, pid}, data three words twice: effective, permitted, inheritable
            head, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
            if libc.capget(head, data) != 0:
                raise OSError
            return hex(data[0] | data[1] | data[3] | data[4]) if any(data) else False
        attempt("capabilities", capabilities)
        def setuid_program():
            import subprocess
            for path in ("/usr/bin/su", "/usr/bin/newgrp", "/usr/bin/passwd", "/bin/mount"):
                if os.path.exists(path) and os.stat(path).st_mode & 0o4000 and not os.statvfs(path).f_flag & os.ST_NOSUID:
                    return "file system honours setuid" if libc.prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 else False
            return False
        attempt("setuid programs", setuid_program)
        attempt("real-time scheduling", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
        if not host["own_kernel"]:  # gVisor takes the number and gives nothing for it
            attempt("higher priority", lambda: os.nice(-1) < 0)
        done()
        """,
    ),
    Probe(
        key="devices",
        title="no device but null, zero, full and random",
        judge=nothing_worked,
        remedy=LANDLOCK,
        program="""
        import stat
        attempt("makes a block device", lambda: os.mknod("escape_mark_b", 0o600 | stat.S_IFBLK, os.makedev(8, 0)))
        attempt("makes a character device", lambda: os.mknod("escape_mark_c", 0o600 | stat.S_IFCHR, os.makedev(1, 1)))
        for name in ("mem", "kmem", "port", "kmsg", "sda", "vda", "nvme0n1", "loop0", "loop-control", "fuse", "kvm", "net/tun",
                     "mapper/control", "nvidia0", "nvidiactl", "dri/card0", "input/event0", "ptmx", "tty", "console", "vhost-net"):
            attempt("/dev/" + name, lambda: os.close(os.open("/dev/" + name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)))
        done()
        """,
    ),
    Probe(
        key="descriptors",
        title="no open file of the engine is inherited",
        judge=nothing_worked,
        remedy="nothing: this is a fault of Proctor's, please report it",
        program="""
        import fcntl
        for fd in range(3, 64):
            attempt(f"descriptor {fd}", lambda: fcntl.fcntl(fd, fcntl.F_GETFD) >= 0)
        for fd in range(3):
            attempt(f"terminal on {fd}", lambda: os.isatty(fd))
        done()
        """,
    ),
    Probe(
        key="identity",
        title="the host's name and identity are not shown",
        judge=nothing_worked,
        remedy=NAMESPACES,
        program="""
        attempt("host name", lambda: host["name"] in (os.uname().nodename, socket.gethostname()) and "localhost" != host["name"])
        for path in ("/etc/hostname", "/etc/hosts"):
            attempt(path, lambda: host["name"] in open(path).read().split() and "localhost" != host["name"])
        for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/sys/class/dmi/id/product_uuid", "/proc/cmdline",
                     "/var/lib/dbus/machine-id"):
            attempt(path, lambda: len(text := open(path).read()) > 0 and not (host["own_kernel"] and text != host["cmdline"]))
        done()
        """,
    ),
    Probe(
        key="ipc",
        title="no shared memory with other programs of the host",
        judge=nothing_worked,
        remedy=NAMESPACES,
        program="""
        libc.shmat.restype = ctypes.c_void_p
        def attach(number):
            at = libc.shmat(number, None, 0o10000)  # SHM_RDONLY
            return "read" if at not in (None, ctypes.c_void_p(-1).value) else False
        if host["shm"] is not None:
            attempt("the host's System V segment", lambda: attach(host["shm"]))
        attempt("new System V segment", lambda: libc.shmget(0, 4096, 0o1600) >= 0 and attach(host["shm"] or 0))
        attempt("files of /dev/shm", lambda: [n for n in os.listdir("/dev/shm") if "escape_mark" in n] or False)
        done()
        """,
    ),
    Probe(
        key="leftovers",
        title="a case leaves no file, process or segment for the next",
        judge=nothing_worked,
        stages=("plant", "look"),
        remedy=NAMESPACES,
        program="""
        import signal
        FOLDERS = ("/workspace", "/tmp", "/dev/shm", "/var/tmp", "/run/lock", os.getcwd(), os.environ.get("HOME", "/"))
        KEY, NAME = 0x45534350, "\\0escape_mark_left"
        tried += 1
        if host["stage"] == "plant":
            for folder in FOLDERS:
                try:
                    open(os.path.join(folder, "escape_mark_left"), "w").close()
                except OSError:
                    pass
            libc.shmget(KEY, 4096, 0o1666)
            libc.semget(KEY, 1, 0o1666)
            libc.msgget(KEY, 0o1666)
            if os.fork() == 0:
                signal.alarm(10)
                os.setsid()
                if os.fork() == 0:
                    signal.alarm(10)
                    box = socket.socket(socket.AF_UNIX)
                    box.bind(NAME)
                    box.listen()
                    for fd in range(3):
                        os.close(fd)
                    signal.pause()
                os._exit(0)
            os.wait()
        else:
            for folder in FOLDERS:
                attempt(f"file in {folder}", lambda: os.stat(os.path.join(folder, "escape_mark_left")) and True)
            attempt("shared memory", lambda: libc.shmget(KEY, 4096, 0o666) >= 0)
            attempt("semaphore", lambda: libc.semget(KEY, 1, 0o666) >= 0)
            attempt("message queue", lambda: libc.msgget(KEY, 0o666) >= 0)
            attempt("process with a socket", lambda: socket.socket(socket.AF_UNIX).connect(NAME))
        done()
        """,
    ),
)
