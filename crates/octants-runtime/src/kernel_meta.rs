//! [`KernelMeta`]: the properties of compiled code that do not depend on a device.

use std::sync::OnceLock;

use octants_artifact::{Artifact, Condition, ScalarKind, Site, SiteKind, SitePart, TaskMeta};

use crate::footprint::Footprint;

/// The properties of a kernel that a launch and its messages need: an artifact without its code.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelMeta {
    /// The user's name.
    pub name: String,
    /// Argument slots of a launch.
    pub arg_slots: u32,
    /// Bytes of frame.
    pub frame_bytes: u64,
    /// Scalars of the result's leaves.
    pub result: Vec<ScalarKind>,
    /// The user's names of its buffers.
    pub buffers: Vec<String>,
    /// In launch order.
    pub tasks: Vec<TaskMeta>,
    /// Integers that its data-dependent loops change.
    pub counters: Vec<Condition>,
    /// Places that print or assert.
    pub sites: Vec<Site>,
    /// For each argument slot, once they are needed.
    footprints: OnceLock<Box<[Footprint]>>,
}

impl KernelMeta {
    /// Takes the metadata out of an artifact.
    pub fn of(artifact: &Artifact) -> KernelMeta {
        KernelMeta {
            name: artifact.kernel.clone(),
            arg_slots: artifact.arg_slots,
            frame_bytes: artifact.frame_bytes,
            result: artifact.result.clone(),
            buffers: artifact.buffers.clone(),
            tasks: artifact.tasks.clone(),
            counters: artifact.counters.clone(),
            sites: artifact.sites.clone(),
            footprints: OnceLock::new(),
        }
    }

    /// The accesses to the memory that an argument slot addresses.
    #[inline]
    pub(crate) fn footprint(&self, slot: u32) -> &Footprint {
        let all = self.footprints.get_or_init(|| Footprint::of_slots(&self.tasks, self.arg_slots as usize));
        &all[slot as usize]
    }

    /// True when the buffer of this number is an array that is split over ranks, and some task accesses it.
    pub fn splits(&self, buffer: u32) -> bool {
        self.tasks.iter().filter_map(|t| t.split.as_ref()).any(|split| split.accesses(buffer))
    }

    /// True when some task runs on rows of split arrays.
    pub fn is_split(&self) -> bool {
        self.tasks.iter().any(|t| t.split.is_some())
    }

    /// True when the code has a place that prints.
    pub fn prints(&self) -> bool {
        self.sites.iter().any(|s| matches!(s.kind, SiteKind::Print | SiteKind::Report))
    }

    /// True when the program itself prints or asserts somewhere in the code.
    pub fn has_messages(&self) -> bool {
        self.sites.iter().any(|s| s.kind != SiteKind::LeftEarly)
    }

    /// Number of scalars that the code passes at a site.
    pub fn site_values(&self, site: u32) -> usize {
        let Some(site) = self.sites.get(site as usize) else { return 0 };
        let count = |part: &SitePart| match part {
            SitePart::Text(_) => 0,
            SitePart::Choice(_) => 1,
            SitePart::Value { shape, .. } => shape.iter().map(|&n| n as usize).product(),
        };
        site.parts.iter().map(count).sum()
    }
}
