//! [`choose_target`]: the processor that code is compiled for, from HIP's name of an architecture.
//!
//! `gfx90a:sramecc+:xnack-` is a processor with the state of features that may affect its code. Our code runs with
//! them in any state.

use octants_artifact::CodeTarget;

/// The first HIP version whose compiler generates code objects of version 5. Earlier versions get version 4.
const FIFTH: i32 = 60_000_000;

/// The code target for a version of HIP; `None` if the name is not that of an architecture.
pub fn choose_target(architecture: &str, version: i32) -> Option<CodeTarget> {
    let cpu = architecture.split(':').next()?;
    // The HIP emulator, for tests. Its code is for this machine's processor.
    #[cfg(feature = "host-gpu")]
    if let Some(kind) = cpu.strip_prefix("hostgpu-") {
        return Some(CodeTarget::Device { triple: "hostgpu".into(), cpu: kind.into(), features: String::new() });
    }
    let number = cpu.strip_prefix("gfx")?;
    let known = number.len() >= 3 && number.chars().all(|c| c.is_ascii_hexdigit());
    let features = if version < FIFTH { "+code-object-v4" } else { "" };
    known.then(|| CodeTarget::Device { triple: "amdgcn-amd-amdhsa".into(), cpu: cpu.into(), features: features.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(architecture: &str) -> String {
        with_version(architecture, 60_443_482)
    }

    fn with_version(architecture: &str, version: i32) -> String {
        match choose_target(architecture, version) {
            Some(CodeTarget::Device { triple, cpu, features }) => format!("{triple} {cpu} [{features}]"),
            _ => "none".into(),
        }
    }

    #[test]
    fn names_of_architectures() {
        assert_eq!(target("gfx1100"), "amdgcn-amd-amdhsa gfx1100 []");
        assert_eq!(target("gfx90a:sramecc+:xnack-"), "amdgcn-amd-amdhsa gfx90a []");
        assert_eq!(target("gfx942:sramecc+:xnack+"), "amdgcn-amd-amdhsa gfx942 []");
    }

    #[test]
    fn versions_before_6_get_an_older_code_object_version() {
        assert_eq!(with_version("gfx90a", 50_221_153), "amdgcn-amd-amdhsa gfx90a [+code-object-v4]");
        assert_eq!(with_version("gfx90a", 60_000_000), "amdgcn-amd-amdhsa gfx90a []");
    }

    #[test]
    fn unknown_architectures_are_refused() {
        for name in ["", "gfx", "AMD Radeon", "sm_90", "gfx9:", "gfxten"] {
            assert_eq!(target(name), "none", "{name}");
        }
    }
}
