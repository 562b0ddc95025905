"""Names, values and errors of the interface; its twin; its keys."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor import AsyncRuntime, ConflictError, InputError, InvalidRequestError, NotFoundError, Runtime
from proctor.client import (
    async_files,
    async_process,
    async_runtime,
    async_sandbox,
    errors,
    sync_files,
    sync_process,
    sync_runtime,
    sync_sandbox,
)
from proctor.client.embedded import EmbeddedBackend
from proctor.client.fields import NEVER_S, renamed, sandbox_spec, snake
from proctor.client.last import LastExecutor
from proctor.client.once import MOST, Once
from proctor.client.output import HIGH, KEPT, Output
from proctor.core.errors import InfrastructureError
from proctor.core.sandbox import NetworkRules, SandboxError
from proctor.engine.sandboxes import Sandboxes
from proctor.isolation import gpus

ROOT = Path(__file__).resolve().parent.parent.parent

# ---------------------------------------------------------------- the twin


def test_the_synchronous_twin_is_what_the_tool_makes_of_the_source() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_sync.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("one", "other"),
    [(async_files, sync_files), (async_process, sync_process), (async_runtime, sync_runtime), (async_sandbox, sync_sandbox)],
)  # fmt: skip
def test_both_have_the_same_calls(one: Any, other: Any) -> None:
    seen = 0
    for name, kind in vars(one).items():
        if not name.startswith("Async") or getattr(kind, "__module__", "") != one.__name__:
            continue
        twin = getattr(other, name.removeprefix("Async"))
        for method, function in vars(kind).items():
            if callable(function) and not method.startswith("_"):
                seen += 1
                mine, theirs = inspect.signature(function), inspect.signature(getattr(twin, method))
                assert str(mine.replace(return_annotation="")) == str(theirs.replace(return_annotation="")), method
                assert not inspect.iscoroutinefunction(inspect.unwrap(getattr(twin, method)))
    assert seen


def test_the_top_of_the_package_has_them_and_does_not_import_them() -> None:
    script = "import sys, proctor; print([m for m in sys.modules if m.startswith('proctor.')])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
    for name in ("AsyncRuntime", "Runtime", "Sandbox", "AsyncSandbox", "CommandResult", "CommandError"):
        assert getattr(proctor, name).__name__ == name


# ---------------------------------------------------------------- names and values


def test_spellings() -> None:
    for one, other in {
        "memoryMiB": "memory_mib", "diskMiB": "disk_mib", "timeoutSeconds": "timeout_seconds", "onLeaseEnd": "on_lease_end",
        "maxCostMicros": "max_cost_micros", "timeoutMs": "timeout_ms", "exitCode": "exit_code", "vcpu": "vcpu",
        "memory_mib": "memory_mib", "stdoutTruncated": "stdout_truncated",
    }.items():  # fmt: skip
        assert snake(one) == other
    with pytest.raises(TypeError, match="twice"):
        renamed({"memoryMiB": 1, "memory_mib": 1}, ["memory_mib"], "create")
    assert renamed({"waitForCapacityMs": 1500}, ["wait_for_capacity"], "create") == {"wait_for_capacity": 1.5}


@pytest.mark.parametrize(
    ("given", "guess"),
    [("memory_mb", "memory_mib"), ("timeout", "timeout_seconds"), ("cpu", "vcpu"), ("on_lease", "on_lease_end")],
)
def test_an_unknown_field_gets_a_guess(runtime: Any, given: str, guess: str) -> None:
    with pytest.raises(TypeError, match=rf"{given}.*Did you mean '{guess}'\?"):
        runtime.sandboxes.create(**{given: 1})


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", ["", "a/b", "../x", "x" * 64, 5]), ("labels", [[], {"a": 1}, {1: "a"}, {"a": "x" * 300}]),
        ("vcpu", [0, -1, "1", True, float("nan")]), ("memory_mib", [0, 1.5, "512Mi", -5, True]), ("disk_mib", [0, "x"]),
        ("timeout_seconds", [0, -1, float("inf"), "60"]), ("max_cost_micros", [0, 1.5, 10**15 + 1]), ("env", [{"A": 1}, {"A=": "x"}, "A=1"]),
        ("network", ["off", {"internet": "no"}, {"allow": "example.org"}]), ("on_lease_end", ["explode"]), ("gpu", [-1, "T4"]),
        ("gpu_model", ["", [], 4, ["--"], {"T4": 1}]),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_named(field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidRequestError, match=field) as caught:
            sandbox_spec({field: value})
        assert isinstance(caught.value, InputError)
        assert isinstance(caught.value, ValueError)
        assert caught.value.status == 400
        assert "give" in str(caught.value) or "no '='" in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"on_lease_end": "pause"}, "pause"), ({"secrets": ["a"]}, "secrets"), ({"idle_pause_seconds": 5}, "idle_pause_seconds"),
        ({"network": {"internet": True, "connect": ["x"]}}, "connect"),
    ],
)  # fmt: skip
def test_what_is_not_supported_says_so(runtime: Any, fields: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"{word}.*not supported") as caught:
        runtime.sandboxes.create(**fields)
    assert caught.value.code == "not_supported"


def test_a_host_without_gpus_says_what_it_looked_for_and_what_to_do(tmp_path: Path) -> None:
    backend = EmbeddedBackend(gpus=gpus.find(gpus.Places(dev=str(tmp_path))))
    try:
        for fields in ({"gpu": 1}, {"gpu_model": "T4"}, {"gpuModel": ["T4", "any"]}):
            with pytest.raises(InvalidRequestError, match=f"there is no {tmp_path}/nvidia0 .*install the") as refused:
                Runtime(backend=backend).sandboxes.create(**fields)  # type: ignore[arg-type]
            assert (refused.value.code, refused.value.status) == ("no_gpu", 400)
        with pytest.raises(InvalidRequestError, match="leave it out where gpu is 0"):
            sandbox_spec({"gpu": 0, "gpu_model": "T4"})
    finally:
        backend.close()


def test_verbs_that_are_not_supported_say_so(sbx: Any) -> None:
    for call in (
        sbx.pause,
        sbx.wake,
        sbx.fork,
        lambda: sbx.snapshot(mode="memory"),
        lambda: sbx.spawn("x", pty={"cols": 80}),
    ):
        with pytest.raises(InvalidRequestError, match="not supported"):
            call()


def test_text_that_no_bytes_stand_for_is_refused_by_field(runtime: Any, sbx: Any) -> None:
    half = "\ud800"
    for field, call in (
        ("env['A']", lambda: runtime.sandboxes.create(env={"A": half})),
        ("labels['A']", lambda: runtime.sandboxes.create(labels={"A": half})),
        ("command[1]", lambda: sbx.exec(["echo", half])),
        ("stdin", lambda: sbx.exec(["cat"], stdin=half)),
        ("cwd", lambda: sbx.exec(["true"], cwd=f"/{half}")),
        ("path", lambda: sbx.files.write(half, "text")),
        ("data", lambda: sbx.files.write("name", half)),
    ):
        with pytest.raises(InvalidRequestError, match=rf"{re.escape(field)}: .*half a character"):
            call()
    assert sbx.exec(["printf", "%s", "\udcff"]).stdout_bytes == b"\xff"  # this half stands for a byte


def test_specs() -> None:
    spec = sandbox_spec({"network": {"internet": True, "allow": ["a.example", "*.b.example"], "deny": ["10.0.0.0/8"]},
                         "snapshotId": "s", "labels": None, "vcpu": 2, "timeoutSeconds": NEVER_S})  # fmt: skip
    assert spec.network == NetworkRules(True, ("a.example", "*.b.example"), ("10.0.0.0/8",))
    assert (spec.snapshot, spec.labels, spec.vcpu) == ("s", {}, 2.0)
    assert sandbox_spec({}).network == NetworkRules()
    with pytest.raises(TypeError, match="give one"):
        sandbox_spec({"snapshot": "a", "snapshot_id": "b"})


def test_memory_beyond_the_host_is_refused_at_once(runtime: Any) -> None:
    with pytest.raises(InvalidRequestError, match="less memory") as caught:
        runtime.sandboxes.create(memory_mib=1 << 23)
    assert caught.value.code == "too_large"


# ---------------------------------------------------------------- a server


@pytest.mark.parametrize("kind", [Runtime, AsyncRuntime])
@pytest.mark.parametrize("variable", [None, "PROCTOR_API_URL", "RUNTIME_API_URL"])
def test_a_server_is_not_ignored(kind: Any, variable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if variable:
        monkeypatch.setenv(variable, "http://localhost:1")
    with pytest.raises(InvalidRequestError, match=f"{variable or 'base_url'}.*not supported"):
        kind() if variable else kind(base_url="http://localhost:1")


def test_options_of_a_runtime() -> None:
    assert Runtime(apiKey="k", waitForCapacityMs=600_000).wait_for_capacity == 600
    with pytest.raises(TypeError, match="Did you mean 'max_retries'"):
        Runtime(max_retry=1)
    for options in ({"wait_for_capacity": -1}, {"timeout": 0}, {"max_retries": "4"}):
        with pytest.raises(InvalidRequestError):
            Runtime(**options)


def test_a_closed_runtime(runtime: Any) -> None:
    with runtime:
        pass
    with pytest.raises(ConflictError, match="closed"):
        runtime.sandboxes.create()


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequestError), (401, errors.AuthenticationError), (403, errors.PermissionDeniedError),
        (404, errors.NotFoundError), (409, errors.ConflictError), (413, errors.InvalidRequestError),
        (422, errors.InvalidRequestError), (429, errors.RateLimitError), (500, errors.ServiceUnavailableError),
        (503, errors.ServiceUnavailableError), (402, errors.RuntimeError), (507, errors.RuntimeError),
    ],
)  # fmt: skip
def test_errors_by_status(status: int, kind: type) -> None:
    error = errors.translated(SandboxError("words", code="word", status=status, hint="do so"))
    assert type(error) is kind
    assert isinstance(error, errors.RuntimeAPIError)
    assert (error.code, error.status, error.hint, error.message) == ("word", status, "do so", "words")  # type: ignore[attr-defined]
    assert str(error) == "words; do so"
    assert isinstance(error, InfrastructureError) == (kind is errors.ServiceUnavailableError)


def test_a_failure_of_the_host_stays_one() -> None:
    error = errors.translated(InfrastructureError("the host"))
    assert isinstance(error, errors.ServiceUnavailableError)
    assert isinstance(error, InfrastructureError)


def test_what_is_not_there(runtime: Any) -> None:
    for call in (runtime.sandboxes.get, runtime.sandboxes.delete):
        with pytest.raises(NotFoundError) as caught:
            call("sbx_none")
        assert (caught.value.code, caught.value.status) == ("not_found", 404)


# ---------------------------------------------------------------- records


def test_a_record_is_found_in_both_spellings(sbx: Any) -> None:
    info = sbx.info
    assert info["memoryMiB"] == info["memory_mib"] == info.memoryMiB == info.memory_mib == 256
    assert sbx["id"] == sbx.id == info.id
    assert info.state == "running"
    assert info.network == {"internet": False, "allow": [], "deny": []}
    with pytest.raises(KeyError):
        info["nothing"]
    with pytest.raises(AttributeError):
        _ = info.nothing


def test_a_result_is_found_in_both_spellings(sbx: Any) -> None:
    run = sbx.exec("true")
    assert (run.exitCode, run.timedOut, run.stdoutTruncated, run.outOfMemory) == (0, False, False, False)
    assert run.to_dict()["exit_code"] == 0
    with pytest.raises(AttributeError):
        _ = run.exit


# ---------------------------------------------------------------- network and snapshots


def test_a_network_that_is_off(sbx: Any) -> None:
    assert sbx.network.get() == {"internet": False, "allow": [], "deny": []}
    assert sbx.network.set({"internet": False}) == sbx.network.set(internet=False) == sbx.network.off()
    with pytest.raises(TypeError):
        sbx.network.set()
    with pytest.raises(TypeError):
        sbx.network.set({"internet": False}, internet=False)
    with pytest.raises(TypeError, match="Did you mean 'internet'"):
        sbx.network.set(internt=True)
    run = sbx.exec(["python3", "-c", "import socket; socket.create_connection(('192.0.2.1', 80), 1)"])
    assert run.exit_code == 1


@pytest.mark.skipif(not hasattr(Sandboxes, "set_network"), reason="the engine has no network yet")
def test_a_network_that_is_turned_on_and_off(sbx: Any) -> None:
    assert sbx.network.set(internet=True, allow=["example.org"])["allow"] == ["example.org"]
    assert sbx.network.off() == {"internet": False, "allow": ["example.org"], "deny": []}
    assert sbx.network.on()["internet"] is True
    assert isinstance(sbx.network.attempts(), list)


@pytest.mark.skipif(hasattr(Sandboxes, "set_network"), reason="the engine has a network")
def test_a_network_that_cannot_be_had_is_refused(runtime: Any) -> None:
    with pytest.raises(InvalidRequestError, match="network"):
        runtime.sandboxes.create(network={"internet": True})


@pytest.mark.skipif(not hasattr(Sandboxes, "snapshot"), reason="the engine has no snapshots yet")
def test_snapshots(sbx: Any, runtime: Any) -> None:
    sbx.files.write("kept", "yes")
    made = sbx.snapshot(name="s-1", labels={"a": "b"}, retention_days=1)
    try:
        assert made.id == made["id"]
        assert made.name == "s-1"
        assert made.sizeBytes == made["size_bytes"] > 0
        assert [row.id for row in runtime.snapshots.list(name="s-1")] == [made.id]
        assert runtime.snapshots.get(made.id).id == made.id
        for form in (made.id, made):
            with runtime.sandboxes.create(snapshot=form, memory_mib=256, disk_mib=256) as box:
                assert box.files.read_text("kept") == "yes"
    finally:
        made.delete()
    with pytest.raises(NotFoundError):
        runtime.snapshots.get(made.id)


@pytest.mark.skipif(hasattr(Sandboxes, "snapshot"), reason="the engine has snapshots")
def test_snapshots_that_cannot_be_had_are_refused(runtime: Any, sbx: Any) -> None:
    for call in (sbx.snapshot, runtime.snapshots.list, lambda: runtime.sandboxes.create(snapshot="x")):
        with pytest.raises(InvalidRequestError, match="snapshots"):
            call()


# ---------------------------------------------------------------- keys and output, by themselves


def test_once() -> None:
    async def main() -> None:
        once, runs = Once(), []

        async def work() -> int:
            runs.append(1)
            await asyncio.sleep(0)
            return len(runs)

        answers = await asyncio.gather(*(once.run("k", "body", work) for _ in range(5)))
        assert sorted(answers) == [(1, False)] + [(1, True)] * 4
        assert await once.run(None, "body", work) == (2, False)
        with pytest.raises(SandboxError, match="another request"):
            await once.run("k", "other", work)

        async def fails() -> int:
            raise LookupError

        with pytest.raises(LookupError):
            await once.run("f", "body", fails)
        assert await once.run("f", "body", work) == (3, False)

        first = asyncio.create_task(once.run("c", "body", asyncio.Event().wait))
        await asyncio.sleep(0)
        second = asyncio.create_task(once.run("c", "body", work))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == (4, False)
        for number in range(MOST + 10):
            await once.run(str(number), "", lambda: asyncio.sleep(0))
        assert len(once._kept) <= MOST

    asyncio.run(main())


def test_output_waits_for_a_reader_and_for_nobody_else() -> None:
    async def main() -> None:
        alone = Output(reading=False)
        for _ in range(100):
            await alone.take(1, b"x" * 65_536)  # nobody reads: nothing waits
        assert alone._size <= HIGH
        assert len(alone.kept[1]) == KEPT
        assert alone.written[1] == 100 * 65_536

        read = Output(reading=True)

        async def write() -> None:
            for _ in range(100):
                await read.take(2, b"y" * 65_536)
            read.end()

        writing = asyncio.create_task(write())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not writing.done()
        assert read._size <= HIGH + 65_536
        total, over = 0, False
        while not over:
            pieces, over = await read.pull(True)
            total += sum(len(data) for _, data in pieces)
        assert total == 100 * 65_536

    asyncio.run(main())


def test_work_for_threads_is_done_when_they_take_no_more() -> None:
    executor = LastExecutor(1)
    assert executor.submit(int, "5").result() == 5
    executor.shutdown()
    assert executor.submit(int, "6").result() == 6
    with pytest.raises(ValueError, match="invalid literal"):
        executor.submit(int, "x").result()


def test_an_image_and_a_snapshot_are_one_too_many(runtime: Any) -> None:
    with pytest.raises(InvalidRequestError, match="snapshot: 'b' cannot be; image is given too"):
        runtime.sandboxes.create(image="a", snapshot="b")


def test_a_wait_that_was_too_short_says_so(sbx: Any) -> None:
    process = sbx.spawn(["sleep", "1000"])
    with pytest.raises(TimeoutError, match=r"not ended within 0\.01 s; it goes on"):
        process.wait(timeout_ms=10)
    process.kill("SIGKILL")
