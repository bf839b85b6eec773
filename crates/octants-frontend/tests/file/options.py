"""Other default types."""
#~ OPTIONS default_ip=i64 default_fp=f64

import octants as qd


@qd.kernel
def defaults(a: qd.i32) -> qd.f64:
    b = 1
    c = 0.5
    return a + b + c + float(a) + int(c) + qd.random()
