"""Cooperating threads: blocks, subgroups and the grid.

The threads that run a parallel loop form blocks, which share memory (`block.SharedArray`) and synchronize at barriers
(`block.sync`). The threads of a block form subgroups, which exchange values in registers (`subgroup.shuffle`). With
`qd.loop_config(block_dim=n)`, block `b` runs iterations `n * b` to `n * b + n - 1` if the number of iterations is known
when the launch begins.

These functions are for kernels and `@qd.func` functions, on GPUs and on the CPU. Collective operations must be in
uniform control flow: not under a condition that differs among the threads of the block or subgroup.
"""

from octants.simt import block, grid, subgroup, warp
from octants.simt.products import FragmentType, MatrixProduct
from octants.simt.tiles import Tile16x16, Tile32x32

__all__ = ["FragmentType", "MatrixProduct", "Tile16x16", "Tile32x32", "block", "grid", "subgroup", "warp"]
