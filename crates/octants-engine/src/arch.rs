//! The kinds of machine that a user may name.

/// The kinds of machine a session can run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// This machine's processor, by code made for it.
    Cpu,
    /// The best graphics processor found.
    Gpu,
    /// NVIDIA's graphics processors.
    Cuda,
    /// AMD's graphics processors.
    Amdgpu,
    /// An accelerator of a kind that this build does not drive.
    Other(&'static str),
}

/// Names accepted for `arch`.
pub const ARCHES: &[(&str, Arch)] = &[
    ("cpu", Arch::Cpu),
    ("x64", Arch::Cpu),
    ("arm64", Arch::Cpu),
    ("gpu", Arch::Gpu),
    ("cuda", Arch::Cuda),
    ("amdgpu", Arch::Amdgpu),
    ("vulkan", Arch::Other("vulkan")),
    ("metal", Arch::Other("metal")),
];

impl Arch {
    /// The name used in messages.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Cpu => "cpu",
            Arch::Gpu => "gpu",
            Arch::Cuda => "cuda",
            Arch::Amdgpu => "amdgpu",
            Arch::Other(name) => name,
        }
    }
}
