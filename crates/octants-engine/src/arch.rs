//! [`Arch`]: the value of `qd.init(arch=...)`.

use std::fmt;

/// The name of a back end, or of no certain one. The table of back ends defines the names (`Backends::arches`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Arch(&'static str);

impl Arch {
    /// This machine's processor, by code made for it. Every build has its back end.
    pub const CPU: Arch = Arch("cpu");
    /// The first available device other than the host.
    pub const GPU: Arch = Arch("gpu");

    /// The back end with this name in messages.
    pub(crate) fn new(name: &'static str) -> Arch {
        Arch(name)
    }

    /// The name used in messages.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
