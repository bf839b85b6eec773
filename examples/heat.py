"""Heat: a plate with hot and cold spots, explicit finite differences, a 5-point stencil between two arrays."""

import numpy as np
from example_support import Arrays, Example, Tolerance, heat_map

example = Example(__doc__, frames=120, size=384, out="out/heat.gif", check_frames=8, check_size=64)
qd = example.qd

n = example.size
substeps = 25
rate = 0.24

Plate = qd.types.ndarray(dtype=qd.f32, ndim=2)

plates = [qd.ndarray(qd.f32, (n, n)), qd.ndarray(qd.f32, (n, n))]


@qd.kernel
def diffuse(old: Plate, new: Plate):
    for i, j in qd.ndrange((1, old.shape[0] - 1), (1, old.shape[1] - 1)):
        around = old[i - 1, j] + old[i + 1, j] + old[i, j - 1] + old[i, j + 1]
        new[i, j] = old[i, j] + rate * (around - 4.0 * old[i, j])


def start() -> np.ndarray:
    """Hot left edge, two hot bars and one cold disc inside."""
    plate = np.full((n, n), 0.15, np.float32)
    plate[:, 0] = 1.0
    plate[n // 5 : n // 4, n // 3 : 4 * n // 5] = 1.0
    plate[2 * n // 3 : 3 * n // 4, n // 4 : n // 2] = 0.8
    row, column = np.mgrid[0:n, 0:n]
    plate[(row - n // 2) ** 2 + (column - 3 * n // 4) ** 2 < (n // 10) ** 2] = 0.0
    return plate


def reference(frames: int) -> Arrays:
    """The same differences with numpy slices, double precision."""
    plate = start().astype(np.float64)
    for _ in range(frames * substeps):
        inner = plate[1:-1, 1:-1]
        around = plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]
        plate[1:-1, 1:-1] = inner + rate * (around - 4.0 * inner)
    return {"temperature": plate}


def advance(_frame: int) -> None:
    """One frame; the newest temperatures end up in `plates[0]`."""
    for _ in range(substeps):
        diffuse(plates[0], plates[1])
        plates.reverse()


if __name__ == "__main__":
    for plate in plates:
        plate.from_numpy(start())
    example.run(
        advance=advance,
        picture=lambda: heat_map(plates[0].to_numpy()),
        state=lambda: {"temperature": plates[0].to_numpy()},
        reference=reference,
        tolerance={"temperature": Tolerance(2e-5)},
        work=(float(n * n * substeps), "cell updates"),
    )
