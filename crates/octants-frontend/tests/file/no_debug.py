"""Without `debug`, an assertion is not code."""

import octants as qd


@qd.kernel
def asserts(a: qd.i32):
    assert a > 0, f"a is {a}"
