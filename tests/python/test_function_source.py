"""The source of a function is extracted completely, regardless of its contents and surroundings."""

import octants as qd


def test_a_long_function_with_a_comment_at_a_reading_boundary(tmp_path, monkeypatch):
    for lines in range(58, 66):
        body = "".join(f"    x[{i}] = {i} + 1\n" for i in range(lines))
        text = (
            "import octants as qd\n\n@qd.kernel\ndef k(x: qd.types.ndarray(dtype=qd.i32, ndim=1)):\n"
            + body
            + "    if qd.static(True):\n        # a comment\n        # another\n        x[100] = 7\n\nAFTER = 1\n"
        )
        module = tmp_path / f"long_{lines}.py"
        module.write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        qd.init(arch=qd.cpu)
        x = qd.ndarray(qd.i32, 101)
        __import__(module.stem).k(x)
        assert x[lines - 1] == lines
        assert x[100] == 7
