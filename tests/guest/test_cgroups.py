"""Control groups of version 1, of version 2, and none, as directories of this test's own."""

from __future__ import annotations

from pathlib import Path

from proctor.guest import cgroups


def fake(path: Path, **files: str) -> str:
    path.mkdir(parents=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text)
    return str(path)


def proc(tmp_path: Path, mountinfo: str, groups: str) -> str:
    return fake(tmp_path / "proc", mountinfo=mountinfo, cgroup=groups)


def test_version_1_is_found_per_controller(tmp_path: Path) -> None:
    mounts = (
        "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n"
    )
    places = cgroups.find(proc(tmp_path, mounts, "4:memory:/job/7\n1:cpu,cpuacct:/\n0::/\n"))
    assert places["memory"] == "/cg/memory/job/7"
    assert places["cpuacct"] == "/cg/cpu"
    assert places["unified"] == "/cg/unified"


def test_a_container_sees_its_own_group_as_the_top(tmp_path: Path) -> None:
    mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"
    assert cgroups.find(proc(tmp_path, mounts, "0::/docker/abc\n")) == {"unified": "/sys/fs/cgroup"}


def test_nothing_there(tmp_path: Path) -> None:
    assert cgroups.find(str(tmp_path / "nowhere")) == {}
    group = cgroups.Group([])
    assert (group.memory, group.cpu, group.pids) == (False, False, False)
    group.set_memory(1 << 20)
    group.set_pids(5)
    group.join()
    assert (group.usage(), group.peak(), group.cpu_ns(), group.oom_kills(), group.reset_peak()) == (0, 0, 0, 0, False)


def test_version_1_files(tmp_path: Path) -> None:
    memory = fake(
        tmp_path / "memory", cgroup__procs="", memory__limit_in_bytes="0", memory__usage_in_bytes="4096\n",
        memory__max_usage_in_bytes="8192\n", memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    )  # fmt: skip
    group = cgroups.Group([memory, fake(tmp_path / "cpuacct", cgroup__procs="", cpuacct__usage="123456789\n")])
    assert (group.memory, group.cpu, group.pids) == (True, True, False)
    assert (group.usage(), group.peak(), group.oom_kills(), group.cpu_ns()) == (4096, 8192, 3, 123456789)
    group.set_memory(1 << 20)
    assert (tmp_path / "memory/memory.limit_in_bytes").read_text() == str(1 << 20)
    group.set_memory(None)
    assert (tmp_path / "memory/memory.limit_in_bytes").read_text().startswith("-1")
    group.join()
    assert (tmp_path / "memory/cgroup.procs").read_text() == "0"
    assert (tmp_path / "cpuacct/cgroup.procs").read_text() == "0"


def test_version_2_files(tmp_path: Path) -> None:
    path = fake(
        tmp_path / "slot", cgroup__procs="", memory__max="max", memory__current="4096\n", memory__peak="9000\n",
        memory__events="low 0\nhigh 0\nmax 4\noom 1\noom_kill 1\n", memory__swap__max="max", pids__max="max",
        cpu__stat="usage_usec 2500\nuser_usec 2000\nsystem_usec 500\n",
    )  # fmt: skip
    group = cgroups.Group([path])
    assert (group.memory, group.cpu, group.pids) == (True, True, True)
    assert (group.usage(), group.peak(), group.oom_kills(), group.cpu_ns()) == (4096, 9000, 1, 2_500_000)
    assert (tmp_path / "slot/memory.swap.max").read_text() == "0"
    group.set_pids(66)
    assert (tmp_path / "slot/pids.max").read_text().startswith("66")
    group.set_memory(None)
    assert (tmp_path / "slot/memory.max").read_text().startswith("max")


def test_removing(tmp_path: Path) -> None:
    empty, full = tmp_path / "empty", tmp_path / "full"
    empty.mkdir()
    fake(full, cgroup__procs="12\n34\n")
    assert cgroups.members([str(full), str(empty)]) == [12, 34]
    assert cgroups.remove([str(empty)])
    assert not cgroups.remove([str(full)])
