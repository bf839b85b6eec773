//! Facts for the optimizer: which accesses cannot alias, which loops have independent iterations.
//!
//! One TBAA type per memory class of the schedule, and per component of its elements when the class says so. Siblings
//! never alias. Unlike alias scope lists, which name everything that an access does not touch, types cost the same for
//! any number of buffers. One access group holds the accesses to buffers whose order between iterations does not matter
//! in loops that are hinted to be independent. Memory of locals is never tagged.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use llvm_sys::core::*;
use llvm_sys::debuginfo::{LLVMMetadataReplaceAllUsesWith, LLVMTemporaryMDNode};
use llvm_sys::ir_reader::LLVMParseIRInContext2;
use llvm_sys::prelude::*;
use octants_ir::{LoopHints, MemorySpace, Program, Schedule};

use crate::emit::{Emitter, V, llvm};

/// A range of components, numbered across all buffers, that an access may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Tag {
    pub first: u32,
    pub count: u32,
}

impl Tag {
    /// The smallest range that contains both.
    pub fn union(self, other: Tag) -> Tag {
        let first = self.first.min(other.first);
        let end = (self.first + self.count).max(other.first + other.count);
        Tag { first, count: end - first }
    }
}

/// Metadata of a module.
pub(crate) struct Metadata {
    ctx: LLVMContextRef,
    /// Above all other types.
    any: LLVMMetadataRef,
    /// Components of each buffer; arrays that may alias share one, and so do fields with memory in common.
    buffers: Vec<Tag>,
    /// Shared memory, which the iterations of a parallel loop reuse.
    shared: HashSet<Tag>,
    frame: Tag,
    /// Tags of accesses, as LLVM writes them.
    tags: RefCell<HashMap<Tag, Option<V>>>,
    /// Per component: the contents do not change while the generated code runs.
    constant: RefCell<Vec<bool>>,
    access_group: LLVMMetadataRef,
    kinds: Kinds,
}

struct Kinds {
    tbaa: u32,
    access_group: u32,
    invariant_load: u32,
    loop_id: u32,
    nonnull: u32,
    dereferenceable: u32,
    align: u32,
    noundef: u32,
}

impl Metadata {
    /// Types for the buffers of a program.
    pub fn new(e: &Emitter, program: &Program, schedule: &Schedule) -> Metadata {
        let text = |s: &str| llvm!(LLVMMDStringInContext2(e.ctx, s.as_ptr().cast(), s.len()));
        let node = |parts: &mut [LLVMMetadataRef]| llvm!(LLVMMDNodeInContext2(e.ctx, parts.as_mut_ptr(), parts.len()));
        let mut components = 0;
        let mut take = |count: u32| {
            components += count;
            Tag { first: components - count, count }
        };
        let mut buffers: Vec<Tag> = Vec::new();
        for (i, (b, class)) in program.buffers.iter().zip(&schedule.memory).enumerate() {
            buffers.push(match class.first {
                first if first != i => buffers[first],
                _ if class.by_component => take(b.elem.leaf_count().max(1) as u32),
                _ => take(1),
            });
        }
        let frame = take(1);
        let tagged = program.buffers.iter().zip(&buffers);
        let shared = tagged.filter(|(b, _)| b.space == MemorySpace::Shared).map(|(_, tag)| *tag).collect();
        let kind = |s: &str| llvm!(LLVMGetMDKindIDInContext(e.ctx, s.as_ptr().cast(), s.len() as u32));
        Metadata {
            ctx: e.ctx,
            any: node(&mut [text("octants")]),
            buffers,
            shared,
            frame,
            tags: RefCell::default(),
            constant: RefCell::default(),
            access_group: distinct_node(e),
            kinds: Kinds {
                tbaa: kind("tbaa"),
                access_group: kind("llvm.access.group"),
                invariant_load: kind("invariant.load"),
                loop_id: kind("llvm.loop"),
                nonnull: kind("nonnull"),
                dereferenceable: kind("dereferenceable"),
                align: kind("align"),
                noundef: kind("noundef"),
            },
        }
    }

    /// Tag of one component of a buffer.
    pub fn component(&self, buffer: usize, component: usize) -> Tag {
        let all = self.buffers[buffer];
        if all.count > 1 { Tag { first: all.first + component as u32, count: 1 } } else { all }
    }

    /// Tag of the frame.
    pub fn frame(&self) -> Tag {
        self.frame
    }

    fn node(&self, parts: &mut [LLVMMetadataRef]) -> LLVMMetadataRef {
        llvm!(LLVMMDNodeInContext2(self.ctx, parts.as_mut_ptr(), parts.len()))
    }

    fn value(&self, node: LLVMMetadataRef) -> V {
        llvm!(LLVMMetadataAsValue(self.ctx, node))
    }

    /// Adds the alias metadata of a load or store of a buffer; `independent` puts it in the access group.
    pub fn mark_access(&self, e: &Emitter, access: V, tag: Tag, independent: bool) {
        let is_shared = self.shared.iter().any(|t| t.first <= tag.first && tag.first < t.first + t.count);
        let tag = *self.tags.borrow_mut().entry(tag).or_insert_with(|| self.access_tag(e, tag));
        if let Some(tag) = tag {
            llvm!(LLVMSetMetadata(access, self.kinds.tbaa, tag));
        }
        if independent && !is_shared {
            llvm!(LLVMSetMetadata(access, self.kinds.access_group, self.value(self.access_group)));
        }
    }

    /// `None` for memory that may belong to several buffers.
    fn access_tag(&self, e: &Emitter, tag: Tag) -> Option<V> {
        let end = tag.first + tag.count;
        let holds = |b: &&Tag| b.first <= tag.first && end <= b.first + b.count;
        let buffer = self.buffers.iter().chain([&self.frame]).find(holds)?;
        let mut ty = self.type_under(e, self.any, &format!("buffer {}", buffer.first));
        if tag.count < buffer.count && tag.count == 1 {
            ty = self.type_under(e, ty, &format!("component {}", tag.first));
        }
        let zero = llvm!(LLVMValueAsMetadata(e.i64c(0)));
        Some(self.value(self.node(&mut [ty, ty, zero])))
    }

    fn type_under(&self, e: &Emitter, parent: LLVMMetadataRef, name: &str) -> LLVMMetadataRef {
        let zero = llvm!(LLVMValueAsMetadata(e.i64c(0)));
        let name = llvm!(LLVMMDStringInContext2(self.ctx, name.as_ptr().cast(), name.len()));
        self.node(&mut [name, parent, zero])
    }

    /// Declares which buffers do not change while the following code runs.
    pub fn set_constants(&self, buffers: &[bool]) {
        let mut constant = vec![true; (self.frame.first + self.frame.count) as usize];
        constant[self.frame.first as usize] = false;
        for (tag, keeps) in self.buffers.iter().zip(buffers) {
            let components = tag.first as usize..(tag.first + tag.count) as usize;
            constant[components].iter_mut().for_each(|c| *c &= keeps);
        }
        *self.constant.borrow_mut() = constant;
    }

    /// Marks a load of a buffer that keeps its contents.
    pub fn mark_constant(&self, load: V, tag: Tag) {
        let constant = self.constant.borrow();
        let components = constant.get(tag.first as usize..(tag.first + tag.count) as usize);
        if components.is_some_and(|s| s.iter().all(|c| *c)) {
            let empty = self.value(self.node(&mut []));
            llvm!(LLVMSetMetadata(load, self.kinds.invariant_load, empty));
        }
    }

    /// Marks a load of memory that never changes while the code runs.
    pub fn mark_invariant(&self, load: V) {
        let empty = self.value(self.node(&mut []));
        llvm!({
            LLVMSetMetadata(load, self.kinds.invariant_load, empty);
            LLVMSetMetadata(load, self.kinds.noundef, empty);
        });
    }

    /// Marks a loaded pointer to an object of at least that many bytes.
    pub fn mark_pointer(&self, e: &Emitter, load: V, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let size = self.value(self.node(&mut [llvm!(LLVMValueAsMetadata(e.i64c(bytes as i64)))]));
        let empty = self.value(self.node(&mut []));
        llvm!({
            LLVMSetMetadata(load, self.kinds.nonnull, empty);
            LLVMSetMetadata(load, self.kinds.dereferenceable, size);
        });
    }

    /// Marks a loaded pointer as aligned to `bytes`.
    pub fn mark_alignment(&self, e: &Emitter, load: V, bytes: u32) {
        let size = self.value(self.node(&mut [llvm!(LLVMValueAsMetadata(e.i64c(i64::from(bytes))))]));
        llvm!(LLVMSetMetadata(load, self.kinds.align, size));
    }

    /// Adds loop metadata to the back edge of a parallel loop, if there is any.
    pub fn mark_parallel_loop(&self, e: &Emitter, back_edge: V, hints: LoopHints) {
        let mut facts = Vec::new();
        if hints.independent {
            facts.push(("llvm.loop.parallel_accesses", Some(self.access_group)));
        }
        if hints.no_vectors {
            facts.push(self.without_vectors(e));
        }
        if !facts.is_empty() {
            self.mark_loop(back_edge, &facts);
        }
    }

    /// Marks the back edge of a loop over threads: it is unrolled when it has become vector code, and not before.
    pub fn mark_thread_loop(&self, e: &Emitter, back_edge: V, hints: LoopHints) {
        let mut facts = vec![("llvm.loop.unroll.disable", None)];
        if hints.independent {
            facts.push(("llvm.loop.parallel_accesses", Some(self.access_group)));
        }
        if hints.no_vectors {
            facts.push(self.without_vectors(e));
        } else {
            // The metadata of the loops that result from it, instead of the metadata against unrolling.
            let progress = "llvm.loop.mustprogress";
            let progress = llvm!(LLVMMDStringInContext2(self.ctx, progress.as_ptr().cast(), progress.len()));
            facts.push(("llvm.loop.vectorize.followup_all", Some(self.node(&mut [progress]))));
        }
        self.mark_loop(back_edge, &facts);
    }

    /// Marks the back edge of a loop that must not be vectorized.
    pub fn mark_ordered_loop(&self, e: &Emitter, back_edge: V) {
        self.mark_loop(back_edge, &[self.without_vectors(e)]);
    }

    /// Marks the back edge of a loop that is vectorized with an interleave count of one, because its body is large
    /// enough.
    pub fn mark_filled_loop(&self, e: &Emitter, back_edge: V) {
        let once = llvm!(LLVMValueAsMetadata(e.i32c(1)));
        self.mark_loop(back_edge, &[("llvm.loop.interleave.count", Some(once))]);
    }

    fn without_vectors(&self, e: &Emitter) -> (&'static str, Option<LLVMMetadataRef>) {
        ("llvm.loop.vectorize.enable", Some(llvm!(LLVMValueAsMetadata(e.int(e.i1, 0)))))
    }

    /// Marks the back edge of a loop that rarely runs and must not be unrolled.
    pub fn mark_rolled_loop(&self, back_edge: V) {
        self.mark_loop(back_edge, &[("llvm.loop.unroll.disable", None)]);
    }

    /// Marks the back edge of a loop that must not be unrolled unless its trip count is known.
    pub fn mark_uncounted_loop(&self, back_edge: V) {
        self.mark_loop(back_edge, &[("llvm.loop.unroll.runtime.disable", None)]);
    }

    /// Marks the back edge of a loop that is neither interleaved nor unrolled at run time. It may be vectorized.
    pub fn mark_lean_loop(&self, e: &Emitter, back_edge: V) {
        let once = llvm!(LLVMValueAsMetadata(e.i32c(1)));
        let facts = [("llvm.loop.interleave.count", Some(once)), ("llvm.loop.unroll.runtime.disable", None)];
        self.mark_loop(back_edge, &facts);
    }

    /// Marks the back edge of a loop whose vector code masks missing iterations.
    pub fn mark_masked_loop(&self, e: &Emitter, back_edge: V) {
        let yes = llvm!(LLVMValueAsMetadata(e.int(e.i1, 1)));
        let facts = [("llvm.loop.vectorize.predicate.enable", Some(yes)), ("llvm.loop.unroll.runtime.disable", None)];
        self.mark_loop(back_edge, &facts);
    }

    /// Marks the back edge of a loop that must be fully unrolled.
    pub fn mark_fully_unrolled_loop(&self, back_edge: V) {
        self.mark_loop(back_edge, &[("llvm.loop.unroll.full", None)]);
    }

    /// Marks the back edge of a loop with an unroll factor. Later passes may unroll it further.
    pub fn mark_unrolled_loop(&self, e: &Emitter, back_edge: V, times: u32) {
        let times = llvm!(LLVMValueAsMetadata(e.i32c(i64::from(times))));
        // The metadata of the resulting loop, instead of the metadata against further unrolling.
        let progress = "llvm.loop.mustprogress";
        let progress = llvm!(LLVMMDStringInContext2(self.ctx, progress.as_ptr().cast(), progress.len()));
        let then = self.node(&mut [progress]);
        let facts = [("llvm.loop.unroll.count", Some(times)), ("llvm.loop.unroll.followup_unrolled", Some(then))];
        self.mark_loop(back_edge, &facts);
    }

    fn mark_loop(&self, back_edge: V, facts: &[(&str, Option<LLVMMetadataRef>)]) {
        let fact = |(name, operand): &(&str, Option<LLVMMetadataRef>)| {
            let mut parts = vec![llvm!(LLVMMDStringInContext2(self.ctx, name.as_ptr().cast(), name.len()))];
            parts.extend(*operand);
            self.node(&mut parts)
        };
        let facts: Vec<_> = facts.iter().map(fact).collect();
        // A loop's id is a node whose first operand is itself.
        llvm!({
            let placeholder = LLVMTemporaryMDNode(self.ctx, std::ptr::null_mut(), 0);
            let id = self.node(&mut [&[placeholder], &facts[..]].concat());
            LLVMMetadataReplaceAllUsesWith(placeholder, id);
            LLVMSetMetadata(back_edge, self.kinds.loop_id, self.value(id));
        });
    }
}

/// An access group is a distinct node without operands, which the C interface cannot make: it is parsed.
fn distinct_node(e: &Emitter) -> LLVMMetadataRef {
    const TEXT: &std::ffi::CStr = c"!group = !{!0}\n!0 = distinct !{}\n";
    llvm!({
        let bytes = TEXT.to_bytes();
        let buffer = LLVMCreateMemoryBufferWithMemoryRange(TEXT.as_ptr(), bytes.len(), c"group".as_ptr(), 1);
        let (mut module, mut message) = (std::ptr::null_mut(), std::ptr::null_mut());
        let failed = LLVMParseIRInContext2(e.ctx, buffer, &mut module, &mut message);
        assert!(failed == 0, "compiler bug: the access group does not parse");
        LLVMDisposeMemoryBuffer(buffer);
        let mut node = std::ptr::null_mut();
        LLVMGetNamedMetadataOperands(module, c"group".as_ptr(), &mut node);
        let node = LLVMValueAsMetadata(node);
        LLVMDisposeModule(module);
        node
    })
}
