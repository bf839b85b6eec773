//! Memory classes: buffers whose address ranges overlap.

use octants_ir::{Buffer, Layout, MemorySpace};

/// Maps each buffer to the first buffer of its memory class. Two buffers are in one class if their address ranges
/// overlap, directly or through other buffers. Interleaved fields are in one class although they share no element.
pub fn first_among(buffers: &[Buffer]) -> Vec<usize> {
    let mut runs: Vec<((MemorySpace, u32), u64, u64, usize)> = Vec::new();
    for (i, b) in buffers.iter().enumerate() {
        let Layout::Dense { components, .. } = &b.layout else { continue };
        let bytes = b.elem.leaves().into_iter().map(|s| u64::from(s.bytes()));
        runs.extend(
            components.iter().zip(bytes).map(|(c, bytes)| ((b.space.of_roots(), c.root), c.base, c.end(bytes), i)),
        );
    }
    runs.sort_unstable();
    let mut first: Vec<usize> = (0..buffers.len()).collect();
    let mut unite = |a: usize, b: usize| {
        let (one, same) = (first[a].min(first[b]), first[a].max(first[b]));
        first.iter_mut().filter(|f| **f == same).for_each(|f| *f = one);
    };
    let mut reach: Option<((MemorySpace, u32), u64, usize)> = None;
    for (root, begin, end, i) in runs {
        reach = match reach {
            Some((r, to, j)) if r == root && begin < to => {
                unite(i, j);
                Some((r, to.max(end), j))
            }
            _ => Some((root, end, i)),
        };
    }
    first
}
