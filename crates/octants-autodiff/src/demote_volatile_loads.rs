//! Makes volatile loads plain. Reverse mode reads memory again after the kernel has run, when no other thread writes
//! it.

use octants_ir::insert_code::bodies;
use octants_ir::{Kernel, Op};

/// Replaces the volatile loads of a kernel and its functions by plain loads.
pub fn demote_volatile_loads(kernel: &mut Kernel) {
    for inst in bodies(kernel).flat_map(|body| &mut body.insts) {
        if let Op::VolatileLoad(a) = inst.op {
            inst.op = Op::Load(a);
        }
    }
}
