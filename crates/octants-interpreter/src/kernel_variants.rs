//! Variants of a kernel: other scalars, fields instead of arrays; and memory for it, from a seed.

use octants_ir::{
    Body, Buffer, BufferId, ComponentLayout, Digit, Kernel, Layout, MemorySpace, Placement, Scalar, StructType, Type,
};

use crate::memory::Memory;
use crate::random_kernels::{Dice, N};
use crate::scalar::Leaf;

/// A variant of a kernel of f64, i32 and arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// The type of floats.
    pub floats: Scalar,
    /// Type of integers and indices: i32 or i64.
    pub ints: Scalar,
    /// Arrays of one axis are fields of two levels that begin at index zero, two buffers in a root.
    pub fields: bool,
}

impl Variant {
    /// The kernel that differs in this.
    pub fn of(self, kernel: &Kernel) -> Kernel {
        let mut k = kernel.clone();
        k.params.iter_mut().for_each(|p| self.change(&mut p.ty));
        self.change(&mut k.ret);
        for f in &mut k.functions {
            f.params.iter_mut().for_each(|t| self.change(t));
            self.change(&mut f.ret);
            self.change_body(&mut f.body);
        }
        self.change_body(&mut k.body);
        for (i, b) in k.buffers.iter_mut().enumerate() {
            self.change(&mut b.elem);
            if self.fields {
                (b.layout, k.roots) = (field(b, i as u32), k.roots.max(i as u32 / 2 + 1));
            }
        }
        k
    }

    fn change_body(self, body: &mut Body) {
        body.locals.iter_mut().for_each(|l| self.change(&mut l.ty));
        body.insts.iter_mut().for_each(|i| self.change(&mut i.ty));
    }

    fn change(self, ty: &mut Type) {
        let scalar = |s: Scalar| match s {
            Scalar::F64 => self.floats,
            Scalar::I32 => self.ints,
            s => s,
        };
        match ty {
            Type::Ref(t) => self.change(t),
            Type::Struct(s) => {
                let mut members = s.members.clone();
                members.iter_mut().for_each(|(_, t)| self.change(t));
                *s = StructType { name: s.name.clone(), members }.into();
            }
            Type::Unit => {}
            Type::Scalar(_) | Type::Vector(..) | Type::Matrix(..) => {
                *ty = ty.scalar().map_or(Type::Unit, |s| ty.with_scalar(scalar(s)));
            }
        }
    }
}

/// A layout of two levels, the components of an element apart.
fn field(b: &Buffer, number: u32) -> Layout {
    let bytes = u64::from(b.elem.scalar().map_or(1, Scalar::bytes));
    let components = (0..b.elem.leaf_count() as u64).map(|k| ComponentLayout {
        root: number / 2,
        // The second buffer of a root begins after the first, for each element size.
        place: Placement {
            base: u64::from(number % 2) * 2048 + k * 2 * bytes,
            axes: vec![vec![Digit { extent: N as u64 / 2, stride: 256 }, Digit { extent: 2, stride: bytes }]],
        },
    });
    Layout::Dense { shape: vec![N as u64], offset: vec![0], components: components.collect() }
}

/// Memory of a kernel with `N` elements in each buffer: floats from -1 to 1, integers from 0 to 3.
pub fn random_memory(kernel: &Kernel, dice: &mut Dice) -> Memory {
    let mut memory = Memory::new(&kernel.buffers);
    for (i, b) in kernel.buffers.iter().enumerate().filter(|(_, b)| b.space == MemorySpace::Global) {
        let is_int = b.elem.scalar().is_some_and(Scalar::is_int);
        let mut leaf = || if is_int { Leaf::Int(dice.below(4) as i64) } else { Leaf::Float(dice.unit()) };
        let leaves: Vec<Leaf> = (0..N as usize * b.elem.leaf_count()).map(|_| leaf()).collect();
        memory.set(BufferId(i as u32), &[N as u64], &leaves);
    }
    memory
}
