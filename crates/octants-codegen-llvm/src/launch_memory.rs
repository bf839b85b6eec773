//! [`LaunchMemory`]: dynamic shared memory. Some machines let code declare only [`MOST_DECLARED`] bytes of shared
//! memory, and give a launch more on request, as one block. The roots of a task that needs more are in that block, at
//! offsets that are fixed here.

use std::collections::BTreeSet;

use octants_ir::{Body, Layout, MemorySpace, Op, Program, Schedule};

/// Maximum number of bytes of shared memory that code declares on such machines.
const MOST_DECLARED: u64 = 48 << 10;

/// Every root begins at a multiple of this.
const ALIGNMENT: u64 = 16;

/// Offsets of shared-memory roots that are too large to be declared.
#[derive(Debug, Default)]
pub(crate) struct LaunchMemory {
    /// Per root: its offset; `None` for one that the code declares.
    offsets: Vec<Option<u64>>,
    /// Per task: the memory that a launch requests.
    bytes: Vec<u64>,
}

impl LaunchMemory {
    /// Computes the launch memory of a program. Roots of one task do not overlap; those of different tasks may.
    pub fn of(program: &Program, schedule: &Schedule, root_bytes: &[u64]) -> LaunchMemory {
        let sizes: Vec<u64> = root_bytes.iter().map(|b| b.next_multiple_of(ALIGNMENT)).collect();
        let used: Vec<BTreeSet<usize>> =
            schedule.tasks.iter().map(|t| roots(program, t.variants.iter().map(|v| &v.body))).collect();
        let mut offsets = vec![None; sizes.len()];
        let needs = |roots: &BTreeSet<usize>| roots.iter().map(|root| sizes[*root]).sum::<u64>();
        let moved: BTreeSet<usize> =
            used.iter().filter(|roots| needs(roots) > MOST_DECLARED).flatten().copied().collect();
        let end = |offsets: &[Option<u64>], roots: &BTreeSet<usize>| {
            roots.iter().filter_map(|r| Some(offsets[*r]? + sizes[*r])).max().unwrap_or(0)
        };
        for &root in &moved {
            let beside = used.iter().filter(|roots| roots.contains(&root));
            offsets[root] = Some(beside.map(|roots| end(&offsets, roots)).max().unwrap_or(0));
        }
        let bytes = used.iter().map(|roots| end(&offsets, roots)).collect();
        LaunchMemory { offsets, bytes }
    }

    /// The offset of a root, if it is not declared.
    pub fn offset(&self, root: u32) -> Option<u64> {
        self.offsets[root as usize]
    }

    /// The memory that a launch of a task requests.
    pub fn bytes(&self, task: usize) -> u64 {
        self.bytes[task]
    }
}

/// The roots that bodies use, and the functions that they reach.
fn roots<'a>(program: &'a Program, bodies: impl Iterator<Item = &'a Body>) -> BTreeSet<usize> {
    let (mut found, mut called) = (BTreeSet::new(), BTreeSet::new());
    let mut left: Vec<&Body> = bodies.collect();
    while let Some(body) = left.pop() {
        body.visit(body.root, &mut |_, inst| match &inst.op {
            Op::BufferAddr(b, _) if program.buffers[b.index()].space == MemorySpace::Shared => {
                let components = match &program.buffers[b.index()].layout {
                    Layout::Dense { components, .. } => components.as_slice(),
                    _ => &[],
                };
                found.extend(components.iter().map(|c| c.root as usize));
            }
            Op::Call(f, _) if called.insert(f.index()) => left.push(&program.functions[f.index()].body),
            _ => {}
        });
    }
    found
}
