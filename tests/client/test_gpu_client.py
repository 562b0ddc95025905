"""GPUs through the SDK, Beam's names and the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "sandboxes"))
from gpu_help import MODELS, a_tree

from proctor import ConflictError, InvalidRequestError, Runtime
from proctor.beam import Sandbox
from proctor.cli.boxes import create_fields
from proctor.client.embedded import EmbeddedBackend
from proctor.client.fields import sandbox_spec
from proctor.isolation import gpus

OPENED = "import errno, os\nfor n in range(3):\n    try: os.open(f'/dev/nvidia{n}', os.O_RDWR)\n    except OSError as exc: print(n, errno.errorcode[exc.errno])\n"


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with a_tree() as tree:
        backend = EmbeddedBackend(gpus=tree.whole().find())
        yield Runtime(backend=backend)
        backend.close()


def test_create_with_gpus(runtime: Runtime) -> None:
    with runtime.sandboxes.create(gpu=2, memory_mib=128) as sandbox:
        assert sandbox.exec(["python3", "-c", OPENED]).stdout == "0 ENXIO\n1 ENXIO\n2 ENOENT\n"
        assert sandbox.info.gpu == 2
        assert runtime.limits()["gpus"] == {"limit": 3, "used": 2}
        with pytest.raises(ConflictError, match="2 GPU in 0 s"):
            runtime.sandboxes.create(gpu=2, wait_for_capacity=0)
    assert runtime.limits()["gpus"] == {"limit": 3, "used": 0}
    with pytest.raises(InvalidRequestError, match="4 are more than the 3"):
        runtime.sandboxes.create(gpu=4)


def test_beams_models(runtime: Runtime) -> None:
    with Sandbox(gpu="H100", gpu_count=2, runtime=runtime).create() as made:
        process = made.process.exec("python3", "-c", OPENED)
        assert (process.wait(), process.stdout.read()) == (0, "0 ENOENT\n1 ENXIO\n2 ENXIO\n")
    with Sandbox(gpu="any", runtime=runtime).create() as made:
        assert made.sandbox.info.gpu == 1
    with pytest.raises(InvalidRequestError, match=f"no A10G; it has: {MODELS[0]}, {MODELS[1]}; ask for one") as refused:
        Sandbox(gpu="A10G", runtime=runtime).create()
    assert refused.value.code == "no_gpu"


def test_options_of_the_command_line() -> None:
    options = {
        "memory": None, "disk": None, "name": None, "labels": (), "vcpu": None, "env": (), "timeout": 300.0, "image": None,
        "snapshot": None, "internet": None, "allow": (), "deny": (), "max_cost_micros": None, "isolation": None,
    }  # fmt: skip
    asked = sandbox_spec(create_fields({**options, "gpu": 2, "gpu_model": ("T4", "L4")}))
    assert (asked.gpu, asked.gpu_models) == (2, ("T4", "L4"))
    assert sandbox_spec(create_fields({**options, "gpu": None, "gpu_model": ()})).gpu == 0
    assert sandbox_spec(create_fields({**options, "gpu": None, "gpu_model": ("T4",)})).gpu == 1


def test_the_command_line_says_that_there_is_none() -> None:
    if gpus.find().devices:
        pytest.skip("this host has GPUs")
    for options in (["--gpu", "1"], ["--gpu-model", "T4"]):
        command = [sys.executable, "-m", "proctor.cli.main", "sandbox", "run", *options, "--", "true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 125
        assert "there is no /dev/nvidia0" in done.stderr
