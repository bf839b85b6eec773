"""The stand-in for CUDA's library: builds it, and runs programs in which Vulkan finds it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
NAME = "libcuda.so.1"
LAVAPIPE = sorted(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json"))
# Vulkan's structure types.
APPLICATION, INSTANCE, PROPERTIES, IDENTITY = 0, 1, 1000059001, 1000071004
VERSION_1_2 = (1 << 22) | (2 << 12)


def build(folder: Path) -> Path:
    """Builds the library in a folder."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    path = folder / NAME
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(path), str(SOURCE)]
    subprocess.run(command, check=True)
    return path


def _words(*words: int) -> ctypes.Array[ctypes.c_uint64]:
    """A structure of 64-bit words. Vulkan's functions write no more than a kilobyte of it."""
    return (ctypes.c_uint64 * 160)(*words)


def device_uuid() -> str:
    """The UUID of the first Vulkan device. Called in a process of its own."""
    vulkan = ctypes.CDLL("libvulkan.so.1")
    vulkan.vkGetInstanceProcAddr.restype = ctypes.c_void_p
    vulkan.vkGetInstanceProcAddr.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    application = _words(APPLICATION, 0, 0, 0, 0, VERSION_1_2)
    # The last two members of the first structure are 32-bit numbers: engine version, API version.
    application[5] = VERSION_1_2 << 32
    create, instance = _words(INSTANCE, 0, 0, ctypes.addressof(application)), ctypes.c_void_p()
    assert vulkan.vkCreateInstance(create, None, ctypes.byref(instance)) == 0
    count, device = ctypes.c_uint32(1), ctypes.c_void_p()
    vulkan.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), ctypes.byref(device))
    identity = _words(IDENTITY)
    query = _words(PROPERTIES, ctypes.addressof(identity))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    function(vulkan.vkGetInstanceProcAddr(instance, b"vkGetPhysicalDeviceProperties2"))(device, ctypes.addressof(query))
    return bytes(identity)[16:32].hex()


def _run(command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    lavapipe = str(LAVAPIPE[0])
    env = {**os.environ, "VK_ICD_FILENAMES": lavapipe, "VK_DRIVER_FILES": lavapipe, **variables}
    env.pop("QD_ARCH", None)
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=env, check=False)


def run(folder: Path, program: str, knows_device: bool = True, **variables: str) -> str:
    """Runs a program on lavapipe; returns its output. The stand-in knows the device unless told otherwise."""
    if not LAVAPIPE:
        pytest.skip("Mesa's lavapipe is not installed")
    asked = _run([str(Path(__file__))])
    if "libvulkan.so.1" in asked.stderr:
        pytest.skip("Vulkan's loader is not installed")
    assert asked.returncode == 0, asked.stderr
    library = build(folder)
    places = ":".join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    uuid = asked.stdout.strip() if knows_device else "00" * 16
    ran = _run(
        [str(_write(folder, program))],
        LD_LIBRARY_PATH=places,
        CUDA_STANDIN_UUID=uuid,
        CUDA_STANDIN=str(library),
        PYTHONPATH=":".join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        **variables,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout + ran.stderr


def _write(folder: Path, program: str) -> Path:
    # Kernels need a file.
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    return path


if __name__ == "__main__":
    print(device_uuid())
