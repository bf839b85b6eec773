//! [`GraphOfParts`]: launches of many kernels, fills and copies as one graph.
//!
//! Each part is described after the parts it depends on. Later launches pass only the differences to the vendor's
//! library: the arguments of parts marked as changed, and the launch number if a part's code depends on it.

use std::ops::Range;

use octants_runtime::{GraphPart, Launch, PartWork, Result};

use crate::context::Entered;
use crate::describe_graph::{Description, Node, NotAGraph};
use crate::loaded_code::LoadedCode;
use crate::module::Module;
use crate::symbols::RawStream;
use crate::vendor::{CopyNode, FillNode, Graphs, RawGraph, RawNode, ReadyGraph};

/// An instantiated graph.
#[derive(Debug)]
pub struct GraphOfParts {
    described: RawGraph,
    ready: ReadyGraph,
    nodes: Vec<Node>,
    parts: Vec<Part>,
    /// Parts whose code depends on the launch's number.
    numbered: Vec<usize>,
    /// The first kernel's number in [`crate::last_launches`].
    kernel: Option<u32>,
}

/// A part, with its nodes among all.
#[derive(Debug)]
struct Part {
    /// Its code, which stays loaded; null for a fill or a copy.
    code: *const LoadedCode,
    nodes: Range<usize>,
}

impl GraphOfParts {
    /// Makes the graph, if the parts can be one.
    ///
    /// # Safety
    /// As [`octants_runtime::Driver::make_graph`].
    pub unsafe fn new(graphs: &dyn Graphs, calls: &Entered<'_>, parts: &[GraphPart<'_>]) -> Option<GraphOfParts> {
        // SAFETY: the contract above; what is given back was made here, and not launched.
        unsafe {
            let described = graphs.create().ok()?;
            let made = GraphOfParts::describe(graphs, described, calls, parts);
            made.inspect_err(|_| graphs.destroy(described)).ok()
        }
    }

    /// # Safety
    /// As [`GraphOfParts::new`].
    unsafe fn describe(
        graphs: &dyn Graphs,
        described: RawGraph,
        calls: &Entered<'_>,
        parts: &[GraphPart<'_>],
    ) -> std::result::Result<GraphOfParts, NotAGraph> {
        let mut description = Description::of(graphs, described, calls);
        let (mut own, mut numbered, mut kernel) = (Vec::with_capacity(parts.len()), Vec::new(), None);
        let mut ends: Vec<Vec<RawNode>> = Vec::with_capacity(parts.len());
        for (place, part) in parts.iter().enumerate() {
            let mut dependencies: Vec<RawNode> = Vec::new();
            for end in part.depends_on.iter().flat_map(|p| &ends[*p]) {
                if !dependencies.contains(end) {
                    dependencies.push(*end);
                }
            }
            let first = description.nodes.len();
            let mut code: *const LoadedCode = std::ptr::null();
            // SAFETY: the contract above.
            let end = unsafe {
                match &part.work {
                    PartWork::Launch { module, sections, launch } => {
                        let of = &(*(module.0 as *const Module)).code;
                        code = of;
                        if of.tasks.iter().any(|t| t.is_numbered) {
                            numbered.push(place);
                        }
                        kernel = kernel.or(of.tasks.first().map(|t| t.kernel));
                        description.add(dependencies, (of, sections), launch)?
                    }
                    PartWork::Fill { at, pattern, bytes } => {
                        vec![
                            description
                                .add_fill(&dependencies, &FillNode { at: at.0, pattern: *pattern, bytes: *bytes })?,
                        ]
                    }
                    PartWork::Copy { to, from, bytes } => {
                        vec![description.add_copy(&dependencies, &CopyNode { to: to.0, from: from.0, bytes: *bytes })?]
                    }
                }
            };
            ends.push(end);
            own.push(Part { code, nodes: first..description.nodes.len() });
        }
        let nodes = description.nodes;
        // SAFETY: described above.
        let ready = unsafe { graphs.make_ready(described) }.map_err(|_| NotAGraph::Ever)?;
        Ok(GraphOfParts { described, ready, nodes, parts: own, numbered, kernel })
    }

    /// Launches. False if the launches cannot use the graph.
    ///
    /// # Safety
    /// As [`octants_runtime::Driver::launch_graph`].
    pub unsafe fn launch<'a>(
        &mut self,
        (graphs, calls): (&dyn Graphs, &Entered<'_>),
        stream: RawStream,
        changed: &[usize],
        launch_of: &dyn Fn(usize) -> Option<Launch<'a>>,
    ) -> Result<bool> {
        for place in changed.iter().chain(self.numbered.iter().filter(|n| !changed.contains(n))) {
            let (Some(part), Some(launch)) = (self.parts.get(*place), launch_of(*place)) else { continue };
            for node in &mut self.nodes[part.nodes.clone()] {
                // SAFETY: the contract above; parameters are copied before the calls return.
                unsafe {
                    match node.update_parameters(calls, &*part.code, &launch) {
                        Ok(None) => {}
                        Ok(Some(kernel)) => match graphs.exchange(self.ready, node.raw, &kernel) {
                            Ok(()) => {}
                            Err(_) => return Ok(false),
                        },
                        Err(_) => return Ok(false),
                    }
                }
            }
        }
        let library = calls.library();
        if let Some(kernel) = self.kernel {
            library.last.note(stream, kernel);
        }
        // SAFETY: the contract above.
        library.check_own(unsafe { graphs.launch(self.ready, stream) }, "launching a captured graph")?;
        Ok(true)
    }

    /// Gives it back.
    ///
    /// # Safety
    /// No launch of it is being made.
    pub unsafe fn destroy(self, graphs: &dyn Graphs) {
        // SAFETY: the contract above.
        unsafe {
            graphs.destroy_ready(self.ready);
            graphs.destroy(self.described);
        }
    }
}
