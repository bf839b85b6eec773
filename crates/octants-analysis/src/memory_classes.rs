//! [`MemoryClasses`]: which buffers may alias. This is the only computation of it: the schedule stores the classes
//! that code generators pass to the optimizer.
//!
//! There are two relations. Buffers *share elements* when one is a component of the other. Buffers *overlap* when the
//! address ranges of their components do: interleaved fields overlap although they share no element.

use std::collections::HashMap;

use octants_ir::schedule::MemoryClass;
use octants_ir::{Buffer, Layout, MemorySpace};

/// The memory of the buffers of a program.
#[derive(Debug)]
pub struct MemoryClasses<'a> {
    buffers: &'a [Buffer],
    arrays_may_alias: bool,
}

impl<'a> MemoryClasses<'a> {
    /// Computes the classes of these buffers. `arrays_may_alias`: two array arguments may be the same memory, or
    /// overlap.
    pub fn of(buffers: &'a [Buffer], arrays_may_alias: bool) -> MemoryClasses<'a> {
        MemoryClasses { buffers, arrays_may_alias }
    }

    /// Two buffers may share an element at a launch.
    pub fn may_alias(&self, a: usize, b: usize) -> bool {
        let [a, b] = [a, b].map(|b| array_of(self.buffers, b));
        let (x, y) = (&self.buffers[a], &self.buffers[b]);
        a == b || x.shares_memory(y) || self.arrays_may_alias && is_array(x) && is_array(y)
    }

    /// Maps each buffer to the first one that it may share an element with, directly or through other buffers.
    pub fn sharing(&self) -> Vec<usize> {
        self.with_arrays(sharing(self.buffers))
    }

    /// Maps each buffer to the first one whose memory may overlap its own, directly or through other buffers.
    pub fn overlapping(&self) -> Vec<usize> {
        self.with_arrays(overlapping(self.buffers))
    }

    /// The alias classes that the optimizer may distinguish. With vectors, overlapping buffers are one class: LLVM 22
    /// merges adjacent loads at the first of them, and looks for intervening stores only in their class.
    pub fn access_classes(&self, has_vectors: bool) -> Vec<MemoryClass> {
        let first = if has_vectors { self.overlapping() } else { self.sharing() };
        let mut sizes = vec![0; first.len()];
        first.iter().for_each(|f| sizes[*f] += 1);
        let class = |(i, first): (usize, usize)| {
            let has_one_name = !(self.arrays_may_alias && is_array(&self.buffers[i]));
            MemoryClass { first, by_component: !has_vectors && sizes[first] == 1 && has_one_name }
        };
        first.iter().copied().enumerate().map(class).collect()
    }

    /// Joins the classes of all arrays, if they may alias.
    fn with_arrays(&self, mut first: Vec<usize>) -> Vec<usize> {
        if self.arrays_may_alias {
            let one = self.buffers.iter().position(is_array);
            let arrays = self.buffers.iter().zip(&mut first).filter(|(b, _)| is_array(b));
            arrays.for_each(|(_, f)| *f = one.unwrap_or(*f));
        }
        first
    }
}

/// The array that a flat buffer is the scalars of; else the buffer.
fn array_of(buffers: &[Buffer], b: usize) -> usize {
    if let Layout::Flat(of) = buffers[b].layout { of.index() } else { b }
}

fn is_array(buffer: &Buffer) -> bool {
    !matches!(buffer.layout, Layout::Dense { .. })
}

/// A separate class for each buffer, except that flat ones share the class of their arrays.
fn apart(buffers: &[Buffer]) -> Vec<usize> {
    let mut first: Vec<usize> = (0..buffers.len()).collect();
    (0..buffers.len()).for_each(|i| unite(&mut first, i, array_of(buffers, i)));
    first
}

fn sharing(buffers: &[Buffer]) -> Vec<usize> {
    let mut first = apart(buffers);
    let mut known: HashMap<(MemorySpace, u32, u64), usize> = HashMap::new();
    for (i, b) in buffers.iter().enumerate() {
        let Layout::Dense { components, .. } = &b.layout else { continue };
        for c in components {
            let other = *known.entry((b.space, c.root, c.place.base)).or_insert(i);
            unite(&mut first, i, other);
        }
    }
    first
}

fn overlapping(buffers: &[Buffer]) -> Vec<usize> {
    let mut runs: Vec<((MemorySpace, u32), u64, u64, usize)> = Vec::new();
    for (i, b) in buffers.iter().enumerate() {
        let Layout::Dense { components, .. } = &b.layout else { continue };
        let bytes = b.elem.leaves().into_iter().map(|s| u64::from(s.bytes()));
        runs.extend(
            components.iter().zip(bytes).map(|(c, bytes)| ((b.space, c.root), c.place.base, c.place.end(bytes), i)),
        );
    }
    runs.sort_unstable();
    let mut first = apart(buffers);
    let mut reach: Option<((MemorySpace, u32), u64, usize)> = None;
    for (root, begin, end, i) in runs {
        reach = match reach {
            Some((r, to, j)) if r == root && begin < to => {
                unite(&mut first, i, j);
                Some((r, to.max(end), j))
            }
            _ => Some((root, end, i)),
        };
    }
    first
}

/// Joins the classes of two buffers.
fn unite(first: &mut [usize], a: usize, b: usize) {
    let (one, same) = (first[a].min(first[b]), first[a].max(first[b]));
    if one != same {
        first.iter_mut().filter(|f| **f == same).for_each(|f| *f = one);
    }
}

#[cfg(test)]
mod tests {
    use octants_ir::{ComponentLayout, Placement, Scalar, Type};

    use super::*;

    /// A field of f32 in root 0, whose elements are 8 bytes apart.
    fn field(base: u64) -> Buffer {
        let components = vec![ComponentLayout { root: 0, place: Placement::row_major(base, &[4], 8) }];
        let layout = Layout::Dense { shape: vec![4], offset: vec![0], components };
        Buffer {
            name: String::new(),
            elem: Type::Scalar(Scalar::F32),
            ndim: 1,
            layout,
            space: MemorySpace::Global,
            short_offsets: false,
            is_metadata: false,
        }
    }

    fn array() -> Buffer {
        Buffer { layout: Layout::Contiguous, ..field(0) }
    }

    #[test]
    fn interleaved_fields_overlap_without_shared_elements() {
        let buffers = [field(0), array(), field(4), field(64), array(), field(0)];
        let classes = MemoryClasses::of(&buffers, false);
        assert_eq!(classes.sharing(), [0, 1, 2, 3, 4, 0]);
        assert_eq!(classes.overlapping(), [0, 1, 0, 3, 4, 0]);
        assert!(classes.may_alias(0, 5) && !classes.may_alias(0, 2) && !classes.may_alias(1, 4));
    }

    #[test]
    fn arrays_that_may_alias_are_one_class() {
        let buffers = [field(0), array(), field(64), array()];
        let classes = MemoryClasses::of(&buffers, true);
        assert_eq!(classes.sharing(), [0, 1, 2, 1]);
        assert!(classes.may_alias(1, 3));
        let of_gpu = classes.access_classes(false);
        assert_eq!(of_gpu.iter().map(|c| c.by_component).collect::<Vec<_>>(), [true, false, true, false]);
        assert!(classes.access_classes(true).iter().all(|c| !c.by_component));
    }
}
