"""`octants._language.ops` under its path in Quadrants, and the operators as functions: in kernels both mean the
same."""

from operator import add as add
from operator import and_ as bit_and  # noqa: F401
from operator import eq as cmp_eq  # noqa: F401
from operator import ge as cmp_ge  # noqa: F401
from operator import gt as cmp_gt  # noqa: F401
from operator import le as cmp_le  # noqa: F401
from operator import lshift as bit_shl  # noqa: F401
from operator import lt as cmp_lt  # noqa: F401
from operator import mul as mul
from operator import ne as cmp_ne  # noqa: F401
from operator import or_ as bit_or  # noqa: F401
from operator import rshift as bit_sar  # noqa: F401
from operator import sub as sub
from operator import xor as bit_xor  # noqa: F401

from octants._language.ops import *  # noqa: F403
