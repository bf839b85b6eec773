//! [`KnownResults`]: cached results of code that writes nothing. They save a wait on devices that work asynchronously.
//!
//! A result is valid for the same values and addresses while the memory that it was computed from keeps its versions
//! ([`octants_runtime::Version`]). Versions are read before the launch, so a write during the launch invalidates the
//! result. If the runtime has no version for some memory, each request launches.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use octants_artifact::Dependence;
use octants_ir::{ArgLayout, Body, Buffer, Layout, Op};
use octants_runtime::{HostArray, Results, Stream, Version};

/// More than these are not kept.
const MOST_KEPT: usize = 1024;

/// Those of one piece of code.
pub(crate) struct KnownResults {
    on: Dependence,
    /// By the contents of the slots.
    known: Mutex<HashMap<Box<[u64]>, Known>>,
}

struct Known {
    memory: Box<[Version]>,
    results: Results,
}

/// The inputs that a launch is about to read.
pub(crate) struct Asked {
    slots: Box<[u64]>,
    memory: Box<[Version]>,
}

impl KnownResults {
    /// A cache for code whose results depend on this.
    pub fn new(on: Dependence) -> KnownResults {
        KnownResults { on, known: Mutex::default() }
    }

    /// The inputs of the results.
    pub fn on(&self) -> &Dependence {
        &self.on
    }

    /// The inputs that a launch on this stream would read; `None` if its results must not be cached.
    pub fn ask(&self, stream: &Stream, slots: &[u64], arrays: &[HostArray]) -> Option<Asked> {
        let mut memory = Vec::new();
        for &slot in &self.on.addresses {
            if arrays.iter().any(|a| a.slot == slot) {
                return None;
            }
            match slots[slot as usize] {
                // The address of an array without elements.
                0 => {}
                address => memory.push(stream.version_at(address)?),
            }
        }
        let slots = self.on.slots.iter().map(|&slot| slots[slot as usize]).collect();
        Some(Asked { slots, memory: memory.into_boxed_slice() })
    }

    /// The cached results, if valid.
    pub fn get(&self, asked: &Asked) -> Option<Results> {
        let known = self.lock();
        known.get(&asked.slots).filter(|k| k.memory == asked.memory).map(|k| k.results.clone())
    }

    /// Caches the results of a launch that followed the query `asked`.
    pub fn keep(&self, asked: Asked, results: &Results) {
        let mut known = self.lock();
        if known.len() >= MOST_KEPT && !known.contains_key(&asked.slots) {
            known.clear();
        }
        known.insert(asked.slots, Known { memory: asked.memory, results: results.clone() });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<[u64]>, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The inputs of the results of a kernel with this body, which writes no memory; `None` if there are inputs other than
/// numbers and memory, or if it prints or asserts.
pub(crate) fn dependence(body: &Body, buffers: &[Buffer], layout: &ArgLayout) -> Option<Dependence> {
    let (mut slots, mut addresses, mut is_known) = (BTreeSet::new(), BTreeSet::new(), true);
    body.visit(body.root, &mut |_, inst| match &inst.op {
        Op::Param(p) => {
            let (first, leaves) = (layout.params[*p as usize], &layout.param_leaves[*p as usize]);
            slots.extend(first..first + leaves.len() as u32);
        }
        // A field's shape is in the code.
        Op::Shape(b, axis) => slots.extend(layout.buffers[b.index()].map(|slot| slot + 1 + axis)),
        // Extents and strides determine the addresses of elements.
        Op::BufferAddr(b, _) => match (&buffers[b.index()].layout, layout.buffers[b.index()]) {
            (Layout::Dense { .. }, _) if buffers[b.index()].space.is_temporary() => {}
            (Layout::Dense { components, .. }, _) => {
                addresses.extend(components.iter().map(|c| layout.roots[c.root as usize]));
            }
            (Layout::Contiguous, Some(slot)) => {
                addresses.insert(slot);
                slots.extend(slot..=slot + buffers[b.index()].ndim);
            }
            (Layout::Strided, Some(slot)) => {
                addresses.insert(slot);
                slots.extend(slot..=slot + 2 * buffers[b.index()].ndim);
            }
            (Layout::Flat(_), Some(_)) | (_, None) => is_known = false,
        },
        // Other code may concurrently write memory that is read in this way; functions are not analyzed.
        Op::VolatileLoad(_)
        | Op::Call(..)
        | Op::Random
        | Op::RandomAt(..)
        | Op::Clock
        | Op::AddressBits(_)
        | Op::FrameAddr(_) => is_known = false,
        Op::Balance { .. } | Op::Checkpoint(..) | Op::Section(_) | Op::Print(_) | Op::Assert(..) => is_known = false,
        // The size of the grid is the launcher's choice.
        Op::Grid(_) | Op::FragmentIndex(_) | Op::Barrier(_) | Op::Fence(_) | Op::BlockCount(_) | Op::Subgroup(..) => {
            is_known = false
        }
        // These depend on their operands, and on the memory whose address is taken above.
        Op::Const(_)
        | Op::Unary(..)
        | Op::Binary(..)
        | Op::Select(..)
        | Op::Cast(_)
        | Op::Bitcast(_)
        | Op::MakeTensor(_)
        | Op::Splat(_)
        | Op::MakeStruct(_)
        | Op::Extract(..)
        | Op::ExtractDyn(..)
        | Op::MatMul(..)
        | Op::Transpose(_)
        | Op::Fold(..)
        | Op::Freeze(_)
        | Op::LocalAddr(_)
        | Op::ElementAddr(..)
        | Op::MemberAddr(..)
        | Op::Load(_)
        | Op::VectorLoad(_)
        | Op::VectorStore(..)
        | Op::LoadMatrices(..)
        | Op::CopyAsync(..)
        | Op::AwaitCopies
        | Op::Prefetch(_)
        | Op::Store(..)
        | Op::Atomic(..)
        | Op::AtomicCas(..)
        | Op::Reduce(..)
        | Op::If(..)
        | Op::For(_)
        | Op::Loop(_)
        | Op::LoopIndex(..)
        | Op::Break
        | Op::Continue
        | Op::Return(_) => {}
    });
    slots.extend(&addresses);
    is_known.then(|| Dependence { slots: slots.into_iter().collect(), addresses: addresses.into_iter().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_results_depend_on_the_arguments_and_memory_read() {
        let of = |body: &str| {
            let text = format!(
                "kernel k -> unit {{\n param a: i32\n param v: vec2<f32>\n buffer @0 x: f32[1] contiguous\n buffer @1 y: f32[2] \
                 strided\n body {{\n {body}\n }}\n}}\n"
            );
            let kernel: octants_ir::Kernel = text.parse().unwrap();
            let layout = ArgLayout::new(kernel.roots, &kernel.buffers, &kernel.params);
            (dependence(&kernel.body, &kernel.buffers, &layout), layout)
        };
        let both = |slots: &[u32], addresses: &[u32]| {
            Some(Dependence { slots: slots.to_vec(), addresses: addresses.to_vec() })
        };
        let (found, layout) = of("%0: i32 = param 0\n %1: i32 = shape @1, 1");
        let (x, y) = (layout.buffers[0].unwrap(), layout.buffers[1].unwrap());
        assert_eq!(found, both(&[y + 2, layout.params[0]], &[]));
        let (found, _) = of("%0: vec2<f32> = param 1");
        assert_eq!(found, both(&[layout.params[1], layout.params[1] + 1], &[]));
        let (found, _) = of("%0: i32 = param 0\n %1: ref f32 = buffer_addr @0[%0]\n %2: f32 = load %1");
        assert_eq!(found, both(&[x, x + 1, layout.params[0]], &[x]));
        let (found, _) = of("%0: i32 = param 0\n %1: ref f32 = buffer_addr @1[%0, %0]\n %2: f32 = load %1");
        assert_eq!(found, both(&[y, y + 1, y + 2, y + 3, y + 4, layout.params[0]], &[y]));
        assert_eq!(of("%0: f32 = random").0, None);
    }
}
