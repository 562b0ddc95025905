"""The agent: the supervisor of one slot, and how it makes the zygote.

Theory of operation. The engine starts one agent per slot, as a fresh process
and never as a fork of the trainer, which may hold a GPU, threads and answers.

    engine --(control: frames)--> zygote --fork--> jail --fork--> case
       \\--(lifeline)--> agent (supervisor)

The supervisor makes the slot's control group, forks the zygote behind its
walls, and then only waits: for the end of the zygote, or of the engine, which
it sees by its process descriptor and by the lifeline. Then it kills the
zygote, which is pid 1 of its namespace, so that everything inside dies with
it, and removes the control group. The zygote dies with the supervisor.

As root the identity inside is one that nobody has outside. As an ordinary user
it is that user, in a user namespace. Without namespaces, and only when that
was asked for, the walls are Landlock, the system call filter and limits.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from . import cgroups, inherited, landlock, linux, root, seccomp, tree
from .host import Host

if TYPE_CHECKING:
    from collections.abc import Callable

    from . import firecracker, machine, zygote
# What only the zygote needs is imported in ``start``: in the supervisor it would be 2 MB a slot.

CASE_UID = 1000  # what a program sees as its own identity, where the host allows one
_FAILED = 70  # stream.FAILED
# How a host says that it does not allow a wall. Any other failure is a fault, and no reason to do with a weaker one.
_REFUSALS = frozenset((errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL, errno.ENOSPC, errno.EROFS))


def main(folder: str) -> zygote.Script:
    """Run as the supervisor; returns only in a case's process, with its script."""
    config: dict[str, Any] = json.loads(inherited.told(sys.argv[1]))
    if config.get("inside"):
        from . import cage

        return cage.main(config, folder)
    if config["levels"][0] not in ("gvisor", "microvm"):  # whose own kernels keep their layout to themselves
        inherited.fix_layout()
    os.environ.clear()
    os.environ.update(config["env"])
    inherited.lift_limits()
    paths = cgroups.create(config["name"]) if config["cgroup"] else []
    group = cgroups.Group(paths)
    if given := config.get("given"):  # in a machine: what its host says about it
        group.surround({name: os.open(path, os.O_RDONLY | os.O_CLOEXEC) for name, path in given.items()})
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    inherited.spare_agent()
    # A supervisor that somebody stopped goes on when the engine's process dies, and then cleans up.
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGCONT)
    host = Host(config)
    reasons: list[str] = list(config.get("reasons", []))
    status, refused = None, True
    try:
        for level in config["levels"]:
            if level == "degraded" and os.geteuid() == 0 and not linux.public(sys.executable):
                other = config["public_python"]
                if other and linux.public(other):
                    cgroups.remove(paths)
                    os.execv(
                        other, [other, "-S", sys.argv[0], json.dumps(config | {"levels": [level], "reasons": reasons})]
                    )
                reasons.append(
                    f"{level}: only root may enter the directory of {sys.executable}, and no mount can show it"
                )
                continue
            sockets: machine.Sockets | firecracker.Ends | None = None
            if level == "gvisor" and config["lobby"]:
                from . import container

                pid, reason = container.launch(config, group, folder, host)
            elif level == "gvisor":
                from . import bundle

                pid, reason = bundle.launch(config, group)
            elif level == "microvm":
                from . import machine

                sockets = machine.ends(config)
                pid, reason = machine.launch(config, sockets, group, folder, host)
            else:
                pid, reason = start(config, level, group, folder, host)
            if pid == 0:
                return _program.pop()
            if pid > 0:
                status = (
                    supervise(config, pid, host) if sockets is None else machine.supervise(config, pid, sockets, host)
                )
                if sockets is None and group.oom_kills() and group.limit_hits():
                    from . import protocol

                    status = protocol.STATUS_MEMORY
                break
            refused, reason = reason[:1] == "R", reason[1:]
            reasons.append(f"{level}: {reason}")
            config["reasons"] = reasons
            if not refused:
                break
        if status is None:
            from . import protocol, stream

            words = {"message": "; ".join(reasons), "isolation": refused}
            stream.write_all(config["control"], protocol.pack(protocol.FAULT, words))
    except BrokenPipeError:
        pass  # the host went away; what is left is to tidy up
    os._exit(status or 0 if clear(paths, config["box"]) else 1)


_program: list[zygote.Script] = []  # set once, in a case's process


def start(
    config: dict[str, Any], level: str, group: cgroups.Group, folder: str, host: Host,
    instead: Callable[[int], None] | None = None,
) -> tuple[int, str]:  # fmt: skip
    """Make a zygote; ``(pid, ...)``, ``(-1, why not)``, or ``(0, ...)`` in a case's process.

    ``instead``: what replaces the process behind the walls where it is to be no zygote; it gets ``go``.

    Why not begins with R where this host refuses the level, else with E.

    Two pipes join the three. On ``news`` come M (map my identities), P and the
    zygote's number from its maker, R or E and a reason from either, and an end of
    file when the zygote is ready. On ``go`` go k (mapped) and p (the maker is
    gone: this process is the parent now, and the zygote may ask to die with it).
    """
    if level == "degraded":
        os.mkdir(config["box"], 0o711)
    news_read, news = os.pipe2(os.O_CLOEXEC)
    go, go_write = os.pipe2(os.O_CLOEXEC)
    supervisor = os.getpid()
    maker = os.fork()
    if maker == 0:
        os.close(news_read)
        os.close(go_write)
        os.close(config["lifeline"])
        try:
            from . import jail, protocol, stream, zygote  # noqa: F401  # now: behind the walls these files cannot be seen

            if config["lobby"]:
                from . import lobby  # noqa: F401

            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:
                os._exit(_FAILED)
            group.join()
            pid = walls(config, level, news, go)
            if pid:
                os.write(news, b"P%d" % pid)
                os._exit(0)
            if os.read(go, 1) != b"p":
                os._exit(_FAILED)
            if instead is not None:
                instead(go)
            _program.append(serve(config, level, group, folder, news, go))
            return 0, ""
        except BaseException as exc:
            try:
                refused = isinstance(exc, OSError) and exc.errno in _REFUSALS
                os.write(news, f"{'R' if refused else 'E'}{type(exc).__name__}: {exc}".encode()[:500])
            finally:
                os._exit(_FAILED)
    os.close(news)
    os.close(go)
    word = host.hear(news_read)
    if word == b"M":
        identity = config["uid"]
        try:
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/{maker}/{name}", "w") as file:
                    file.write(f"0 {identity} 1\n{CASE_UID} {identity + 1} 1\n")
            os.write(go_write, b"k")
        except OSError as exc:
            os.write(go_write, f"E{exc}".encode())
        word = host.hear(news_read)
    host.join(maker)
    pid = -1
    if word[:1] == b"P":
        pid = int(word[1:])
        os.write(go_write, b"p")
        word = host.hear(news_read)
        if word:  # a reason; silence means that it is ready, or dead, which the caller will see
            os.kill(pid, signal.SIGKILL)
            host.join(pid)
            pid = -1
    os.close(go_write)
    os.close(news_read)
    return pid, word.decode("utf-8", "replace") or "Eit ended without a word"


def walls(config: dict[str, Any], level: str, news: int, go: int) -> int:
    """Build what surrounds the zygote; returns 0 in the zygote, its pid in the process that made it."""
    if level in ("degraded", "bare"):
        return os.fork()
    inner = linux.NEWNS | linux.NEWNET | linux.NEWIPC | linux.NEWUTS | linux.NEWCGROUP | linux.NEWPID
    if os.geteuid() == 0:
        if config.get("group"):
            os.setgroups([config["group"]])  # a device's, which counts on although it has no name inside
        linux.unshare(linux.NEWNS)
        root.build(config["root"], own_proc=True)
        if not config.get("only"):  # in a machine of its own there is nobody else to be told apart
            own_users(config, news, go)
    else:
        uid, gid = os.geteuid(), os.getegid()
        linux.unshare(linux.NEWUSER | linux.NEWNS)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{config.get('known_as', CASE_UID)} {uid} 1"),
            ("gid_map", f"{config.get('known_as', CASE_UID)} {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
        root.build(config["root"], own_proc=False)
    linux.unshare(inner)
    return os.fork()


def own_users(config: dict[str, Any], news: int, go: int) -> None:
    """Go into a user namespace, as its root."""
    try:
        linux.unshare(linux.NEWUSER)
    except OSError:
        config["host_identity"] = True  # forbidden here: the case still drops to an identity of its own
        return
    os.write(news, b"M")
    word = os.read(go, 500)
    if word != b"k":
        raise OSError(1, f"cannot map identities: {word[1:].decode()}")
    os.setresgid(0, 0, 0)
    if not config.get("group"):
        os.setgroups([])
    os.setresuid(0, 0, 0)
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of identity had undone it


def serve(config: dict[str, Any], level: str, group: cgroups.Group, folder: str, news: int, go: int) -> zygote.Script:
    """Be the zygote: prepare once, tell the host, fork jails; returns in a case's process."""
    from . import protocol, stream, zygote
    from .slot import Slot

    if config["lobby"]:
        from . import lobby

    inside, sentry = level != "degraded", level == "gvisor"
    if not sentry:  # there this is pid 1
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        if select.select([go], [], [], 0)[0]:
            os._exit(_FAILED)  # the supervisor was gone before the kernel knew to tell
        os.close(go)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    alone = os.geteuid() != 0 or bool(config.get("alone"))
    if sentry:
        proc = True
        os.chdir("/workspace")
    elif inside:
        linux.set_hostname("proctor")
        proc = root.mount_proc()
        os.chdir("/workspace")
    else:
        proc = True
        if landlock.abi() < 1:
            raise OSError(38, "no namespaces and no Landlock: nothing would hide the host's files")
        if not alone and not linux.changes_identity():
            # Not as it is, either: the kernel bounds the number of everybody's processes but root's.
            raise OSError(
                1, "root without the capabilities setuid, setgid and setpcap has no other identity for a program; "
                "run as an ordinary user, or keep those capabilities"
            )  # fmt: skip
    linux.drop_bounding_set(linux.CAPABILITIES_OF_ROOT if config["lobby"] else 0)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    uid = None if alone else (config["uid"] + 1 if config.get("host_identity") or not inside else CASE_UID)
    if not alone:
        try:
            linux.prctl(linux.PR_SET_SECUREBITS, linux.SECUREBITS_LOCKED)
        except OSError:
            if not sentry:
                raise
    features = {
        "level": level,
        "stepped_down": config.get("reasons", []),
        "root": not alone,
        "user_namespace": inside and not sentry and not (config.get("only") or config.get("host_identity")),
        "namespaces": inside,
        "memory": group.memory,
        "cpu": group.cpu,
        "pids": group.pids,
        "landlock": landlock.abi(),
        "proc": proc,
        "fixed_layout": not sentry and bool(linux.personality(0xFFFFFFFF) & linux.ADDR_NO_RANDOMIZE),
        "python": sys.version.split()[0],
        "own_pids": 2,  # the zygote and the jail
        "own_processes": 2 if inside else inherited.own_threads() + 256,
    } | config.get("features", {})
    if not config.get("warm"):
        with zygote.packages(config.get("over", [])):
            zygote.preload(config["preload"], inside and not config["lobby"])
    if not inside and (unseen := zygote.out_of_sight(config["root"]["covers"])):
        # Else every program that imports them would fail, by no fault of its own.
        raise OSError(1, f"{sys.executable} does not look where {', '.join(unseen)} lie, and no mount can show them")
    slot = Slot(
        control=stream.high(config["control"]), group=group, namespaces=inside, box=config["box"], uid=uid,
        landlock_abi=landlock.abi(),
        seccomp=seccomp.build(
            network=inside, hide_attributes=not inside, memory_files=group.memory, spare_init=sentry and config["lobby"]
        ),
        readable=["/"] if inside else config["readable"], python=sys.executable, env=dict(config["env"]),
        preloaded=zygote.modules_now(), features=features, sentry=sentry,
        only=bool(config.get("only")) or (sentry and config["lobby"]),
        unset=tuple(config.get("unset", ())), uncounted=config.get("uncounted", 0),
        pace=config.get("pace", 1.0),
    )  # fmt: skip
    stream.write_all(
        slot.control, protocol.pack(protocol.READY, {"features": features, "preloaded": sorted(slot.preloaded)})
    )
    if not sentry:
        os.close(news)
    if not inside:
        os.environ["TMPDIR"] = slot.env["TMPDIR"] = f"{slot.box}/tmp"
        os.environ["HOME"] = slot.env["HOME"] = f"{slot.box}/workspace"
    zygote.disguise("/workspace" if inside else f"{slot.box}/workspace", folder, inside)
    zygote.settle()
    zygote.keep(config, slot)
    if config["lobby"]:
        try:
            run = lobby.loop(slot)
        except BaseException as exc:
            zygote.report(slot.control, exc)
        return zygote.into_case(run, slot)
    run = zygote.loop(slot)
    return zygote.into_case(run, slot)


def supervise(config: dict[str, Any], pid: int, host: Host) -> int:
    """Wait for the zygote's or the host's end, then see that nothing of the slot is left."""
    os.close(config["control"])
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 2):
        os.dup2(null, stream)
    try:
        end, timeout = os.pidfd_open(pid), None
    except OSError:
        end, timeout = None, 200
    try:
        while not os.waitpid(pid, os.WNOHANG)[0]:
            host.wait(end, timeout)
    except BrokenPipeError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return 0


def clear(paths: list[str], box: str) -> bool:
    """Kill what came loose (only possible without namespaces), then remove groups and directory; False if some is left."""
    end = time.monotonic() + 10
    left = True
    while left and time.monotonic() < end:
        for pid in cgroups.members(paths) + own_children():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            left = not cgroups.remove(paths + cgroups.rooms(paths))
        if left:
            time.sleep(0.005)
    try:
        tree.remove(os.fsencode(box))
    except FileNotFoundError:
        pass
    except OSError:
        return False  # the engine tries again
    return not left


def own_children() -> list[int]:
    """Children of this process, orphans of the slot among them."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []
