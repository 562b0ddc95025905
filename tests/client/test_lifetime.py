"""When sandboxes begin and end: capacity, leases, blocks that are left in every way, forks, threads, and a killed owner."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from client_help import PATIENCE, client, finished, gone, leavings, until

from proctor import AsyncRuntime, ConflictError, NotFoundError, Runtime
from proctor.client.door import SyncDoor
from proctor.client.embedded import EmbeddedBackend
from proctor.client.errors import ConnectionError, InvalidRequestError


@pytest.fixture
def two() -> Iterator[EmbeddedBackend]:
    """Room for two sandboxes."""
    backend = EmbeddedBackend(most=2, memory_mib=4096)
    yield backend
    backend.close()


def running(runtime: Any) -> list[str]:
    return [box.id for box in runtime.sandboxes.list()]


# ---------------------------------------------------------------- capacity


def test_the_third_waits_and_is_told(two: EmbeddedBackend) -> None:
    async def main() -> None:
        told: list[int] = []
        errors: list[tuple[str, int]] = []
        runtime = AsyncRuntime(backend=two, on_queued=told.append)
        first, second = await runtime.sandboxes.create(memory_mib=64), await runtime.sandboxes.create(memory_mib=64)
        order: list[int] = []

        async def wait(number: int) -> None:
            async with runtime.sandboxes.create(
                memory_mib=64, on_capacity_wait=lambda error, left: errors.append((error.code, error.details["ahead"]))
            ):
                order.append(number)

        waiting = []
        for number in range(3):
            waiting.append(asyncio.create_task(wait(number)))
            while len(told) < number + 1:
                await asyncio.sleep(0.001)
        assert told == [0, 1, 2]
        assert errors == [("no_capacity", 0), ("no_capacity", 1), ("no_capacity", 2)]
        assert (await runtime.limits())["sandboxes"] == {"limit": 2, "used": 2, "waiting": 3}
        await first.delete()
        await asyncio.gather(*waiting)
        assert order == [0, 1, 2]
        assert told[3:] == [0, 1, 0]
        await second.delete()

    asyncio.run(main())


def test_a_create_that_waits_in_a_thread_is_told_there(two: EmbeddedBackend) -> None:
    runtime = Runtime(backend=two)
    with runtime.sandboxes.create() as first, runtime.sandboxes.create():
        where: list[str] = []

        def note(error: Any, left: float) -> None:
            where.append(threading.current_thread().name)
            first.delete()  # a callback may use the sandboxes

        with ThreadPoolExecutor(1, "waits") as pool:
            pool.submit(lambda: runtime.sandboxes.create(on_capacity_wait=note).delete()).result(PATIENCE)
        assert where == ["waits_0"]


def test_no_room_in_time_is_a_conflict(two: EmbeddedBackend) -> None:
    runtime = Runtime(backend=two)
    with runtime.sandboxes.create(), runtime.sandboxes.create():
        for wait in (0, 0.05):
            with pytest.raises(ConflictError) as caught:
                runtime.sandboxes.create(wait_for_capacity=wait)
            assert (caught.value.code, caught.value.status, caught.value.retryable) == ("no_capacity", 409, True)
    assert running(runtime) == []


def test_a_callback_that_raises_gives_the_create_up(two: EmbeddedBackend) -> None:
    def bad(ahead: int) -> None:
        raise LookupError(ahead)

    runtime = Runtime(backend=two, on_queued=bad)
    with runtime.sandboxes.create(), runtime.sandboxes.create():
        with pytest.raises(LookupError):
            runtime.sandboxes.create()
        assert runtime.limits()["sandboxes"]["waiting"] == 0

    async def main() -> None:
        other = AsyncRuntime(backend=two, on_queued=bad)
        async with other.sandboxes.create(), other.sandboxes.create():
            with pytest.raises(LookupError):
                await other.sandboxes.create()

    asyncio.run(main())
    assert running(runtime) == []


# ---------------------------------------------------------------- leases and blocks


def test_a_lease_ends(runtime: Any) -> None:
    box = runtime.sandboxes.create(timeout_seconds=0.3)
    assert until(lambda: box.refresh().state == "stopped")
    assert box.info.stopReason == "lease_end"
    with pytest.raises(ConflictError, match="lease_end"):
        box.exec("true")
    box.delete()


def test_a_lease_is_made_longer(runtime: Any) -> None:
    with runtime.sandboxes.create(timeout_seconds=0.5) as box:
        before = box.info.expiresAt
        box.extend(600)
        assert box.info.expiresAt > before
        box.exec(["sleep", "0.7"])
        assert box.refresh().state == "running"
        box.update(timeoutSeconds=0.1, labels={"a": "b"})
        assert box.labels == {"a": "b"}
        assert until(lambda: box.refresh().state == "stopped")


def test_what_a_sandbox_cannot_be_given_is_named(runtime: Any) -> None:
    def lengthen(box: Any) -> None:
        for _ in range(1000):
            box.extend(10 * 365 * 86400)

    with runtime.sandboxes.create(timeout_seconds=60) as box:
        with pytest.raises(InvalidRequestError, match=r"seconds: 315360000\.0 cannot be; give at most \d+,") as caught:
            lengthen(box)
        assert (caught.value.code, caught.value.status) == ("invalid_request", 400)
        assert box.refresh().info.expiresAt[:3] == "999"
        box.extend(60)
        with pytest.raises(InvalidRequestError, match=r"max_cost_micros: 10{14}1 cannot be; give a whole number"):
            box.update(max_cost_micros=10**15 + 1)
        assert box.update(timeout_seconds=60, max_cost_micros=10**15).info.maxCostMicros == 10**15


def test_a_block_deletes_whatever_happens_in_it(runtime: Any) -> None:
    with pytest.raises(LookupError), runtime.sandboxes.create() as box:
        raise LookupError
    with pytest.raises(NotFoundError):
        runtime.sandboxes.get(box.id)
    with runtime.sandboxes.create() as box:
        box.delete()  # twice is once


def test_keep_and_found_handles_stop(runtime: Any) -> None:
    with runtime.sandboxes.create(keep=True) as box:
        pass
    assert runtime.sandboxes.get(box.id).state == "stopped"
    runtime.sandboxes.delete(box.id)
    made = runtime.sandboxes.create()
    with runtime.sandboxes.get(made.id) as box:
        assert box.exec("echo here").stdout == "here\n"
    assert runtime.sandboxes.get(made.id).state == "stopped"
    made.delete()


def test_cancelling_a_block_deletes(backend: EmbeddedBackend) -> None:
    async def main() -> str:
        runtime = AsyncRuntime(backend=backend)
        ids: list[str] = []

        async def block() -> None:
            async with runtime.sandboxes.create() as box:
                ids.append(box.id)
                await box.exec(["sleep", "1000"])

        task = asyncio.create_task(block())
        while not ids:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(NotFoundError):
            await runtime.sandboxes.get(ids[0])
        return ids[0]

    asyncio.run(main())


def test_cancelling_a_create_at_any_moment_leaves_nothing(backend: EmbeddedBackend) -> None:
    async def main() -> None:
        runtime = AsyncRuntime(backend=backend)
        for turn in range(40):
            task = asyncio.create_task(runtime.sandboxes.create(memory_mib=64))
            await asyncio.sleep(turn * 0.0003)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).delete()
        for _ in range(6000):  # one that was given up still counts until it has ended
            if not await runtime.sandboxes.list() and not (await runtime.limits())["sandboxes"]["used"]:
                break
            await asyncio.sleep(0.01)
        assert not await runtime.sandboxes.list()
        assert (await runtime.limits())["sandboxes"]["used"] == 0

    asyncio.run(main())


def test_cancelling_a_command_ends_it(backend: EmbeddedBackend) -> None:
    async def main() -> None:
        async with AsyncRuntime(backend=backend).sandboxes.create() as box:
            for options in ({}, {"on_stdout": print}):
                task = asyncio.create_task(box.exec("touch begun; sleep 1000", **options))
                while not await box.files.exists("begun"):
                    await asyncio.sleep(0.005)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                while (await box.exec(["pgrep", "-x", "sleep"])).exit_code == 0:
                    await asyncio.sleep(0.005)
                await box.files.remove("begun")

    asyncio.run(main())


def test_cancelling_a_command_at_any_moment_leaves_the_sandbox_in_order(backend: EmbeddedBackend) -> None:
    async def main() -> None:
        async with AsyncRuntime(backend=backend).sandboxes.create() as box:
            for turn in range(60):
                work = (box.exec, box.spawn)[turn % 2](["sleep", "1000"])
                task = asyncio.create_task(work)
                await asyncio.sleep(turn * 0.0003)
                task.cancel()
                if (await asyncio.gather(task, return_exceptions=True))[0] is not None and not task.cancelled():
                    await task.result().kill(9)  # a process whose start came before
                assert (await box.exec(["echo", str(turn)])).stdout == f"{turn}\n"
            while (await box.exec(["pgrep", "-x", "sleep"])).exit_code == 0:
                await asyncio.sleep(0.005)

    asyncio.run(main())


def test_cancelling_an_upload_leaves_the_sandbox_in_order(backend: EmbeddedBackend, tmp_path: Any) -> None:
    (tmp_path / "big").write_bytes(b"x" * (64 << 20))

    async def main() -> None:
        async with AsyncRuntime(backend=backend).sandboxes.create() as box:
            for turn in range(10):
                task = asyncio.create_task(box.files.upload(tmp_path / "big", "big"))
                await asyncio.sleep(0.003 * turn)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                assert (await box.exec(["echo", str(turn)])).stdout == f"{turn}\n"
            assert [row.name for row in await box.files.list()] in ([], ["big"])

    asyncio.run(main())


# ---------------------------------------------------------------- by name, label and key


def test_get_or_create_makes_one(runtime: Any) -> None:
    first = runtime.sandboxes.get_or_create("one", memory_mib=64)
    second = runtime.sandboxes.get_or_create("one")
    assert first.id == second.id
    with pytest.raises(ConflictError) as caught:
        runtime.sandboxes.create(name="one")
    assert caught.value.code == "name_taken"
    first.delete()
    third = runtime.sandboxes.get_or_create("one")
    assert third.id != first.id
    third.delete()


def test_many_at_once_get_the_same_one(backend: EmbeddedBackend) -> None:
    async def main() -> None:
        runtime = AsyncRuntime(backend=backend)
        boxes = await asyncio.gather(*(runtime.sandboxes.get_or_create("same", memory_mib=64) for _ in range(8)))
        assert len({box.id for box in boxes}) == 1
        await boxes[0].delete()

    asyncio.run(main())


def test_a_key_gives_the_same_sandbox(runtime: Any, request: pytest.FixtureRequest) -> None:
    key = request.node.name
    first = runtime.sandboxes.create(idempotency_key=key, memory_mib=64)
    assert runtime.sandboxes.create(idempotencyKey=key, memoryMiB=64).id == first.id
    with pytest.raises(ValueError, match="another request"):
        runtime.sandboxes.create(idempotency_key=key, memory_mib=65)
    first.delete()


def test_list_and_end_by_label(runtime: Any) -> None:
    boxes = [runtime.sandboxes.create(memory_mib=64, labels={"run": "r", "n": str(n)}) for n in range(3)]
    found = runtime.sandboxes.list(labels={"run": "r"})
    assert [box.id for box in found] == [box.id for box in boxes]
    assert [box["id"] for box in runtime.sandboxes.list(labels={"n": "1"})] == [boxes[1].id]
    assert len(runtime.sandboxes.list(labels={"run": "r"}, limit=2)) == 2
    boxes[0].stop()
    assert len(runtime.sandboxes.list(labels={"run": "r"}, include_stopped=True)) == 3
    assert [box.id for box in runtime.sandboxes.list(labels={"run": "r"}, state="stopped")] == [boxes[0].id]
    assert runtime.sandboxes.stop_all(labels={"run": "r", "n": "1"})["stopped"] == [boxes[1].id]
    assert len(runtime.sandboxes.delete_all(labels={"run": "r"})["deleted"]) == 3
    assert len(runtime.sandboxes.list(labels={"run": "r"}, include_stopped=True)) == 0
    for call in (runtime.sandboxes.stop_all, runtime.sandboxes.delete_all):
        with pytest.raises(ValueError, match="labels"):
            call(labels={})


# ---------------------------------------------------------------- threads, loops, forks, ends


@pytest.mark.parametrize("what", ["read_stream", "exec_stream"])
def test_a_stream_that_is_collected_by_the_engines_own_thread_holds_nothing_up(what: str) -> None:
    """Left in a cycle it ends wherever garbage is collected: in the thread that would have to answer, too."""
    backend = EmbeddedBackend(spare=0)
    runtime, loop = Runtime(backend=backend), backend.loop
    with contextlib.closing(backend), runtime.sandboxes.create(memory_mib=64) as sbx:
        sbx.files.write("f", "text")
        held: list[object] = [sbx.files.read_stream("f") if what == "read_stream" else sbx.exec_stream("sleep 1000")]
        next(held[0])  # type: ignore[call-overload]
        held.append(held)
        gc.disable()
        try:
            del held
            loop.call_soon_threadsafe(gc.collect)
            answered = threading.Event()
            loop.call_soon_threadsafe(answered.set)
            assert answered.wait(60)
        finally:
            gc.enable()
        assert sbx.exec("echo goes on").stdout == "goes on\n"
        for _ in range(600):
            if not sbx.exec("pgrep -f 'sleep 100[0]'").stdout:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the command of a stream that nobody reads runs on")


def test_threads_share_the_sandboxes(backend: EmbeddedBackend) -> None:
    runtime = Runtime(backend=backend)

    def one(number: int) -> str:
        with runtime.sandboxes.create(memory_mib=64) as box:
            return str(box.exec(["echo", str(number)]).stdout)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(24))) == [f"{number}\n" for number in range(24)]


def test_the_synchronous_twin_works_inside_a_running_loop(backend: EmbeddedBackend) -> None:
    async def cell() -> str:  # as in a notebook
        with Runtime(backend=backend).sandboxes.create() as box:
            return str(box.exec("echo from a notebook").stdout)

    assert asyncio.run(cell()) == "from a notebook\n"


def test_one_runtime_for_one_loop_after_another(backend: EmbeddedBackend) -> None:
    runtime = AsyncRuntime(backend=backend)

    async def make() -> Any:
        return await runtime.sandboxes.create()

    async def use(box: Any) -> str:
        async with box:
            return str((await box.exec("echo later")).stdout)

    assert asyncio.run(use(asyncio.run(make()))) == "later\n"


def test_after_the_backend_was_closed() -> None:
    backend = EmbeddedBackend()
    box = Runtime(backend=backend).sandboxes.create()
    backend.close()
    with pytest.raises(ConnectionError, match="closed"):
        box.exec("true")
    with box:
        pass


def test_a_script_that_just_ends_leaves_nothing() -> None:
    out = finished("""
        box = Runtime().sandboxes.create(memory_mib=64)
        box.spawn(["sleep", "1000"])
        print(box.exec("echo up").stdout, end="")
    """)
    assert out == "up\n"


def test_a_fork_has_its_own_and_ends_nothing_of_its_parents() -> None:
    out = finished("""
        runtime = Runtime()
        with runtime.sandboxes.create(memory_mib=64) as box:
            pid = os.fork()
            if pid == 0:
                with box:  # leaves it alone: it is the parent's
                    pass
                try:
                    box.exec("true")
                except Exception as exc:
                    print(type(exc).__name__, flush=True)
                with runtime.sandboxes.create(memory_mib=64) as own:
                    print(own.exec("echo child").stdout, end="", flush=True)
                from proctor.client.embedded import close_all
                close_all()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            print(box.exec("echo parent").stdout, end="")
    """)
    assert out == "ConnectionError\nchild\nparent\n"


@pytest.mark.parametrize("how", ["sync", "async"])
def test_ctrl_c_ends_the_block_and_its_sandbox(how: str) -> None:
    sync = """
        runtime = Runtime()
        try:
            with runtime.sandboxes.create(memory_mib=64) as box:
                print("up", flush=True)
                box.exec(["sleep", "1000"], timeout_ms=3_600_000)
        except KeyboardInterrupt:
            print("interrupted", len(runtime.sandboxes.list(include_stopped=True)), flush=True)
    """
    other = """
        runtime = AsyncRuntime()
        async def main():
            async with runtime.sandboxes.create(memory_mib=64) as box:
                print("up", flush=True)
                await box.exec(["sleep", "1000"], timeout_ms=3_600_000)
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted", len(Runtime().sandboxes.list(include_stopped=True)), flush=True)
    """
    with client(sync if how == "sync" else other) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        until(lambda: False, 0.1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert out == "interrupted 0\n", err[-2000:]
    assert process.returncode == 0
    assert not gone(lambda: leavings(process.pid))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_owner_that_is_killed_leaves_nothing(number: int) -> None:
    script = """
        runtime = Runtime()
        boxes = [runtime.sandboxes.create(memory_mib=64) for _ in range(3)]
        for box in boxes:
            box.exec("setsid sleep 1000 >/dev/null 2>&1 &")
            box.spawn(["python3", "-c", "while True: pass"])
        print("up", flush=True)
        time.sleep(1000)
    """
    with client(script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert leavings(process.pid)
        os.kill(process.pid, number)
        process.communicate(timeout=PATIENCE)
    assert not gone(lambda: leavings(process.pid))


def test_an_owner_whose_fork_lives_on_leaves_nothing() -> None:
    script = """
        box = Runtime().sandboxes.create(memory_mib=64)
        box.spawn(["sleep", "1000"])
        pid = os.fork()
        if pid == 0:
            time.sleep(1000)
        print(pid, flush=True)
        time.sleep(1000)
    """
    with client(script) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        try:
            process.wait(PATIENCE)
            assert not gone(lambda: leavings(process.pid))
        finally:
            os.kill(child, signal.SIGKILL)


def test_ctrl_c_at_any_moment_of_a_stream_ends_it_and_leaves_nothing() -> None:
    out = finished("""
        import random, warnings
        warnings.simplefilter("ignore")  # a call that was interrupted before it began is no call
        sys.unraisablehook = lambda _: None
        runtime = Runtime()
        random.seed(7)
        ended = 0
        with runtime.sandboxes.create(memory_mib=64) as box:
            for _ in range(60):
                timer = threading.Timer(random.uniform(0, 0.05), os.kill, (os.getpid(), signal.SIGINT))
                try:
                    timer.start()
                    for event in box.exec_stream("while :; do echo x; done", timeout_ms=600_000):
                        pass
                except KeyboardInterrupt:
                    ended += 1
            print(ended, box.exec("echo fine").stdout, end="")
    """)
    assert out == "60 fine\n"


def test_an_interrupt_that_takes_the_end_from_the_queue_does_not_wait_for_another() -> None:
    with contextlib.closing(EmbeddedBackend(most=1)) as backend:
        door = SyncDoor(backend)

        async def work(note: Any) -> None:
            note(1)

        class Greedy(queue.SimpleQueue):  # type: ignore[type-arg]
            def get(self, *args: Any, **kwargs: Any) -> Any:
                found = super().get(*args, **kwargs)
                if not isinstance(found, int):
                    raise KeyboardInterrupt  # as a signal between taking it and returning it
                return found

        waited = threading.Event()

        def call() -> None:
            with contextlib.suppress(KeyboardInterrupt):
                door.noting(work, lambda _: None)
            waited.set()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("proctor.client.door.queue.SimpleQueue", Greedy)
            threading.Thread(target=call, daemon=True).start()
            assert waited.wait(PATIENCE)
