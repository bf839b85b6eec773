//! [`MemoryLayout`]: the natural layout of locals, frame slots and elements of arrays.

use octants_ir::{Scalar, Type};

/// Size, alignment and leaf offsets of a type in contiguous memory; members are at natural alignment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLayout {
    /// Bytes, a multiple of the alignment.
    pub size: u64,
    /// Bytes.
    pub align: u32,
    /// Each scalar and its offset.
    pub leaves: Vec<(Scalar, u64)>,
}

impl MemoryLayout {
    /// The layout of a type without references.
    pub fn of(ty: &Type) -> MemoryLayout {
        let mut layout = MemoryLayout { size: 0, align: 1, leaves: Vec::new() };
        for s in ty.leaves() {
            let bytes = s.bytes();
            layout.size = layout.size.next_multiple_of(u64::from(bytes));
            layout.leaves.push((s, layout.size));
            layout.size += u64::from(bytes);
            layout.align = layout.align.max(bytes);
        }
        layout.size = layout.size.next_multiple_of(u64::from(layout.align));
        layout
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use octants_ir::StructType;

    #[test]
    fn members_have_natural_alignment() {
        let inner = Type::Vector(Scalar::F32, 3);
        let ty = Type::Struct(Arc::new(StructType {
            name: "P".into(),
            members: vec![("a".into(), Type::U1), ("v".into(), inner), ("d".into(), Type::Scalar(Scalar::F64))],
        }));
        let layout = MemoryLayout::of(&ty);
        let offsets: Vec<u64> = layout.leaves.iter().map(|l| l.1).collect();
        assert_eq!((layout.size, layout.align, offsets), (24, 8, vec![0, 4, 8, 12, 16]));
    }
}
