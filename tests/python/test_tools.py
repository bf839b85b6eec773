"""Files that the tools write, parsed independently; the mutations of streams."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import octants as qd


def test_ply_files(tmp_path):
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1.5, 0], [0, 0, 2]], dtype=np.float32)
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    writer = qd.tools.PLYWriter(num_vertices=4, num_faces=2)
    with pytest.raises(ValueError, match="positions"):
        writer.export(str(tmp_path / "early.ply"))
    writer.add_vertex_pos(*points.T)
    writer.add_vertex_id()
    writer.add_faces(faces)
    writer.add_face_channel("area", "double", [0.75, 1.5])
    writer.export_frame(7, str(tmp_path / "out.ply"))
    writer.export_ascii(str(tmp_path / "text.ply"))

    header, data = (tmp_path / "out_000007.ply").read_bytes().split(b"end_header\n", 1)
    assert b"element vertex 4" in header
    assert b"property list uchar int vertex_indices" in header
    vertices = np.frombuffer(data, [("p", "<f4", 3), ("id", "<i4")], count=4)
    np.testing.assert_array_equal(vertices["p"], points)
    assert vertices["id"].tolist() == [0, 1, 2, 3]
    read = np.frombuffer(data, [("n", "u1"), ("v", "<i4", 3), ("area", "<f8")], offset=4 * 16)
    np.testing.assert_array_equal(read["v"], faces)
    assert read["n"].tolist() == [3, 3]
    assert read["area"].tolist() == [0.75, 1.5]

    lines = (tmp_path / "text.ply").read_text().split("end_header\n")[1].splitlines()
    assert lines[2] == "0.0 1.5 0.0 2"
    assert lines[5] == "3 0 2 3 1.5"


def test_ply_arguments():
    writer = qd.tools.PLYWriter(2, 1)
    with pytest.raises(ValueError, match="needs 2 numbers"):
        writer.add_vertex_channel("a", "int", [1, 2, 3])
    with pytest.raises(ValueError, match="a channel name must"):
        writer.add_vertex_channel(3, "int", [1, 2])
    with pytest.raises(ValueError, match="a face index is out of range"):
        writer.add_faces([0, 1, 2])
    with pytest.raises(ValueError, match="face_type"):
        qd.tools.PLYWriter(1, face_type="pent")


def test_ply_channels_of_unknown_types_are_skipped(tmp_path):
    writer = qd.tools.PLYWriter(2, 1)
    writer.add_vertex_pos([0, 1], [0, 1], [0, 1])
    writer.add_faces([0, 1, 1])
    with pytest.warns(UserWarning, match="channel a is skipped: 'f32' is not a PLY type"):
        writer.add_vertex_channel("a", "f32", [1, 2])
    with pytest.warns(UserWarning, match="channel b is skipped"):
        writer.add_face_channel("b", "foo", [1])
    writer.export_ascii(str(tmp_path / "left.ply"))
    header = (tmp_path / "left.ply").read_text().split("end_header")[0]
    assert [line for line in header.splitlines() if line.startswith("property")] == [
        *(f"property float {axis}" for axis in "xyz"),
        "property list uchar int vertex_indices",
    ]


def test_the_machine_is_described_for_bug_reports(capsys):
    from octants.tools import diagnose

    diagnose.main()
    out = capsys.readouterr().out
    assert out.startswith(f"octants {qd.__version_str__}, python ")
    assert any(line.startswith(("x64: yes", "arm64: yes")) for line in out.splitlines())
    assert "\ncuda: " in out


def test_metal_has_no_queue():
    assert qd.interop.get_mps_command_queue() == 0


def test_the_stream_mutations_still_apply():
    root = Path(__file__).resolve().parents[2]
    mutations = runpy.run_path(str(root / "tools/mutate_streams.py"))
    everything = mutations["MUTATIONS"] + mutations["FROM_PYTHON"]
    stale = [name for name, file, old, _ in everything if (root / file).read_text().count(old) != 1]
    assert stale == []
