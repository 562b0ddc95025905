"""The published examples of other SDKs run with only their import changed: in both spellings, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from proctor import AsyncRuntime, Runtime
from proctor.engine.sandboxes import Sandboxes

CASES = [{"stdin": f"{a} {b}\n", "expected": f"{a + b}"} for a, b in ((3, 4), (10, -2))]
PROGRAMS = {
    "print(sum(map(int, input().split())))": 1.0,
    "print(7)": 0.5,
    "raise SystemExit(1)": 0.0,
    "import os, sys; sys.stdout.write('7'); sys.stdout.flush(); os._exit(3)": 0.0,
    "while True: pass": 0.0,
    "import socket; socket.create_connection(('1.1.1.1', 80), 1)": 0.0,
    "import shutil, os; shutil.rmtree('/workspace', ignore_errors=True); os.kill(os.getppid(), 9)": 0.0,
}  # fmt: skip
LIMIT_MS = 3_000  # in place of 5,000: one of the programs never ends


def test_code_reward_async() -> None:
    async def reward(runtime: Any, program: str, cases: list[dict[str, str]]) -> float:
        async with await runtime.sandboxes.create(
            vcpu=1,
            memory_mib=2048,
            network={"internet": False},
            timeout_seconds=300,
            on_lease_end="stop",
            labels={"run": "grpo-2026-09-25"},
        ) as sbx:
            await sbx.files.write("/workspace/solution.py", program)
            passed = 0
            for case in cases:
                run = await sbx.exec(["python3", "/workspace/solution.py"],
                                     stdin=case["stdin"], timeout_ms=LIMIT_MS)  # fmt: skip
                if not run.timed_out and run.exit_code == 0 and run.stdout.strip() == case["expected"].strip():
                    passed += 1
            return passed / len(cases)

    async def rewards(programs: list[str], cases: list[dict[str, str]]) -> list[float]:
        async with AsyncRuntime(wait_for_capacity=600) as runtime:
            return await asyncio.gather(*(reward(runtime, p, cases) for p in programs))

    assert asyncio.run(rewards(list(PROGRAMS), CASES)) == list(PROGRAMS.values())


def test_code_reward_async_in_the_other_spelling() -> None:
    async def reward(runtime: Any, program: str, cases: list[dict[str, str]]) -> float:
        async with runtime.sandboxes.create(
            vcpu=1,
            memoryMiB=2048,
            network={"internet": False},
            timeoutSeconds=300,
            onLeaseEnd="stop",
            labels={"run": "grpo-2026-09-25"},
        ) as sbx:
            await sbx.files.write("/workspace/solution.py", program)
            passed = 0
            for test in cases:
                run = await sbx.exec(["python3", "/workspace/solution.py"], stdin=test["stdin"], timeoutMs=LIMIT_MS)
                if not run.timedOut and run.exitCode == 0 and run.stdout.strip() == test["expected"].strip():
                    passed += 1
            return passed / len(cases)

    async def rewards(programs: list[str], cases: list[dict[str, str]]) -> list[float]:
        runtime = AsyncRuntime(waitForCapacityMs=600_000)
        return await asyncio.gather(*(reward(runtime, program, cases) for program in programs))

    assert asyncio.run(rewards(list(PROGRAMS), CASES)) == list(PROGRAMS.values())


@pytest.mark.parametrize("spelling", ["snake", "camel"])
def test_code_reward_sync(spelling: str) -> None:
    snake = spelling == "snake"
    runtime = Runtime(wait_for_capacity=600) if snake else Runtime(waitForCapacityMs=600_000)
    create: dict[str, Any] = (
        {"memory_mib": 2048, "timeout_seconds": 300, "on_lease_end": "stop"}
        if snake
        else {"memoryMiB": 2048, "timeoutSeconds": 300, "onLeaseEnd": "stop"}
    )

    def reward(program: str) -> float:
        with runtime.sandboxes.create(
            vcpu=1, network={"internet": False}, labels={"run": "grpo-2026-09-25"}, **create
        ) as sbx:
            sbx.files.write("/workspace/solution.py", program)
            passed = 0
            for case in CASES:
                limit = {"timeout_ms": LIMIT_MS} if snake else {"timeoutMs": LIMIT_MS}
                run = sbx.exec(["python3", "/workspace/solution.py"], stdin=case["stdin"], **limit)
                if not run.timed_out and run.exit_code == 0 and run.stdout.strip() == case["expected"].strip():
                    passed += 1
            return passed / len(CASES)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(reward, PROGRAMS)) == list(PROGRAMS.values())
    assert list(runtime.sandboxes.list(labels={"run": "grpo-2026-09-25"})) == []


# ---------------------------------------------------------------- warm start, which needs a network and snapshots

needs_snapshots = pytest.mark.skipif(
    not hasattr(Sandboxes, "snapshot") or not hasattr(Sandboxes, "set_network"),
    reason="the engine has no snapshots or no network yet",
)


# What prepares a grader: a module that is put where pip puts them; no registry is asked in a test.
INSTALL = (
    "site=$(python3 -c 'import site; print(site.getusersitepackages())'); mkdir -p $site; "
    "echo '__version__ = \"1.14.0\"' > $site/sympy.py"
)


@needs_snapshots
def test_warm_start_async() -> None:
    async def main() -> str:
        runtime = AsyncRuntime()
        base = await runtime.sandboxes.create(
            vcpu=1,
            memoryMiB=2048,
            network={"internet": True, "allow": ["packages.example.org", "*.files.example.org"]},
        )
        await base.exec(INSTALL, check=True, timeoutMs=180_000)
        await base.network.set({"internet": False})
        grader = await base.snapshot(name="grader-v1", retentionDays=30)
        await base.stop()
        try:
            async with runtime.sandboxes.create(snapshot=grader.id, network={"internet": False}) as sbx:
                return (await sbx.exec(["python3", "-c", "import sympy; print(sympy.__version__)"])).stdout
        finally:
            await runtime.snapshots.delete(grader["id"])

    assert asyncio.run(main()) == "1.14.0\n"


@needs_snapshots
def test_warm_start_sync() -> None:
    runtime = Runtime()
    base = runtime.sandboxes.create(vcpu=1, memory_mib=2048, network={"internet": True, "allow": ["example.org"]})
    base.exec(INSTALL, check=True, timeout_ms=180_000)
    base.network.set(internet=False)
    grader = base.snapshot(name="grader-v2", retention_days=30)
    base.stop()
    try:
        with runtime.sandboxes.create(snapshot_id=grader["id"], network={"internet": False}) as sbx:
            assert sbx.exec(["python3", "-c", "import sympy; print(sympy.__version__)"]).stdout == "1.14.0\n"
    finally:
        grader.delete()


# ---------------------------------------------------------------- the shape of Beam

TESTS = """
from solution import add
def test_add():
    assert add(2, 3) == 5
    assert add(-1, 1) == 0
test_add()
"""


def verify(completion: str, *, spell: Callable[..., Any]) -> float:
    from proctor.beam import Image, Sandbox

    sandbox = Sandbox(cpu=1, memory="512Mi", image=Image(python_version="python3"), keep_warm_seconds=60)
    with sandbox.create() as sb:
        sb.update_ttl(30)
        sb.fs.write_text("/workspace/solution.py", completion)
        sb.fs.write_text("/workspace/test_solution.py", TESTS)
        return 1.0 if spell(sb).wait() == 0 else 0.0


@pytest.mark.parametrize(
    "spell",
    [
        lambda sb: sb.process.exec("python3", "test_solution.py", cwd="/workspace"),
        lambda sb: sb.process.exec(["python3", "/workspace/test_solution.py"]),
    ],
)
def test_beam_reward(spell: Callable[..., Any]) -> None:
    completions = ["def add(a, b): return a + b", "def add(a, b): return 5", "def add(a, b): raise OSError", "def"]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda text: verify(text, spell=spell), completions)) == [1.0, 0.0, 0.0, 0.0]
