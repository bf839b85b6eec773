"""Point clouds and meshes as PLY files, which Blender, Houdini and MeshLab read."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_TYPES = {
    "char": "i1",
    "uchar": "u1",
    "short": "<i2",
    "ushort": "<u2",
    "int": "<i4",
    "uint": "<u4",
    "float": "<f4",
    "double": "<f8",
}

_CORNERS = {"tri": 3, "quad": 4}

# Types of channels, as PLY calls them, and their values.
_Channels = dict[str, tuple[str, np.ndarray[Any, Any]]]


class PLYWriter:
    """Collects channels of vertices and faces, and writes them: `add_vertex_pos(x, y, z)`, `export("out.ply")`."""

    def __init__(
        self, num_vertices: int, num_faces: int = 0, face_type: str = "tri", comment: str = "created by PLYWriter"
    ) -> None:
        if num_vertices < 1 or num_faces < 0:
            raise ValueError("a PLY file needs at least one vertex and a non-negative number of faces")
        if face_type not in _CORNERS:
            raise ValueError(f"face_type must be 'tri' or 'quad', got {face_type!r}")
        self.num_vertices = num_vertices
        self.num_faces = num_faces
        self.corners = _CORNERS[face_type]
        self.comment = comment
        self._vertex: _Channels = {}
        self._face: _Channels = {}
        self._indices: np.ndarray[Any, Any] | None = None

    def add_vertex_channel(self, key: str, data_type: str, data: Any) -> None:
        """Adds a named scalar per vertex. `data_type` is a PLY type (char, uchar, ..., float, double).

        A channel of another type is ignored with a warning.
        """
        _add(self._vertex, key, data_type, data, self.num_vertices)

    def add_vertex_pos(self, x: Any, y: Any, z: Any) -> None:
        """Adds positions."""
        self._add_floats(("x", "y", "z"), (x, y, z))

    def add_vertex_normal(self, nx: Any, ny: Any, nz: Any) -> None:
        """Adds normals."""
        self._add_floats(("nx", "ny", "nz"), (nx, ny, nz))

    def add_vertex_vel(self, vx: Any, vy: Any, vz: Any) -> None:
        """Adds velocities."""
        self._add_floats(("vx", "vy", "vz"), (vx, vy, vz))

    def add_vertex_color(self, r: Any, g: Any, b: Any) -> None:
        """Adds colors."""
        self._add_floats(("red", "green", "blue"), (r, g, b))

    def add_vertex_alpha(self, alpha: Any) -> None:
        """Adds opacities."""
        self._add_floats(("Alpha",), (alpha,))

    def add_vertex_rgba(self, r: Any, g: Any, b: Any, a: Any) -> None:
        """Adds colors and opacities."""
        self._add_floats(("red", "green", "blue", "Alpha"), (r, g, b, a))

    def add_vertex_id(self) -> None:
        """Numbers the vertices."""
        self.add_vertex_channel("id", "int", np.arange(self.num_vertices))

    def add_vertex_piece(self, piece: Any) -> None:
        """Adds the number of the piece of each vertex."""
        self.add_vertex_channel("piece", "int", piece)

    def _add_floats(self, keys: tuple[str, ...], columns: tuple[Any, ...]) -> None:
        for key, column in zip(keys, columns, strict=True):
            self.add_vertex_channel(key, "float", column)

    def add_faces(self, indices: Any) -> None:
        """Adds faces: the vertices of each face, concatenated."""
        values = np.asarray(indices).ravel()
        needed = self.num_faces * self.corners
        if values.size != needed:
            raise ValueError(
                f"{self.num_faces} faces of {self.corners} corners need {needed} indices, got {values.size}"
            )
        if values.size and not 0 <= values.min() <= values.max() < self.num_vertices:
            raise ValueError(f"a face index is out of range for {self.num_vertices} vertices")
        self._indices = values.astype("<i4").reshape(self.num_faces, self.corners)

    def add_face_channel(self, key: str, data_type: str, data: Any) -> None:
        """Adds a named scalar per face, like `add_vertex_channel`."""
        _add(self._face, key, data_type, data, self.num_faces)

    def add_face_id(self) -> None:
        """Numbers the faces."""
        self.add_face_channel("id", "int", np.arange(self.num_faces))

    def add_face_piece(self, piece: Any) -> None:
        """Adds the number of the piece of each face."""
        self.add_face_channel("piece", "int", piece)

    def sanity_check(self) -> None:
        """Raises if positions or faces are missing."""
        if not {"x", "y", "z"} <= self._vertex.keys():
            raise ValueError("the vertices have no positions: call add_vertex_pos()")
        if self.num_faces and self._indices is None:
            raise ValueError("the faces have no vertices: call add_faces()")

    def export(self, path: str) -> None:
        """Writes a binary file."""
        self._write(path, "binary_little_endian 1.0")

    def export_ascii(self, path: str) -> None:
        """Writes a text file."""
        self._write(path, "ascii 1.0")

    def export_frame(self, series_num: int, path: str) -> None:
        """Writes a binary file of a numbered series: frame 7 of out.ply is out_000007.ply."""
        self.export(_frame(path, series_num))

    def export_frame_ascii(self, series_num: int, path: str) -> None:
        """Writes a text file of a numbered series: frame 7 of out.ply is out_000007.ply."""
        self.export_ascii(_frame(path, series_num))

    def _header(self, form: str) -> str:
        lines = ["ply", f"format {form}", f"comment {self.comment}", f"element vertex {self.num_vertices}"]
        lines += [f"property {data_type} {key}" for key, (data_type, _) in self._vertex.items()]
        if self.num_faces:
            lines += [f"element face {self.num_faces}", "property list uchar int vertex_indices"]
            lines += [f"property {data_type} {key}" for key, (data_type, _) in self._face.items()]
        return "\n".join([*lines, "end_header", ""])

    def _write(self, path: str, form: str) -> None:
        self.sanity_check()
        tables = [_table([(key, _TYPES[kind], values) for key, (kind, values) in self._vertex.items()])]
        if self.num_faces:
            assert self._indices is not None
            columns: list[tuple[str, Any, np.ndarray[Any, Any]]] = [
                ("count", "u1", np.full(self.num_faces, self.corners)),
                ("indices", ("<i4", (self.corners,)), self._indices),
            ]
            columns += [(key, _TYPES[kind], values) for key, (kind, values) in self._face.items()]
            tables.append(_table(columns))
        with open(path, "wb") as file:
            file.write(self._header(form).encode())
            for table in tables:
                if form.startswith("ascii"):
                    _write_text(file, table)
                else:
                    file.write(table.tobytes())


def _add(channels: _Channels, key: str, data_type: str, data: Any, count: int) -> None:
    if not isinstance(key, str):
        raise ValueError(f"a channel name must be a string, got {key!r}")
    if data_type not in _TYPES:
        kinds = ", ".join(_TYPES)
        text = f"channel {key} is skipped: {data_type!r} is not a PLY type; use one of {kinds}"
        warnings.warn(text, stacklevel=3)
        return
    values = np.asarray(data).ravel()
    if values.size != count:
        raise ValueError(f"channel {key} needs {count} numbers, got {values.size}")
    channels[key] = data_type, values


def _table(columns: list[tuple[str, Any, np.ndarray[Any, Any]]]) -> np.ndarray[Any, Any]:
    layout = [(key, *kind) if isinstance(kind, tuple) else (key, kind) for key, kind, _ in columns]
    table = np.zeros(len(columns[0][2]), dtype=layout)
    for key, _, values in columns:
        table[key] = values
    return table


def _write_text(file: BinaryIO, table: np.ndarray[Any, Any]) -> None:
    for row in table.tolist():
        items = [str(number) for item in row for number in np.ravel(item).tolist()]
        file.write((" ".join(items) + "\n").encode())


def _frame(path: str, number: int) -> str:
    return str(Path(path).with_suffix("")) + f"_{number:06d}.ply"
