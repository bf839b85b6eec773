//! Makes volatile loads plain. Reverse mode reads memory again after the kernel has run, when there is nobody to wait
//! for.

use octants_ir::insert_code::bodies;
use octants_ir::{Kernel, Op};

/// Makes the volatile loads of a kernel and its functions plain.
pub fn demote_volatile_loads(kernel: &mut Kernel) {
    for inst in bodies(kernel).flat_map(|body| &mut body.insts) {
        if let Op::VolatileLoad(a) = inst.op {
            inst.op = Op::Load(a);
        }
    }
}
