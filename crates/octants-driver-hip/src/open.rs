//! Finds HIP's library and a device, or reports why it cannot.

use octants_driver_gpu::libloading::Library as Loaded;
use octants_driver_gpu::open::{Listed, list_gpus, load, open_context};
use octants_driver_gpu::{GpuConfig, GpuDriver, Library, Symbols, Unavailable};

use crate::choose_target::choose_target;
use crate::hip::{Hip, explain_missing};
use crate::sparse_libraries::HipSparse;
use crate::symbols::{DESCRIBE, Describe, NAMES, Own, code, layout};

// The names with a number belong to the runtime; the one without belongs to the development package.
#[cfg(not(windows))]
const LIBRARIES: &[&str] = &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];
#[cfg(windows)]
const LIBRARIES: &[&str] = &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"];

/// The first version whose memory pools are used, as the library reports versions: before it they were undocumented.
const POOLS: i32 = 50_400_000;

/// HIP's library, initialized, and its version.
fn start(config: &GpuConfig) -> Result<(&'static Loaded, Library, i32), Unavailable> {
    let no = |reason: String| Err(Unavailable(reason));
    let loaded = load(config, LIBRARIES, "no ROCm is installed")?;
    // SAFETY: the library is HIP's by its name, and stays loaded.
    let found = unsafe { Own::find(loaded).and_then(|own| Ok((Symbols::find(loaded, &NAMES)?, Hip(own)))) };
    let library = match found {
        Ok((symbols, hip)) => Library::new(symbols, &NAMES, Box::new(hip)),
        Err(name) => return no(explain_missing(name)),
    };
    if let Some(reason) = why_not_started(library.init(), |c| library.describe(c)) {
        return no(reason);
    }
    let version = library.driver_version().map_err(|e| Unavailable(e.to_string()))?;
    Ok((loaded, library, version))
}

/// All AMD GPUs, or why there can be none.
pub fn list(config: &GpuConfig) -> Result<Vec<Listed>, Unavailable> {
    list_gpus(&start(config)?.1)
}

/// Opens an AMD GPU; the error says why it cannot be used.
pub fn open(config: &GpuConfig) -> Result<GpuDriver, Unavailable> {
    let (loaded, library, version) = start(config)?;
    let context = open_context(library, config)?;
    let architecture = architecture(loaded, context.device)?;
    let Some(target) = choose_target(&architecture, version) else {
        let name = context.name;
        return Err(Unavailable(format!("{name} has the architecture `{architecture}`, which is not supported")));
    };
    let plain_memory = config.plain_memory || version < POOLS;
    let driver = GpuDriver::new(context, target, &GpuConfig { plain_memory, ..config.clone() })?;
    Ok(driver.with_sparse_libraries(Box::new(HipSparse::new(config))))
}

/// The reason for a code of `hipInit`.
fn why_not_started(c: i32, describe: impl Fn(i32) -> String) -> Option<String> {
    Some(match c {
        code::SUCCESS => return None,
        code::NO_DEVICE | code::INVALID_DEVICE => {
            "no AMD GPU was found (the kernel's driver may be missing, this user may have no access to /dev/kfd, or \
             HIP_VISIBLE_DEVICES may hide existing ones)"
                .into()
        }
        c => format!("HIP cannot be initialized: hipInit failed with code {c} ({})", describe(c)),
    })
}

/// HIP's name of a device's architecture. No attribute has it. It is in a struct that changed with ROCm 6.0, together
/// with the name of the function.
fn architecture(loaded: &Loaded, device: i32) -> Result<String, Unavailable> {
    // SAFETY: both functions have this type.
    let found = DESCRIBE.map(|name| unsafe { loaded.get::<Describe>(name) }.ok());
    let (describe, at, name) = match found {
        [Some(new), _] => (new, layout::NEW_ARCHITECTURE, DESCRIBE[0]),
        [None, Some(old)] => (old, layout::OLD_ARCHITECTURE, DESCRIBE[1]),
        [None, None] => return Err(Unavailable(explain_missing(DESCRIBE[1]))),
    };
    // More than any version fills.
    let mut bytes = vec![0u64; 2 * layout::NEW_BYTES.div_ceil(8)];
    // SAFETY: there is room for the struct, which holds numbers and text.
    let c = unsafe { describe(bytes.as_mut_ptr().cast(), device) };
    if c != code::SUCCESS {
        return Err(Unavailable(format!("the GPU's architecture is not known: {name} failed with code {c}")));
    }
    let bytes: Vec<u8> = bytes.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = bytes[at..at + layout::ARCHITECTURE_BYTES].split(|b| *b == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_the_missing_part() {
        let why = |c| why_not_started(c, |_| "hipErrorUnknown".into());
        assert_eq!(why(0), None);
        for c in [code::NO_DEVICE, code::INVALID_DEVICE] {
            assert!(why(c).is_some_and(|t| t.contains("no AMD GPU") && t.contains("HIP_VISIBLE_DEVICES")));
        }
        assert!(why(999).is_some_and(|t| t.contains("code 999 (hipErrorUnknown)")));
    }
}
