"""Fast Fourier transform in shared memory: each block transforms a row of 1,024 complex numbers.

Stockham's form: each of the ten steps reads from one array in shared memory and writes to another one, in an order
that leaves the result sorted, with a barrier between steps.
"""

import math

import numpy as np
from example_support import Arrays, Example, Tolerance

example = Example(__doc__, frames=10, size=256, out="out/shared_fft.png", check_frames=1, check_size=24)
qd = example.qd
block = qd.simt.block

N, STEPS = 1024, 10
THREADS = N // 4
rows = example.size

Rows = qd.types.ndarray(dtype=qd.f32, ndim=2)


@qd.kernel
def transform(re: Rows, im: Rows, out_re: Rows, out_im: Rows):
    qd.loop_config(block_dim=THREADS)
    for i in range(rows * THREADS):
        x = block.SharedArray((2, N), qd.f32)
        y = block.SharedArray((2, N), qd.f32)
        thread, row = block.thread_idx(), i // THREADS
        for k in qd.static(range(N // THREADS)):
            x[0, thread + k * THREADS] = re[row, thread + k * THREADS]
            y[0, thread + k * THREADS] = im[row, thread + k * THREADS]
        block.sync()
        for step in qd.static(range(STEPS)):
            here, there = qd.static(step % 2), qd.static(1 - step % 2)
            # Transforms of `half` numbers are joined in pairs, whose numbers are `N / 2` apart.
            half = qd.static(1 << step)
            for k in qd.static(range(N // 2 // THREADS)):
                pair = thread + k * THREADS
                place = pair % half
                angle = -math.pi * place / half
                c, s = qd.cos(angle), qd.sin(angle)
                u_re, u_im = x[here, pair], y[here, pair]
                v_re, v_im = x[here, pair + N // 2], y[here, pair + N // 2]
                w_re, w_im = c * v_re - s * v_im, s * v_re + c * v_im
                to = (pair - place) * 2 + place
                x[there, to], y[there, to] = u_re + w_re, u_im + w_im
                x[there, to + half], y[there, to + half] = u_re - w_re, u_im - w_im
            block.sync()
        for k in qd.static(range(N // THREADS)):
            out_re[row, thread + k * THREADS] = x[qd.static(STEPS % 2), thread + k * THREADS]
            out_im[row, thread + k * THREADS] = y[qd.static(STEPS % 2), thread + k * THREADS]


random = np.random.default_rng(3)
real, imaginary = (random.standard_normal((rows, N)).astype(np.float32) for _ in range(2))
real += np.cos(np.arange(N) * 2 * np.pi * (np.arange(rows)[:, None] + 8) / N).astype(np.float32)
result_re, result_im = np.zeros((rows, N), np.float32), np.zeros((rows, N), np.float32)


def advance(_frame: int) -> None:
    """Transforms all rows."""
    transform(real, imaginary, result_re, result_im)


def reference(_frames: int) -> Arrays:
    """The same by `np.fft.fft`."""
    want = np.fft.fft(real + 1j * imaginary.astype(np.complex128))
    return {"real": want.real, "imaginary": want.imag}


def picture() -> np.ndarray:
    """Magnitudes, one row for each transform."""
    level = np.log1p(np.hypot(result_re, result_im))
    return np.repeat((level / level.max() * 255)[..., None], 3, 2).astype(np.uint8)


if __name__ == "__main__":
    example.run(
        advance=advance,
        picture=picture,
        state=lambda: {"real": result_re, "imaginary": result_im},
        reference=reference,
        tolerance={"real": Tolerance(2e-3), "imaginary": Tolerance(2e-3)},
        work=(float(rows * N), "complex numbers"),
    )
