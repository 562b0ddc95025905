"""What is found of NVIDIA's GPUs on a host, and what is said where something is missing."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from gpu_help import MODELS, VERSION, Tree, a_tree

from proctor.isolation import driver, gpus, runsc
from proctor.isolation.gvisor import has_nvproxy


@pytest.fixture
def tree() -> Iterator[Tree]:
    with a_tree() as made:
        yield made


def test_a_host_with_gpus(tree: Tree) -> None:
    found = tree.whole().find()
    assert [(gpu.number, gpu.node, gpu.model) for gpu in found.devices] == [
        (number, f"nvidia{number}", model) for number, model in enumerate(MODELS)
    ]
    assert found.devices[1].uuid == "GPU-00000001-aaaa-bbbb-cccc-dddddddddddd"
    assert [(gpu.bus, gpu.system) for gpu in found.devices] == [
        (f"0000:0{number}:00.0", f"devices/pci0000:00/0000:0{number}:00.0") for number in (1, 2, 3)
    ]
    assert found.system == ("module/nvidia", "devices/system/node", "devices/system/memory/block_size_bytes")
    assert found.nodes == ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    assert found.version == VERSION
    assert [(library.name, library.links) for library in found.libraries] == [
        (f"libcuda.so.{VERSION}", ("libcuda.so.1",)), (f"libnvidia-ml.so.{VERSION}", ("libnvidia-ml.so.1",)),
    ]  # fmt: skip
    assert found.smi == str(tree.bin / "nvidia-smi")
    assert not found.missing
    assert found.state().startswith("3 to give (0: Tesla T4, 1: NVIDIA H100 80GB HBM3, ")


def test_what_is_missing_is_named_with_where_and_what_to_do(tree: Tree) -> None:
    assert f"there is no {tree.dev}/nvidia0" in tree.find().state()
    tree.gpu(0)
    missing = "\n".join(tree.find().missing)
    assert f"there is no {tree.dev}/nvidiactl: run `nvidia-modprobe`" in missing
    assert f"there is no {tree.dev}/nvidia-uvm: run `nvidia-modprobe -u -c=0`" in missing
    assert f"there is no libcuda.so.1 in {tree.top}/cache, {tree.lib}: install the NVIDIA driver" in missing
    assert not tree.find().devices
    tree.shared()
    tree.library()
    assert len(tree.find().devices) == 1
    (tree.dev / "nvidia-uvm").unlink()
    (tree.dev / "nvidia-uvm").write_text("")
    assert f"{tree.dev}/nvidia-uvm is no character device" in tree.find().state()


@pytest.mark.skipif(os.geteuid() != 0, reason="as an ordinary user its own rights decide")
def test_a_node_that_sandboxes_could_not_open_is_not_given(tree: Tree) -> None:
    tree.whole()
    (tree.dev / "nvidia1").chmod(0o660)
    found = tree.find()
    assert [gpu.number for gpu in found.devices] == [0, 2]
    assert "nvidia1 has mode 0660" in found.missing[0]
    assert found.missing[0] in found.state()
    (tree.dev / "nvidiactl").chmod(0o600)
    assert not tree.find().devices


def test_numbers_are_the_nodes_own_and_not_their_names(tree: Tree) -> None:
    tree.whole((*MODELS, "NVIDIA L4"))
    tree.node("nvidia12", 195, 12)
    assert [gpu.number for gpu in tree.find().devices] == [0, 1, 2, 3, 12]
    assert str(tree.find().devices[4]) == "12: unknown model" or tree.find().devices[4].model == gpus.UNKNOWN


def test_models_that_the_kernel_module_does_not_tell_are_asked_of_nvidia_smi(tree: Tree) -> None:
    tree.whole(("", ""))
    assert [gpu.model for gpu in tree.find().devices] == ["Tesla V100-SXM2-16GB", gpus.UNKNOWN]


def test_mig_instances_bring_their_capability_nodes_and_no_others(tree: Tree) -> None:
    tree.whole()
    for minor, path in ((1, "mig/config"), (12, "gpu1/mig/gi1/access"), (13, "gpu1/mig/gi1/ci0/access")):
        tree.write(f"capabilities/{path}", f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
        tree.node(f"nvidia-caps/nvidia-cap{minor}", 237, minor, 0o444)
    tree.node("nvidia-caps/nvidia-cap21", 237, 21, 0o444)  # another's
    found = tree.find()
    assert [gpu.capabilities for gpu in found.devices] == [
        (), ("nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap13"), (),
    ]  # fmt: skip
    assert "capabilities/gpu1/mig/gi1/ci0/access" in dict(found.devices[1].texts)


def test_of_several_libraries_that_of_the_kernel_modules_version_is_taken(tree: Tree) -> None:
    tree.whole()
    older, newer = tree.top / "older", tree.top / "newer"
    tree.library("libcuda.so.1", "470.1.2", older)
    wanted = tree.library("libcuda.so.1", "550.99.9", newer)
    rows = driver.libraries("", (str(older), str(tree.lib), str(newer)), "550.99.9")
    (cuda,) = [row for row in rows if "libcuda.so.1" in row.links]
    assert cuda.path == str(wanted)
    rows = driver.libraries("", (str(older), str(newer)), None)  # not told: the first
    assert [row.name for row in rows if "libcuda.so.1" in row.links] == ["libcuda.so.470.1.2"]


def test_the_loaders_cache_leads_to_libraries_elsewhere(tree: Tree) -> None:
    tree.library()
    conf = tree.top / "conf"
    conf.write_text(f"{tree.lib}\n")
    made = subprocess.run(
        ["/sbin/ldconfig", "-X", "-f", str(conf), "-C", str(tree.top / "cache")], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("no cache can be made here")
    rows = driver.libraries(str(tree.top / "cache"), (), VERSION)
    assert [row.name for row in rows] == [f"libcuda.so.{VERSION}"]
    assert not driver.libraries(str(tree.top / "none"), (), VERSION)


def test_what_is_no_library_for_this_machine_is_left_out(tree: Tree) -> None:
    real = tree.library()
    data = bytearray(real.read_bytes())
    data[4] = 3 - data[4]  # the other word size
    real.write_bytes(data)
    assert not driver.libraries("", (str(tree.lib),), VERSION)
    real.write_text("no ELF file")
    assert not driver.libraries("", (str(tree.lib),), VERSION)


def test_versions_of_both_kernel_modules() -> None:
    proprietary = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12"
    )
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (root@host)"
    assert (driver.version(proprietary), driver.version(opened)) == ("550.54.15", "570.86.10")
    assert driver.version("") is None


@pytest.mark.parametrize(
    ("asked", "model"),
    [
        ("T4", "Tesla T4"), ("t4", "NVIDIA T4"), ("A10G", "NVIDIA A10G"), ("L4", "NVIDIA L4"), ("L40S", "NVIDIA L40S"),
        ("A100-40", "NVIDIA A100-SXM4-40GB"), ("A100-80", "NVIDIA A100-SXM4-80GB"), ("A100", "NVIDIA A100-PCIE-40GB"),
        ("H100", "NVIDIA H100 80GB HBM3"), ("RTX4090", "NVIDIA GeForce RTX 4090"), ("A6000", "NVIDIA RTX A6000"),
        ("any", "NVIDIA H200"), ("H200", "NVIDIA H200"), ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
    ],
)  # fmt: skip
def test_a_model_is_found_by_its_short_name(asked: str, model: str) -> None:
    assert gpus.is_model(asked, model)


@pytest.mark.parametrize(
    ("asked", "model"),
    [
        ("L4", "NVIDIA L40S"), ("A10", "NVIDIA A10G"), ("A100-80", "NVIDIA A100-SXM4-40GB"), ("T4", "Tesla V100"),
        ("H100", "NVIDIA H200"), ("", "Tesla T4"), ("--", "Tesla T4"), ("RTX4090", "NVIDIA GeForce RTX 4080"),
    ],
)  # fmt: skip
def test_another_model_is_another(asked: str, model: str) -> None:
    assert not gpus.is_model(asked, model)


def test_levels_that_give_none_say_so_by_name() -> None:
    assert gpus.refusal("jail") is None
    assert "'microvm' gives no GPU" in str(gpus.refusal("microvm"))
    told = str(gpus.refusal("gvisor"))
    assert re.search(r"'gvisor' gives no GPU .*(knows|does not know) --nvproxy", told)
    path = runsc.locate()
    if path is None:
        assert not has_nvproxy()
    else:
        flags = subprocess.run([path, "flags"], capture_output=True, text=True, check=False)
        assert has_nvproxy() == ("-nvproxy" in flags.stdout + flags.stderr)
