"""Game of life: Conway's rule on a board without edges, two boards in turn."""

import numpy as np
from example_support import Arrays, Example, Tolerance

example = Example(__doc__, frames=150, size=192, out="out/game_of_life.gif", check_frames=24, check_size=80)
qd = example.qd

n = example.size

boards = [qd.field(qd.i32, (n, n)), qd.field(qd.i32, (n, n))]


@qd.func
def neighbors(board: qd.template(), i, j):
    total = 0
    for di, dj in qd.static(qd.ndrange((-1, 2), (-1, 2))):
        if qd.static(di != 0 or dj != 0):
            total += board[(i + di) % n, (j + dj) % n]
    return total


@qd.kernel
def evolve(old: qd.template(), new: qd.template()):
    for i, j in old:
        around = neighbors(old, i, j)
        alive = around == 3 or (old[i, j] == 1 and around == 2)
        new[i, j] = 1 if alive else 0


@qd.kernel
def population(board: qd.template()) -> qd.i32:
    total = 0
    for i, j in board:
        total += board[i, j]
    return total


def start() -> np.ndarray:
    """A random board."""
    return (np.random.default_rng(2).random((n, n)) < 0.3).astype(np.int32)


def reference(frames: int) -> Arrays:
    """The same rule with rolled numpy boards."""
    board = start()
    for _ in range(frames):
        shifts = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)]
        around = sum(np.roll(board, shift, (0, 1)) for shift in shifts)
        board = ((around == 3) | ((board == 1) & (around == 2))).astype(np.int32)
    return {"board": board, "population": np.array([board.sum()])}


def advance(_frame: int) -> None:
    """One generation; the newest board ends up in `boards[0]`."""
    evolve(boards[0], boards[1])
    boards.reverse()


def picture() -> np.ndarray:
    """Two pixels to a cell."""
    cells = np.repeat(np.repeat(boards[0].to_numpy(), 2, 0), 2, 1)
    return np.where(cells[..., None] == 1, [190, 240, 150], [18, 30, 24]).astype(np.uint8)


if __name__ == "__main__":
    boards[0].from_numpy(start())
    example.run(
        advance=advance,
        picture=picture,
        state=lambda: {"board": boards[0].to_numpy(), "population": np.array([population(boards[0])])},
        reference=reference,
        tolerance={"board": Tolerance(0.0), "population": Tolerance(0.0)},
        work=(float(n * n), "cell updates"),
    )
