"""The keeper: sandboxes that outlive a process, over a socket, with the semantics that they have in one."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from client_help import PATIENCE, client, gone, leavings, until

# The tests of the backend of this process, run against a keeper as well.
from test_commands import (  # noqa: F401
    test_64_kib_come_back_and_a_flag_says_that_there_was_more,
    test_a_list_is_a_program_and_its_arguments,
    test_a_time_limit_is_a_result,
    test_all_of_it_where_it_is_streamed,
    test_bytes_that_are_no_text,
    test_check,
    test_cwd_user_and_env,
    test_env_of_the_sandbox_is_every_commands,
    test_stdin,
    test_streamed_pieces_keep_their_order_whoever_is_slow,
)
from test_files import (  # noqa: F401
    test_list_glob_stat,
    test_make_move_remove,
    test_modes,
    test_text_and_bytes,
)
from test_lifetime import (  # noqa: F401
    test_a_block_deletes_whatever_happens_in_it,
    test_a_lease_ends,
    test_cancelling_a_block_deletes,
    test_cancelling_a_command_at_any_moment_leaves_the_sandbox_in_order,
    test_cancelling_a_command_ends_it,
    test_cancelling_a_create_at_any_moment_leaves_nothing,
    test_cancelling_an_upload_leaves_the_sandbox_in_order,
    test_list_and_end_by_label,
    test_many_at_once_get_the_same_one,
    test_threads_share_the_sandboxes,
)

from proctor import ConflictError, NotFoundError, Runtime
from proctor.client import distant, place
from proctor.client.backend import Backend
from proctor.client.calls import NAMES, error_of, table, told
from proctor.client.distant import DistantBackend
from proctor.client.errors import ConnectionError
from proctor.client.wire import HEAD, Blobs, pack, plain, read_frame, value_of
from proctor.core.errors import FrameError, InfrastructureError, InputError, IsolationUnavailable
from proctor.core.sandbox import (
    CommandOutcome,
    CommandSpec,
    FileInfo,
    NetworkRules,
    SandboxError,
    SandboxInfo,
    SandboxSpec,
    SnapshotInfo,
    State,
    StopReason,
)

LONG_S = 3600.0


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return status[0] not in (b"Z", b"X")


def end(pid: int | None) -> None:
    """End a keeper and wait until nothing of it is left."""
    if pid is None:
        return
    if alive(pid):
        os.kill(pid, signal.SIGTERM)
    assert until(lambda: not alive(pid))
    assert not gone(lambda: leavings(pid))


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DistantBackend]:
    """In place of the one of this folder: a keeper."""
    backend = DistantBackend(tmp_path_factory.mktemp("k") / "keeper", linger_s=LONG_S)
    yield backend
    keeper = backend.keeper
    backend.close()
    end(keeper)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[DistantBackend]:
    """A keeper of one's own, which a test may end."""
    backend = DistantBackend(tmp_path / "keeper", linger_s=LONG_S)
    keeper = asyncio.run_coroutine_threadsafe(backend._connected(), backend.loop).result(PATIENCE * 2).keeper
    yield backend
    latest = backend.keeper
    backend.close()
    for pid in {keeper, latest}:
        end(pid)


# ---------------------------------------------------------------- what crosses

RULES = NetworkRules(True, ("a.example", "*.b.example"), ("198.51.100.7",))
SPEC = SandboxSpec(
    name="n", labels={"a": "b\udc80"}, vcpu=0.5, timeout_seconds=1.5, network=RULES, env={"A": ""}, max_cost_micros=7
)
VALUES = [
    SPEC,
    SandboxSpec(),
    SandboxInfo(
        id="sbx_1", state=State.STOPPED, spec=SPEC, created_at=1.25, expires_at=2.0, stopped_at=3.0,
        stop_reason=StopReason.LEASE, cpu_seconds=0.5, cost_micros=3,
    ),
    CommandSpec(argv=("a", "", "\u017e"), stdin=b"\x00\xff" * 9, timeout_s=None, keep=None, env={"X": "1"}),
    CommandSpec(argv=("a",), stdin=None),
    CommandOutcome(exit_code=-9, stdout=b"one", stderr=b"", timed_out=True),
    FileInfo(path="/a", kind="symlink", size=1, mode=0o777, modified_at=-1.5, target="b\udcff"),
    SnapshotInfo(id="s", name=None, digest="d", size_bytes=1, created_at=1.0, expires_at=None, labels={}),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_is_the_same_on_the_other_side(value: Any) -> None:
    async def there() -> Any:
        blobs: list[bytes] = []
        reader = asyncio.StreamReader()
        reader.feed_data(pack(1, 2**40, {"value": plain(value, blobs)}, b"".join(blobs)))
        kind, number, header, body = await read_frame(reader)
        assert (kind, number) == (1, 2**40)
        rest = Blobs(body)
        found = value_of(type(value), header["value"], rest)
        rest.end()
        return found

    assert asyncio.run(there()) == value


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, True), (int, 1.0), (int, "1"), (bool, 1), (str, None), (float, "1"), (float, True), (float, None),
        (list[str], "ab"), (list[str], [1]), (tuple[str, ...], {"a": 1}), (tuple[int, bytes], [1]),
        (tuple[int, bytes], [1, 5]), (bytes, -1), (dict[str, str], {"a": 1}), (NetworkRules, {"internet": True}),
        (NetworkRules, {"internet": True, "allow": [], "deny": [], "more": 1}), (State, "asleep"), (str | None, 7),
        (SandboxSpec, []),
    ],
)  # fmt: skip
def test_what_is_not_due_is_refused(hint: Any, value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        value_of(hint, value, Blobs(b"abcd"))


@pytest.mark.parametrize(
    "data",
    [
        HEAD.pack(1, 1, 1 << 31, 0), HEAD.pack(1, 1, 0, 1 << 31), HEAD.pack(1, 1, 2, 0) + b"[]",
        HEAD.pack(1, 1, 3, 0) + b"{x}", HEAD.pack(1, 1, 9, 0) + b'{"a":NaN}', HEAD.pack(1, 1, 4, 0) + b"\xff\xff{}",
    ],
)  # fmt: skip
def test_bytes_that_are_no_frame_are_refused(data: bytes) -> None:
    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        await read_frame(reader)

    with pytest.raises(FrameError):
        asyncio.run(read())


def test_every_call_of_a_backend_crosses() -> None:
    calls = {
        name for name, value in vars(Backend).items() if inspect.iscoroutinefunction(value) and not name.startswith("_")
    }
    assert set(NAMES) == calls == set(table())
    for name in calls:
        there, here = (inspect.signature(getattr(kind, name)) for kind in (Backend, DistantBackend))
        assert there == here, name


def test_errors_cross_with_their_fields() -> None:
    error = error_of(told(SandboxError("words", code="no_capacity", status=409, hint="wait")))
    assert isinstance(error, SandboxError)
    assert (str(error), error.code, error.status, error.hint) == ("words", "no_capacity", 409, "wait")
    bad = error_of(told(InputError("words", where="f:1", field="name")))
    assert isinstance(bad, InputError)
    assert (bad.message, bad.where, bad.field) == ("words", "f:1", "name")
    for kind in (InfrastructureError, IsolationUnavailable, FrameError):
        assert type(error_of(told(kind("words")))) is kind
    assert "ZeroDivisionError" in str(error_of(told(ZeroDivisionError("x"))))
    for nonsense in (None, {}, {"message": 7}, {"kind": "sandbox", "message": "m"}):
        assert isinstance(error_of(nonsense), InfrastructureError)


def test_errors_of_a_sandbox_are_those_of_the_sdk(backend: DistantBackend) -> None:
    runtime = Runtime(backend=backend)
    with pytest.raises(NotFoundError) as caught:
        runtime.sandboxes.get("sbx_none")
    assert (caught.value.code, caught.value.status) == ("not_found", 404)
    with runtime.sandboxes.create(name="taken", memory_mib=64), pytest.raises(ConflictError) as conflict:
        runtime.sandboxes.create(name="taken", memory_mib=64)
    assert (conflict.value.code, conflict.value.hint) == ("name_taken", "use get_or_create, or another name")


def test_snapshots_and_network_cross(backend: DistantBackend) -> None:
    runtime = Runtime(backend=backend)
    with runtime.sandboxes.create(memory_mib=64) as box:
        box.files.write("kept", "1")
        made = box.snapshot(retention_days=1)
        assert runtime.snapshots.get(made.id).digest == made.digest
        made.delete()
        assert made.id not in [one.id for one in runtime.snapshots.list()]
        assert box.network.set(internet=True, allow=["a.example"])["allow"] == ["a.example"]
        box.exec(["python3", "-c", "import urllib.request as u; u.urlopen('http://b.example')"])
        assert {row["host"] for row in box.network.attempts()} == {"b.example"}
        assert box.refresh().info.network.allow == ["a.example"]


# ---------------------------------------------------------------- life


def test_a_sandbox_outlives_the_process_that_made_it(backend: DistantBackend) -> None:
    runtime = Runtime(backend=backend)
    runtime.limits()
    script = f"""
        from proctor.client.distant import DistantBackend
        box = Runtime(backend=DistantBackend({str(backend.place)!r})).sandboxes.create(memory_mib=64)
        box.files.write("left", "here")
        print(box.id)
    """
    with client(script) as process:
        out, err = process.communicate(timeout=2 * PATIENCE)
    assert not err
    with runtime.sandboxes.get(out.strip()) as box:
        assert box.files.read_text("left") == "here"
    box.delete()


def test_what_a_killed_client_was_running_ends_and_the_sandbox_goes_on(backend: DistantBackend) -> None:
    with Runtime(backend=backend).sandboxes.create(memory_mib=64) as box:
        script = f"""
            from proctor.client.distant import DistantBackend
            box = Runtime(backend=DistantBackend({str(backend.place)!r})).sandboxes.get({box.id!r})
            threading.Thread(target=box.exec, args=("touch a; sleep 1001",), daemon=True).start()
            for event in box.exec_stream("touch b; sleep 1002"):
                pass
        """
        with client(script) as process:
            assert until(lambda: box.files.exists("a") and box.files.exists("b"))
            process.kill()
            process.communicate(timeout=PATIENCE)
        assert until(lambda: box.exec(["pgrep", "-x", "sleep"]).exit_code == 1)


def test_many_that_start_at_once_end_up_with_one(tmp_path: Path) -> None:
    backends = [DistantBackend(tmp_path / "keeper", linger_s=LONG_S) for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda backend: Runtime(backend=backend).limits(), backends))
    (keeper,) = {backend.keeper for backend in backends}
    for backend in backends:
        backend.close()
    end(keeper)


def test_it_ends_after_its_last_sandbox_and_another_one_is_started(tmp_path: Path) -> None:
    backend = DistantBackend(tmp_path / "keeper", linger_s=0)
    runtime = Runtime(backend=backend)
    keepers = []
    for _ in range(2):
        box = runtime.sandboxes.create(memory_mib=64)
        keepers.append(backend.keeper)
        assert box.exec("echo here").stdout == "here\n"
        assert alive(keepers[-1])
        box.delete()
        assert until(lambda: not alive(keepers[-1]))
        assert os.listdir(tmp_path / "keeper") == [place.LOCK]
    assert keepers[0] != keepers[1]
    assert not gone(lambda: leavings(keepers[0]) + leavings(keepers[1]))
    backend.close()


def test_calls_beside_its_end_are_all_answered(tmp_path: Path) -> None:
    """A keeper that ends at once: whatever is asked meets a living one, or makes the next."""
    backends = [DistantBackend(tmp_path / "keeper", linger_s=0) for _ in range(2)]

    def ask(backend: DistantBackend) -> set[int | None]:
        seen = set()
        for pause in range(6):
            assert Runtime(backend=backend).sandboxes.list() == []
            seen.add(backend.keeper)
            time.sleep(0.1 * pause)
        return seen

    with ThreadPoolExecutor(2) as pool:
        keepers = set().union(*pool.map(ask, backends)) - {None}
    for backend in backends:
        backend.close()
    for keeper in keepers:
        assert until(lambda keeper=keeper: not alive(keeper))


def test_told_to_end_it_ends_its_sandboxes(own: DistantBackend) -> None:
    box = Runtime(backend=own).sandboxes.create(memory_mib=64)
    box.spawn(["sleep", "1000"])
    keeper = own.keeper
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(box.exec, "touch begun; sleep 1000", timeout_ms=3_600_000)
        assert until(lambda: box.files.exists("begun"))
        os.kill(keeper, signal.SIGTERM)
        with pytest.raises((ConnectionError, ConflictError)):
            waiting.result(PATIENCE)
    assert until(lambda: not alive(keeper))
    assert not gone(lambda: leavings(keeper))
    assert os.listdir(own.place) == [place.LOCK]


def test_killed_it_leaves_nothing_and_its_socket_is_replaced(own: DistantBackend) -> None:
    runtime = Runtime(backend=own)
    box = runtime.sandboxes.create(memory_mib=64)
    box.exec("setsid sleep 1000 >/dev/null 2>&1 &")
    box.spawn(["python3", "-c", "while True: pass"])
    keeper = own.keeper
    assert leavings(keeper)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(box.exec, "touch begun; sleep 1000", timeout_ms=3_600_000)
        assert until(lambda: box.files.exists("begun"))
        os.kill(keeper, signal.SIGKILL)
        with pytest.raises(ConnectionError, match="has ended"):
            waiting.result(PATIENCE)
    assert not gone(lambda: leavings(keeper))
    assert place.SOCKET in os.listdir(own.place)
    with pytest.raises(NotFoundError):
        box.exec("true")
    with runtime.sandboxes.create(memory_mib=64) as other:
        assert other.exec("echo again").stdout == "again\n"


def test_one_of_another_version_is_not_spoken_to(backend: DistantBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    Runtime(backend=backend).limits()
    monkeypatch.setattr(distant, "version", lambda: "99.0")
    other = DistantBackend(backend.place)
    with pytest.raises(InfrastructureError, match=f"process {backend.keeper}.*this is 99.0.*kill {backend.keeper}"):
        Runtime(backend=other).limits()
    other.close()


def test_without_a_keeper_and_not_to_start_one(tmp_path: Path) -> None:
    backend = DistantBackend(tmp_path / "keeper", start=False)
    with pytest.raises(ConnectionError, match="no sandboxes are kept"):
        Runtime(backend=backend).limits()
    backend.close()
    assert not (tmp_path / "keeper").exists()


def test_a_keeper_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_PRICES_CPU_HOUR", "many")
    backend = DistantBackend(tmp_path / "keeper", linger_s=0)
    with pytest.raises((InfrastructureError, InputError), match="cpu_hour"):
        Runtime(backend=backend).sandboxes.create(memory_mib=64)
    keeper = backend.keeper
    backend.close()
    end(keeper)


def test_a_fork_does_not_use_its_parents_connection(backend: DistantBackend) -> None:
    runtime = Runtime(backend=backend)
    with runtime.sandboxes.create(memory_mib=64) as box:
        pid = os.fork()
        if pid == 0:
            try:
                box.exec("true")
            except ConnectionError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert box.exec("echo parent").stdout == "parent\n"


# ---------------------------------------------------------------- whose it is


def test_socket_and_directory_are_this_users_alone(own: DistantBackend) -> None:
    assert own.place.stat().st_mode & 0o777 == 0o700
    assert (own.place / place.SOCKET).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("how", ["link", "open", "theirs", "file"])
def test_a_directory_that_somebody_else_could_have_made_is_not_used(how: str, tmp_path: Path) -> None:
    where, real = tmp_path / "keeper", tmp_path / "real"
    if how == "theirs" and os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    if how == "file":
        where.write_text("")
    else:
        (real if how == "link" else where).mkdir(mode=0o700)
    if how == "link":
        where.symlink_to(real)
    elif how == "open":
        where.chmod(0o770)
    elif how == "theirs":
        os.chown(where, 65534, 65534)
    backend = DistantBackend(where)
    with pytest.raises(InfrastructureError, match="XDG_RUNTIME_DIR"):
        Runtime(backend=backend).limits()
    backend.close()
    assert not real.exists() or os.listdir(real) == []


def test_another_user_is_not_answered(own: DistantBackend) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    own.place.chmod(0o711)
    (own.place / place.SOCKET).chmod(0o666)
    script = """
import os, socket, sys
sock = socket.socket(socket.AF_UNIX)
os.chdir(sys.argv[1])
os.setuid(65534)
sock.connect("keeper.sock")
print(sock.recv(100))
"""
    out = subprocess.run(
        [sys.executable, "-I", "-c", script, str(own.place)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert out.stdout == "b''\n", out.stderr
    own.place.chmod(0o700)
    assert Runtime(backend=own).sandboxes.list() == []


def test_nonsense_ends_its_connection_and_no_other(backend: DistantBackend) -> None:
    with Runtime(backend=backend).sandboxes.create(memory_mib=64) as box:
        for data in (b"GET / HTTP/1.1\r\n\r\n" + b"x" * 100, pack(9, 1, {}), HEAD.pack(1, 1, 1 << 31, 0)):
            sock = place.connect(backend.place)
            assert sock is not None
            sock.setblocking(True)
            with sock:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
        assert box.exec("echo fine").stdout == "fine\n"


def test_a_call_that_is_not_in_the_table_is_refused(backend: DistantBackend) -> None:
    other = dataclasses.replace(table()["limits"], name="close")

    async def ask() -> Any:
        return await (await backend._connected()).call(other, {})

    with pytest.raises(FrameError, match="no such call"):
        asyncio.run_coroutine_threadsafe(ask(), backend.loop).result(PATIENCE)
    assert Runtime(backend=backend).limits()["sandboxes"]["limit"] > 0
