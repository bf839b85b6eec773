"""Runs other programs of this folder with the device's memory transferred by the NCCL communicator.

    mpiexec -n 2 python nccl_programs.py split_programs.py NAME FOLDER

There is no GPU: `fake_nccl` stands in for nccl4py, and the memory of arrays on the CPU for that of a GPU.
"""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "fake_nccl"), str(HERE)]

from nccl.bindings import nccl  # noqa: E402

from octants import _octants  # noqa: E402
from octants._distributed import memory_ranges, world  # noqa: E402

memory_ranges.is_on_host = lambda buffer: False
_octants.current_device = lambda: SimpleNamespace(kind="cuda")


def main():
    del sys.argv[0]
    runpy.run_path(str(HERE / sys.argv[0]), run_name="__main__")
    if world.world().size > 1:
        assert type(world.world()).__name__ == "NcclCommunicator"
        world.leave()
        # In one piece, because the ranks share the output.
        sys.stdout.write(f"calls: {', '.join(sorted(set(nccl.calls)))}\n")


main()
