"""Who gets which GPU: exclusive, in turn, across processes, and no wait for those who want none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from proctor.core.sandbox import SandboxError, SandboxSpec
from proctor.engine import gpus as outside
from proctor.engine.gpus import Pool, environment
from proctor.engine.queue import Queue, Seat
from proctor.guest import gpus as inside
from proctor.isolation.gpus import Gpu, Gpus, Places

T4, H100 = "Tesla T4", "NVIDIA H100 80GB HBM3"


def found(*models: str) -> Gpus:
    """A host of these models; what its devices are called is unique, since that is what processes see of each other."""
    place = f"/nowhere/{uuid.uuid4().hex}"
    devices = [Gpu(number, f"nvidia{number}", f"{place}{number}", model) for number, model in enumerate(models)]
    return Gpus(Places(), tuple(devices), ("nvidiactl", "nvidia-uvm"))


_pools: list[Pool] = []


@pytest.fixture(autouse=True)
def _nothing_is_held_afterwards() -> Iterator[None]:
    yield
    while _pools:
        _pools.pop().forget()


def pool_of(host: Gpus) -> Pool:
    _pools.append(Pool(host))
    return _pools[-1]


def numbers(seat: Seat) -> list[int]:
    return [gpu.number for gpu in seat.devices]


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_each_gets_devices_that_nobody_else_has() -> None:
    async def work() -> None:
        queue = Queue(100, 100_000, pool_of(found(T4, T4, T4)))
        one, two = await queue.seat(1, 0.1, gpus=1), await queue.seat(1, 0.1, gpus=2)
        assert (numbers(one), numbers(two)) == ([0], [1, 2])
        with pytest.raises(SandboxError, match=r"and 1 GPU in 0.01 s.* 3 of 3 GPUs") as refused:
            await queue.seat(1, 0.01, gpus=1)
        assert (refused.value.code, refused.value.status) == ("no_capacity", 409)
        queue.leave(one)
        queue.leave(one)  # again
        three = await queue.seat(1, 0.1, gpus=1)
        assert numbers(three) == [0]

    run(work())


def test_those_that_ask_for_none_go_on_while_others_wait_for_gpus() -> None:
    async def work() -> None:
        queue = Queue(100, 100, pool_of(found(T4)))
        first = await queue.seat(10, 0, gpus=1)
        waiting = [asyncio.ensure_future(queue.seat(10, None, gpus=1)) for _ in range(3)]
        await settle()
        plain = [await queue.seat(10, 0.5) for _ in range(9)]  # all memory that is left
        late = asyncio.ensure_future(queue.seat(10, None))
        await settle()
        assert not late.done()
        queue.leave(first)  # its memory is for whoever comes first and can go on: the oldest that waits for a GPU
        await settle()
        assert [each.done() for each in waiting] == [True, False, False]
        assert not late.done()
        queue.leave(plain[0])
        await settle()
        assert late.done()
        queue.leave(waiting[0].result())
        await settle()
        assert [each.done() for each in waiting] == [True, True, False]
        waiting[2].cancel()

    run(work())


def test_gpus_are_given_in_turn_and_a_large_request_is_not_starved() -> None:
    async def work() -> None:
        queue = Queue(100, 100_000, pool_of(found(T4, T4)))
        ahead: list[int] = []
        one, two = await queue.seat(1, 0, gpus=1), await queue.seat(1, 0, gpus=1)
        large = asyncio.ensure_future(queue.seat(1, None, gpus=2))
        await settle()
        small = asyncio.ensure_future(queue.seat(1, None, ahead.append, gpus=1))
        await settle()
        queue.leave(one)
        await settle()
        assert not large.done()
        assert not small.done()  # else it and others like it would go before the large one for ever
        queue.leave(two)
        await settle()
        assert numbers(large.result()) == [0, 1]
        assert ahead == [1, 0]
        queue.leave(large.result())
        await settle()
        assert numbers(small.result()) == [0]

    run(work())


def test_one_that_waits_for_a_model_does_not_hold_up_those_of_another() -> None:
    async def work() -> None:
        queue = Queue(100, 100_000, pool_of(found(T4, H100)))
        first = await queue.seat(1, 0, gpus=1, models=("H100",))
        waiting = asyncio.ensure_future(queue.seat(1, None, gpus=1, models=("H100",)))
        await settle()
        assert numbers(await queue.seat(1, 0.1, gpus=1, models=("T4",))) == [0]
        queue.leave(first)
        assert numbers(await waiting) == [1]

    run(work())


def test_a_gpu_that_memory_is_lacking_for_is_not_held() -> None:
    async def work() -> None:
        pool = pool_of(found(T4))
        queue = Queue(100, 100, pool)
        full = await queue.seat(100, 0)
        waiting = asyncio.ensure_future(queue.seat(50, None, gpus=1))
        await settle()
        assert not pool.held
        queue.leave(full)
        assert numbers(await waiting) == [0]

    run(work())


def test_one_that_gives_up_leaves_its_turn_to_the_next() -> None:
    async def work() -> None:
        queue = Queue(100, 100_000, pool_of(found(T4, T4)))
        first = await queue.seat(1, 0, gpus=1)
        large = asyncio.ensure_future(queue.seat(1, None, gpus=2))
        await settle()
        small = asyncio.ensure_future(queue.seat(1, None, gpus=1))
        await settle()
        assert not small.done()
        large.cancel()
        assert numbers(await small) == [1]
        queue.leave(first)
        assert list(queue.gpus.held) == list(small.result().devices)

    run(work())


def test_many_at_once_never_share_one() -> None:
    async def work() -> None:
        queue = Queue(1000, 100_000, pool_of(found(*[T4] * 4)))
        having: set[int] = set()
        most = 0

        async def use(count: int) -> None:
            nonlocal most
            seat = await queue.seat(1, None, gpus=count)
            mine = set(numbers(seat))
            assert len(mine) == count
            assert not mine & having
            having.update(mine)
            most = max(most, len(having))
            await asyncio.sleep(0.001)
            having.difference_update(mine)
            queue.leave(seat)

        await asyncio.gather(*(use(1 + number % 4) for number in range(200)))
        assert most == 4
        assert not queue.gpus.held

    run(work())


_HOLD = """
import asyncio, json, sys
from proctor.engine.gpus import Pool
from proctor.isolation.gpus import Gpu, Gpus, Places
pool = Pool(Gpus(Places(), (Gpu(0, "nvidia0", sys.argv[1], "Tesla T4"),)))
print(pool.take(1, ()) is not None, flush=True)
sys.stdin.read(1)
pool.give_back(list(pool.held))
print("given", flush=True)
sys.stdin.read()
"""


def test_another_processs_are_waited_for_and_free_when_it_is_killed() -> None:
    host = found(T4)
    command = [sys.executable, "-c", _HOLD, host.devices[0].path]

    async def work() -> None:
        queue = Queue(100, 100_000, pool_of(host))
        other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert other.stdin is not None
        assert other.stdout is not None
        try:
            assert await asyncio.to_thread(other.stdout.readline) == b"True\n"
            with pytest.raises(SandboxError, match="others may be another process's"):
                await queue.seat(1, 0.2, gpus=1)
            assert await queue.seat(1, 0.5) is not None
            waiting = asyncio.ensure_future(queue.seat(1, None, gpus=1))
            await settle()
            other.stdin.write(b"x")
            other.stdin.flush()
            mine = await waiting
            queue.leave(mine)
        finally:
            other.kill()
            other.communicate()
        again = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert again.stdout is not None
        try:
            assert await asyncio.to_thread(again.stdout.readline) == b"True\n"
            waiting = asyncio.ensure_future(queue.seat(1, None, gpus=1))
            await settle()
        finally:
            again.kill()
            again.communicate()
        assert numbers(await waiting) == [0]

    run(work())


def test_what_can_never_be_is_refused_at_once() -> None:
    for spec, host, word, code in (
        (SandboxSpec(gpu=1), Gpus(Places(), missing=("no NVIDIA GPU: looked",)), "no NVIDIA GPU: looked", "no_gpu"),
        (SandboxSpec(gpu=3), found(T4, T4), "3 are more than the 2", "too_large"),
        (SandboxSpec(gpu=2, gpu_models=("H100",)), found(T4, H100), "2 are more than the 1", "too_large"),
        (SandboxSpec(gpu=1, gpu_models=("L4",)), found(T4, H100, H100), f"no L4; it has: {T4}, {H100}$", "no_gpu"),
    ):
        with pytest.raises(SandboxError, match=word) as refused:
            pool_of(host).check(spec)
        assert (refused.value.code, refused.value.status) == (code, 400)
    with pytest.raises(SandboxError, match="'microvm' gives no GPU") as refused:
        pool_of(found(T4)).check(SandboxSpec(gpu=1), "microvm")
    assert refused.value.code == "no_gpu"
    pool_of(found(T4)).check(SandboxSpec(), "microvm")
    pool_of(found(T4, H100)).check(SandboxSpec(gpu=1, gpu_models=("L4", "H100")))


def test_a_forked_child_lets_go_of_its_parents() -> None:
    host = found(T4)
    mine, other = pool_of(host), pool_of(host)
    assert mine.take(1, ())
    assert other.take(1, ()) is None
    assert other.elsewhere
    mine.forget()  # what a child does with its copy
    assert other.take(1, ())


def test_guest_and_host_mean_the_same_place() -> None:
    assert (inside.POINT, inside.HOME) == (outside.POINT, outside.HOME)


def test_variables() -> None:
    gpus = (Gpu(3, "nvidia3", "/dev/nvidia3", T4, "GPU-1"), Gpu(5, "nvidia5", "/dev/nvidia5"))
    env = environment({"PATH": "/bin", "NVIDIA_VISIBLE_DEVICES": "all", "A": "1"}, {"LD_LIBRARY_PATH": "/mine"}, gpus)
    assert env["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,5"
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert (env["PATH"], env["LD_LIBRARY_PATH"]) == ("/bin:/usr/local/nvidia/bin", "/mine:/usr/local/nvidia/lib64")
    assert environment({}, {"CUDA_VISIBLE_DEVICES": "1"}, gpus)["CUDA_VISIBLE_DEVICES"] == "1"
    assert environment({"A": "1"}, {"B": "2"}, ()) == {"A": "1", "B": "2"}
