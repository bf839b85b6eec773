//! Memory for values that cross regions: private buffers with an element per thread, lane or subgroup. Components are
//! stored separately, so that neighboring threads access neighboring elements. Structs have a buffer per member.

use std::collections::HashMap;

use octants_ir::{
    Buffer, BufferId, Builder, ComponentLayout, Layout, LocalId, MemorySpace, Op, Placement, Type, ValueId,
};

use crate::shared_buffers::next_root;

use super::rates::{Rates, ThreadCode};
use super::values::{Extent, LocalStorage, Storage};

/// Memory for values of a type.
#[derive(Debug, Clone)]
pub(super) enum Tree {
    Buffer(BufferId),
    Members(Vec<Tree>),
}

/// Memory with an element for each thread, lane or subgroup.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub extent: Extent,
    /// Elements before the first one.
    pub padding: u32,
    pub tree: Tree,
}

/// The memory of values that cross regions.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub values: HashMap<ValueId, Slot>,
    pub locals: HashMap<LocalId, Slot>,
}

/// Adds the buffers to a program's.
pub(super) fn add_slots(buffers: &mut Vec<Buffer>, code: &ThreadCode<'_>, rates: &Rates, storage: &Storage) -> Slots {
    let mut slots = Slots::default();
    for (v, kept) in &storage.values {
        let padding = if kept.is_exchanged { rates.width } else { 0 };
        let elements = elements(kept.extent, code, rates) + 2 * padding;
        let tree = add(buffers, "value of a thread", code.body.ty(*v), elements);
        slots.values.insert(*v, Slot { extent: kept.extent, padding, tree });
    }
    for (l, local_storage) in &storage.locals {
        if let LocalStorage::Memory { extent, .. } = local_storage {
            let local = &code.body.locals[l.index()];
            let tree = add(buffers, &local.name, &local.ty, elements(*extent, code, rates));
            slots.locals.insert(*l, Slot { extent: *extent, padding: 0, tree });
        }
    }
    slots
}

fn elements(extent: Extent, code: &ThreadCode<'_>, rates: &Rates) -> u32 {
    let subgroups = code.block_dim.div_ceil(rates.width);
    match extent {
        Extent::Lane => rates.width,
        Extent::Subgroup => subgroups,
        Extent::Thread => subgroups * rates.width,
    }
}

fn add(buffers: &mut Vec<Buffer>, name: &str, ty: &Type, elements: u32) -> Tree {
    if let Type::Struct(s) = ty {
        return Tree::Members(s.members.iter().map(|(_, ty)| add(buffers, name, ty, elements)).collect());
    }
    let scalar = ty.scalar().expect("compiler bug: a reference that is live across regions");
    let (stride, elements) = (u64::from(scalar.bytes()), u64::from(elements));
    let root = next_root(buffers, MemorySpace::Private);
    let component =
        |i: u64| ComponentLayout { root, place: Placement::row_major(i * elements * stride, &[elements], stride) };
    let components = (0..ty.leaf_count() as u64).map(component).collect();
    let layout = Layout::Dense { shape: vec![elements], offset: vec![0], components };
    buffers.push(Buffer {
        name: name.into(),
        elem: ty.clone(),
        ndim: 1,
        layout,
        space: MemorySpace::Private,
        short_offsets: false,
        is_metadata: false,
    });
    Tree::Buffer(BufferId(buffers.len() as u32 - 1))
}

impl Tree {
    /// The address of an element of a type other than a struct.
    pub fn address(&self, b: &mut Builder, index: ValueId, ty: &Type) -> ValueId {
        let Tree::Buffer(buffer) = self else { panic!("compiler bug: a struct member without an address") };
        b.push(Op::BufferAddr(*buffer, vec![index]), Type::Ref(Box::new(ty.clone())))
    }

    /// Reads an element.
    pub fn load(&self, b: &mut Builder, index: ValueId, ty: &Type) -> ValueId {
        match (self, ty) {
            (Tree::Members(trees), Type::Struct(s)) => {
                let members = s.members.clone();
                let parts = trees.iter().zip(&members).map(|(tree, (_, ty))| tree.load(b, index, ty)).collect();
                b.push(Op::MakeStruct(parts), ty.clone())
            }
            _ => {
                let address = self.address(b, index, ty);
                b.load(address)
            }
        }
    }

    /// Writes an element.
    pub fn store(&self, b: &mut Builder, index: ValueId, value: ValueId) {
        match self {
            Tree::Members(trees) => {
                for (i, tree) in trees.iter().enumerate() {
                    let part = b.extract(value, i as u32);
                    tree.store(b, index, part);
                }
            }
            Tree::Buffer(_) => {
                let ty = b.ty(value).clone();
                let address = self.address(b, index, &ty);
                b.store(address, value);
            }
        }
    }
}
