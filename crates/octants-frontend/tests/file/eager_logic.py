"""`and` and `or` without short circuit: both sides run."""
#~ OPTIONS short_circuit=False

import octants as qd


@qd.kernel
def both(a: qd.i32, b: qd.i32) -> qd.u1:
    return a > 0 and b > 0 or a == b
