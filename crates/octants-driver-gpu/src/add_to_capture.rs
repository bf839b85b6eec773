//! [`add_to_capture`]: adds kernels with conditions to graphs that another library captures.
//!
//! A captured stream records its launches. A condition that the device evaluates cannot be launched in this way, so
//! its nodes are added to the graph explicitly, after the nodes that the stream's next work would depend on.

use octants_runtime::{ErrorKind, Launch, Result, Section};

use crate::context::Context;
use crate::describe_graph::{Description, decider};
use crate::loaded_code::LoadedCode;
use crate::symbols::RawStream;

/// Adds tasks according to their sections. Returns false, with nothing added, if the vendor has no nodes for that.
///
/// # Safety
/// As [`LoadedTask::launch`](crate::loaded_task::LoadedTask::launch), for each, whenever the graph is launched.
pub unsafe fn add_to_capture(
    context: &Context,
    stream: RawStream,
    (code, sections): (&LoadedCode, &[Section]),
    launch: &Launch<'_>,
) -> Result<bool> {
    let library = context.library();
    let Some(graphs) = library.vendor.graphs() else { return Ok(false) };
    let (Some(captures), Some(_)) = (graphs.captures(), decider(context)) else { return Ok(false) };
    let doing = "adding a kernel to a graph that is captured";
    let calls = context.enter_aside()?;
    // SAFETY: the stream is alive, and the nodes are added to the graph that its work becomes a part of.
    unsafe {
        let Some((graph, dependencies)) = library.check_own(captures.under_way(stream), doing)? else {
            return Ok(false);
        };
        let mut description = Description::within(graphs, graph, &calls);
        let Ok(ends) = description.add(dependencies, (code, sections), launch) else {
            let message = format!(
                "kernel `{}` has data-dependent loops or branches, but the device cannot add it to the \
                 graph that another library captures",
                launch.kernel.name
            );
            return Err(ErrorKind::Misuse { message }.into());
        };
        library.check_own(captures.continue_after(stream, &ends), doing)?;
    }
    Ok(true)
}
