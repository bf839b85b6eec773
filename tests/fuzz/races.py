"""Races between the iterations of a parallel loop, detected while they run in sequence.

For each scalar that iterations may share, the interpreter records which of them wrote, read and atomically updated it.
The accesses of two iterations to one scalar must commute: reads, stores of the same value, and atomic updates of one
kind whose old values are not used.
"""

from scalars import State, UnspecifiedError

MANY = -1


class Races:
    """The accesses of the current parallel loop's iterations."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.notes: dict[tuple[int, int], list] = {}

    def begin(self) -> None:
        self.notes.clear()

    def note(self, numbers: list, at: int) -> list:
        """Writer, value written, reader, updater, kind of update, whether old values are looked at."""
        return self.notes.setdefault((id(numbers), at), [None, None, None, None, None, False])

    def read(self, numbers: list, at: int, count: int) -> None:
        me = self.state.iteration
        if me is None:
            return
        for i in range(at, at + count):
            note = self.note(numbers, i)
            if note[0] not in (None, me) or note[3] not in (None, me):
                raise UnspecifiedError("a race: read")
            note[2] = me if note[2] in (None, me) else MANY

    def write(self, numbers: list, at: int, values: list) -> None:
        me = self.state.iteration
        if me is None:
            return
        for i, v in enumerate(values, at):
            note = self.note(numbers, i)
            if note[2] not in (None, me) or note[3] not in (None, me):
                raise UnspecifiedError("a race: write")
            if note[0] not in (None, me) and note[1] != v:
                raise UnspecifiedError("a race: write")
            if note[0] == me and note[1] != v and note[1] is not None and numbers[i] != v and note[0] == MANY:
                raise UnspecifiedError("a race: write")
            note[0] = me if note[0] in (None, me) else MANY
            note[1] = v

    def update(self, numbers: list, at: int, op: str, keeps_old: bool) -> None:
        me = self.state.iteration
        if me is None:
            return
        kind = "+" if op == "-" else op
        note = self.note(numbers, at)
        if note[0] not in (None, me) or note[2] not in (None, me):
            raise UnspecifiedError("a race: update")
        if note[3] not in (None, me) and (kind != note[4] or keeps_old or note[5]):
            raise UnspecifiedError("a race: update")
        mixed = note[3] == me and note[4] not in (None, kind)
        note[3] = me if note[3] in (None, me) else MANY
        note[4] = "mixed" if mixed else kind
        note[5] = note[5] or keeps_old
