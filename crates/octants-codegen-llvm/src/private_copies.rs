//! Private copies for scatter privatization: their location, and the call of the variant that adds to one.
//!
//! A copy holds the regions of the schedule one after the other, each in whole groups. A call of the task takes the
//! address of its copy, or none. Code that merges copies takes a list of their addresses, and the offset of its
//! region.

use octants_ir::ValueId;
use octants_ir::schedule::{Region, RegionMemory, ScatterPrivatization};

use crate::emit::{IntCmp, V};
use crate::lowering::Lowering;
use crate::place::{Place, PlaceShape};

impl Lowering<'_, '_> {
    /// Address of a region in shared memory.
    pub fn region_pointer(&self, region: &Region) -> V {
        match region.memory {
            RegionMemory::Root { root, start, .. } => {
                let base = self.argument(self.u.facts.args.roots[root as usize], self.e.ptr);
                self.e.byte_offset(base, start as i64)
            }
            RegionMemory::Array { buffer } => self.argument(
                self.u.facts.args.buffers[buffer].expect("compiler bug: an array without argument slots"),
                self.e.ptr,
            ),
        }
    }

    /// Byte offsets in a copy: of each region, by number.
    fn region_offsets(&self, scatter: &ScatterPrivatization, lanes: u32) -> Vec<V> {
        let (e, lanes) = (self.e, i64::from(lanes));
        let mut end = e.i64c(0);
        let mut offsets = Vec::new();
        for region in &scatter.regions {
            offsets.push(end);
            let unit = i64::from(region.scalar.bytes());
            let words = match region.memory {
                RegionMemory::Root { bytes, .. } => e.i64c(bytes as i64 / unit),
                RegionMemory::Array { buffer } => self.count_scalars(buffer),
            };
            let groups = e.udiv(e.add(words, e.i64c(lanes - 1)), e.i64c(lanes));
            end = e.add(end, e.mul(groups, e.i64c(lanes * unit)));
        }
        offsets
    }

    /// The number of scalars of a buffer, i64.
    pub fn count_scalars(&self, buffer: usize) -> V {
        let b = &self.u.program.buffers[buffer];
        let leaves = self.e.i64c(b.elem.leaf_count() as i64);
        (0..b.ndim as usize).fold(leaves, |n, axis| self.e.mul(n, self.extent(buffer, axis)))
    }

    /// Calls `plain`, the task's code on private memory, on the copy that the call was given, and returns; continues at
    /// the insertion point if there is no copy.
    pub fn scatter_privately(&self, scatter: &ScatterPrivatization, lanes: u32, plain: V, (begin, end): (V, V)) {
        let e = self.e;
        let (private, atomic) = (self.new_block(c"private"), self.new_block(c"atomic"));
        let own = self.u.target.copies(e, self.code.context);
        e.cond_br(e.icmp(IntCmp::LLVMIntEQ, own, e.zero(e.ptr)), atomic, private);
        e.position(private);
        let mut args = vec![self.code.context, begin, end];
        args.extend(self.region_offsets(scatter, lanes).into_iter().map(|offset| e.gep(e.i8, own, offset)));
        e.ret(e.call(plain, &args));
        e.position(atomic);
    }

    /// Address of a scalar in the copy of a thread.
    pub fn copy_place(&self, buffer: usize, thread: ValueId, scalar: ValueId) -> Place {
        let e = self.e;
        let listed = self.u.target.copies(e, self.code.context);
        let copy = e.load(e.ptr, e.gep(e.ptr, listed, self.index64(thread)), 8);
        let region = e.gep(e.i8, copy, self.u.target.copy_offset(e, self.code.context));
        let elem = &self.u.program.buffers[buffer].elem;
        let memory = e.memory(elem.scalar().expect("compiler bug: a private copy of a type without scalars"));
        let ptr = e.gep(memory, region, self.index64(scalar));
        Place { ptrs: vec![ptr], shape: std::rc::Rc::new(PlaceShape::contiguous(elem, None)) }
    }
}
