"""Sandboxes in Beam's shape."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from client_help import until

from proctor import InvalidRequestError, NotFoundError, Runtime
from proctor.beam import Image, Sandbox, SandboxInstance, SandboxProcessTimeout, cores, memory_mib
from proctor.client.embedded import EmbeddedBackend
from proctor.engine.sandboxes import Sandboxes

HERE = f"python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def runtime_of_beam(backend: EmbeddedBackend) -> Runtime:
    return Runtime(backend=backend)


@pytest.fixture
def sb(runtime_of_beam: Runtime) -> Iterator[SandboxInstance]:
    with Sandbox(memory="512Mi", runtime=runtime_of_beam, env={"A": "1"}).create() as instance:
        yield instance


def test_units() -> None:
    given = {128: 128, "512Mi": 512, "1Gi": 1024, "2G": 2000, "0.5Gi": 512, "256M": 256}
    assert {value: memory_mib(value) for value in given} == given
    assert (cores(1.5), cores("500m")) == (1.5, 0.5)
    for bad in ("lots", "512", 1.5, None, True):
        with pytest.raises(InvalidRequestError, match="memory"):
            memory_mib(bad)


def test_a_process(sb: SandboxInstance) -> None:
    process = sb.process.exec("python3", "-c", "import sys; print(6 * 7); print('err', file=sys.stderr); sys.exit(3)")
    assert process.wait() == 3
    assert process.exit_code == 3
    assert process.status() == (3, "exited")
    assert process.stdout.read() == "42\n"
    assert process.stderr.read() == "err\n"
    assert process.stdout.read() == ""
    assert "42\n" in process.logs.read()


def test_arguments_are_no_shells(sb: SandboxInstance) -> None:
    process = sb.process.exec(["printf", "%s", "$A *"], env={"B": "2"}, cwd="/tmp")
    assert (process.wait(), process.stdout.read()) == (0, "$A *")
    process = sb.process.exec("sh", "-c", "pwd; echo $A$B", env={"B": "2"}, cwd="/tmp")
    assert (process.wait(), process.stdout.read()) == (0, "/tmp\n12\n")


@pytest.mark.parametrize("stdin", ["a\n", b"a\n", Path("a")])
def test_stdin(sb: SandboxInstance, stdin: Any, tmp_path: Path) -> None:
    if isinstance(stdin, Path):
        (tmp_path / "a").write_bytes(b"a\n")
        stdin = (tmp_path / "a").open("rb")
    process = sb.process.exec("cat", stdin=stdin)
    assert (process.wait(), process.stdout.read()) == (0, "a\n")
    if hasattr(stdin, "close"):
        stdin.close()


def test_waiting_ends_and_the_process_goes_on(sb: SandboxInstance) -> None:
    process = sb.process.exec("sleep", "1000")
    with pytest.raises(SandboxProcessTimeout):
        process.wait(timeout=0.05)
    assert process.status() == (-1, "running")
    assert process.exit_code == -1
    process.kill()
    assert process.wait(timeout=60) == 137


def test_lines_as_they_come(sb: SandboxInstance) -> None:
    sb.process.exec("mkfifo", "/workspace/go").wait()
    process = sb.process.exec("sh", "-c", "echo a; read x < /workspace/go; echo $x; printf end")
    lines = iter(process.stdout)
    assert next(lines) == "a\n"
    assert sb.process.exec("sh", "-c", "echo b > /workspace/go").wait() == 0
    assert list(lines) == ["b\n", "end"]


def test_run_code(sb: SandboxInstance) -> None:
    done = sb.process.run_code("print(1 + 1)")
    assert (done.exit_code, done.stdout, done.stderr, done.result) == (0, "2\n", "", "2\n")
    done = sb.process.run_code("1 / 0")
    assert done.exit_code == 1
    assert "ZeroDivisionError" in done.result
    process = sb.process.run_code("print(3)", blocking=False)
    assert process.wait() == 0
    assert process.pid in sb.process.list_processes()
    assert sb.process.get_process(process.pid).wait() == 0


def test_much_output_does_not_hold_a_process_up(sb: SandboxInstance) -> None:
    process = sb.process.exec("python3", "-c", "print('x' * 10_000_000)")
    assert process.wait() == 0
    assert 0 < len(process.stdout.read()) <= 1 << 20


def test_files(sb: SandboxInstance, tmp_path: Path) -> None:
    sb.fs.write_text("/workspace/t", "text")
    sb.fs.write_bytes("/workspace/d/b", b"\0\xff", mode=0o600)
    assert (sb.fs.read_text("/workspace/t"), sb.fs.read_bytes("/workspace/d/b")) == ("text", b"\0\xff")
    info = sb.fs.stat_file("/workspace/d/b")
    assert (info.name, info.size, info.is_dir, info.mode, str(info)) == ("b", 2, False, 0o600, "b")
    assert info.mod_time > 1_600_000_000
    assert [(row.name, row.is_dir) for row in sb.fs.list_files("/workspace")] == [("d", True), ("t", False)]
    (tmp_path / "up").write_text("up")
    sb.fs.upload_file(str(tmp_path / "up"), "/workspace/up")
    sb.fs.download_file("/workspace/up", str(tmp_path / "down"))
    assert (tmp_path / "down").read_text() == "up"
    sb.fs.create_directory("/workspace/new/below")
    sb.fs.remove("/workspace/new")
    sb.fs.delete_file("/workspace/t")
    sb.fs.delete_directory("/workspace/d")
    assert [row.name for row in sb.fs.list_files("/workspace")] == ["up"]


def test_life(runtime_of_beam: Runtime) -> None:
    made = Sandbox(runtime=runtime_of_beam, keep_warm_seconds=-1).create()
    again = Sandbox(runtime=runtime_of_beam).connect(made.sandbox_id())
    assert again.poll() is None
    assert again.status() == (-1, "running")
    made.update_ttl(1)
    assert until(lambda: again.status()[1] == "stopped")
    made = Sandbox(runtime=runtime_of_beam).create()
    made.update_ttl(-1)
    assert made.terminate() is True
    assert made.poll() == 0
    with pytest.raises(NotFoundError):
        Sandbox(runtime=runtime_of_beam).connect("sbx_none")


def test_offline_unless_asked(runtime_of_beam: Runtime) -> None:
    assert Sandbox(runtime=runtime_of_beam)._fields["network"] == {"internet": False}
    assert Sandbox(runtime=runtime_of_beam, block_network=True)._fields["network"] == {"internet": False}
    assert Sandbox(block_network=False)._fields["network"] == {"internet": True, "allow": []}
    assert Sandbox(allow_list=["10.0.0.0/8"])._fields["network"] == {"internet": True, "allow": ["10.0.0.0/8"]}
    with pytest.raises(InvalidRequestError, match="allow_list"):
        Sandbox(block_network=True, allow_list=["x"])


def test_gpus_by_model_and_number() -> None:
    wanted = [
        ({"gpu": "T4"}, 1, ["T4"]), ({"gpu": "any", "gpu_count": 3}, 3, ["any"]), ({"gpu_count": 2}, 2, ["any"]),
        ({"gpu": ["T4", "A10G"], "gpu_count": 2}, 2, ["T4", "A10G"]), ({"gpu": SimpleNamespace(value="H100")}, 1, ["H100"]),
    ]  # fmt: skip
    for given, number, models in wanted:
        fields = Sandbox(**given)._fields  # type: ignore[arg-type]
        assert (fields["gpu"], fields["gpu_model"]) == (number, models)
    for given in ({}, {"gpu": ""}, {"gpu": "NoGPU"}, {"gpu": None}, {"gpu_count": 0}):
        assert "gpu" not in Sandbox(**given)._fields  # type: ignore[arg-type]
    for bad in (-1, "2", 1.5, True, 65):
        with pytest.raises(InvalidRequestError, match="gpu_count"):
            Sandbox(gpu="T4", gpu_count=bad)  # type: ignore[arg-type]


def test_what_is_not_supported_says_so(sb: SandboxInstance) -> None:
    for call in (
        sb.snapshot_memory, lambda: sb.expose_port(80),
        lambda: Sandbox(volumes=["v"]), lambda: Sandbox(secrets=["s"]), lambda: Image(python_version="python3.4"),
        lambda: Image(base_image="x"), lambda: Image.from_registry("x"), lambda: Image.from_dockerfile("x"),
        lambda: Sandbox().create_from_memory_snapshot("x"), lambda: Sandbox().debug(),
    ):  # fmt: skip
        with pytest.raises(InvalidRequestError, match="not supported"):
            call()
    with pytest.raises(TypeError, match="no field 'cpus'"):
        Sandbox(cpus=1)
    sb.update_network_permissions(block_network=True)


def test_images(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy==2.1  # a comment\n\n# another\nsympy\n")
    one = Image(python_version=HERE, python_packages=str(tmp_path / "requirements.txt"), env_vars=["A=1"])
    assert (one.packages, one.variables) == (["numpy==2.1", "sympy"], {"A": "1"})
    two = Image().add_python_packages(["numpy==2.1", "sympy"])
    assert one.name == two.name != Image().add_commands(["true"]).name
    assert two.with_envs({"B": "2"}).variables == {"B": "2"}
    with pytest.raises(InvalidRequestError, match="python_packages"):
        Image(python_packages="no-such-file.txt")
    with pytest.raises(InvalidRequestError, match="commands"):
        Image(commands="make")


@pytest.mark.skipif(
    not hasattr(Sandboxes, "snapshot") or not hasattr(Sandboxes, "set_network"),
    reason="the engine has no snapshots yet",
)
def test_an_image_is_built_once_and_a_filesystem_kept(runtime_of_beam: Runtime) -> None:
    image = Image(commands=["echo built > /workspace/mark", "echo x >> /workspace/mark"])
    try:
        with Sandbox(memory="512Mi", image=image, runtime=runtime_of_beam).create() as sb:
            assert sb.fs.read_text("/workspace/mark") == "built\nx\n"
            sb.fs.write_text("/workspace/more", "more")
            kept = sb.create_image_from_filesystem()
        assert len(runtime_of_beam.snapshots.list(name=image.name)) == 1
        with Sandbox(memory="512Mi", image=Image.from_id(kept), runtime=runtime_of_beam).create() as sb:
            assert sb.fs.read_text("/workspace/more") == "more"
        runtime_of_beam.snapshots.delete(kept)
    finally:
        for row in runtime_of_beam.snapshots.list(name=image.name):
            row.delete()
