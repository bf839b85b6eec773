//! [`HostStep`]: a step of a captured graph that the host performs at each launch of the graph, between the pieces
//! that the device runs: an exchange with other ranks, or a launch on arrays that are split over ranks.

use std::any::Any;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::kernel::LoadedKernel;

/// A step that the caller of [`crate::Stream::launch_graph_with`] performs. The runtime does not know what it is.
pub type HostStep = dyn Any + Send + Sync;

/// Buffers that a step uses, and whether it writes to them.
pub(crate) type UsedBuffers = Box<[(Buffer, bool)]>;

/// A recorded step of the host.
pub(crate) struct HostWork {
    /// The kernel, or the operation.
    pub(crate) name: Box<str>,
    /// What all ranks do together at this step. `None` if other ranks do not take part, or only some of them.
    pub(crate) collective: Option<Box<str>>,
    pub(crate) step: Arc<HostStep>,
    /// The launch that it makes, and its arguments.
    pub(crate) launch: Option<(LoadedKernel, Box<[u64]>)>,
    /// Buffers that it uses, and whether it writes to them.
    pub(crate) buffers: UsedBuffers,
}

impl HostWork {
    /// Whether both launch the same code.
    pub(crate) fn has_code_of(&self, other: &HostWork) -> bool {
        let module = |of: &HostWork| of.launch.as_ref().map(|(kernel, _)| kernel.module);
        module(self).is_some() && module(self) == module(other)
    }
}
