"""`qd.types.vector(n, dtype, unpacked=True)`: components as separate members."""

import dataclasses

import pytest

import octants as qd

Row = qd.types.vector(4, qd.f32, unpacked=True)


@pytest.fixture(autouse=True)
def program():
    qd.init(arch=qd.cpu)
    yield
    qd.reset()


@qd.dataclass
class Tile:
    r: Row
    scale: qd.f32


def test_components_are_members():
    assert list(Tile.members) == ["_r0", "_r1", "_r2", "_r3", "scale"]

    @qd.kernel
    def total() -> qd.f32:
        t = Tile()
        for i in qd.static(range(4)):
            t.r[i] = i * 2.0
        t.r[3] += 1.0
        t.scale = 10.0
        n = 0.0
        for i in qd.static(range(4)):
            n += t.r[i] * t.scale
        return n

    assert total() == 130.0


def test_fields_of_such_structs():
    tiles = Tile.field(shape=3)

    @qd.kernel
    def fill():
        for i in tiles:
            for j in qd.static(range(4)):
                tiles[i].r[j] = 10.0 * i + j

    fill()
    assert tiles[2]._r3 == 23.0


def test_the_type_is_allowed_only_for_members():
    for make in (
        lambda: Row(1, 2, 3, 4),
        lambda: Row.field(shape=2),
        lambda: Row.ndarray(shape=2),
        lambda: qd.field(Row, 2),
        lambda: qd.ndarray(Row, 2),
    ):
        with pytest.raises(qd.OctantsSyntaxError, match="unpacked=True"):
            make()

    @qd.kernel
    def takes(a: Row):
        pass

    with pytest.raises(qd.OctantsSyntaxError, match="unpacked=True"):
        takes(qd.Vector([1.0, 2.0, 3.0, 4.0]))

    @dataclasses.dataclass
    class Holder:
        r: Row

    @qd.kernel
    def holds(h: Holder):
        pass

    with pytest.raises(qd.OctantsSyntaxError, match="unpacked=True"):
        holds(Holder(r=1))
    with pytest.raises(qd.OctantsSyntaxError, match="_r0"):

        @qd.dataclass
        class Twice:
            r: Row
            _r0: qd.f32
