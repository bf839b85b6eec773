//! Target processors other than the host: LLVM's names for them, and their features.

use std::ffi::{CString, c_char, c_void};
use std::sync::Once;

unsafe extern "C" {
    /// Whether a processor that LLVM knows, with these feature changes, has all of these features (`+avx2,+fma`).
    fn octants_processor_has(
        triple: *const c_char,
        processor: *const c_char,
        changes: *const c_char,
        features: *const c_char,
    ) -> bool;
    /// Calls `take` with the shortest changes to a processor that leave it with just these features, and their length.
    fn octants_processor_changes(
        triple: *const c_char,
        processor: *const c_char,
        features: *const c_char,
        to: *mut c_void,
        take: Take,
    );
    /// Calls `take` with the name of each processor of 64 bits of an architecture, and its length.
    fn octants_processors(triple: *const c_char, to: *mut c_void, take: Take);
}

/// Takes a text of LLVM's.
type Take = unsafe extern "C" fn(to: *mut c_void, text: *const u8, length: usize);

/// Initializes LLVM's targets for all host architectures.
pub(super) fn set_up() {
    static ONCE: Once = Once::new();
    // SAFETY: these register LLVM's own tables; once in a process.
    ONCE.call_once(|| unsafe {
        llvm_sys::target::LLVMInitializeX86TargetInfo();
        llvm_sys::target::LLVMInitializeX86Target();
        llvm_sys::target::LLVMInitializeX86TargetMC();
        llvm_sys::target::LLVMInitializeX86AsmPrinter();
        // Long loops call the host by inline assembly: see `poll_loops.cpp`.
        llvm_sys::target::LLVMInitializeX86AsmParser();
        llvm_sys::target::LLVMInitializeAArch64TargetInfo();
        llvm_sys::target::LLVMInitializeAArch64Target();
        llvm_sys::target::LLVMInitializeAArch64TargetMC();
        llvm_sys::target::LLVMInitializeAArch64AsmPrinter();
    });
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("compiler bug: a NUL byte in a processor name")
}

/// Whether a processor has all of these features. `changes` add or remove features that its name implies (`-sse4a`).
pub(super) fn has(triple: &str, processor: &str, changes: &str, features: &str) -> bool {
    let [triple, processor, changes, features] = [triple, processor, changes, features].map(c_string);
    // SAFETY: the texts live until the call returns.
    unsafe { octants_processor_has(triple.as_ptr(), processor.as_ptr(), changes.as_ptr(), features.as_ptr()) }
}

/// Changes to a processor ([`has`]) that leave it with just these features, a list of all that it has and lacks: as few
/// as LLVM needs, which looks each of them up among all that it knows whenever it sets a machine up.
pub(super) fn changes(triple: &str, processor: &str, features: &str) -> String {
    let [triple, processor, features] = [triple, processor, features].map(c_string);
    // SAFETY: the texts live until the call returns.
    let found = collect(|to, take| unsafe {
        octants_processor_changes(triple.as_ptr(), processor.as_ptr(), features.as_ptr(), to, take);
    });
    found.concat()
}

/// The processors of an architecture. Excludes the common baseline, because its name, `generic`, does not identify the
/// architecture.
pub(super) fn names(triple: &str) -> Vec<String> {
    let triple = c_string(triple);
    // SAFETY: the text lives until the call returns.
    let mut found = collect(|to, take| unsafe { octants_processors(triple.as_ptr(), to, take) });
    found.retain(|name| name != "generic");
    found
}

/// The texts that `give` hands over.
fn collect(give: impl FnOnce(*mut c_void, Take)) -> Vec<String> {
    unsafe extern "C" fn take(to: *mut c_void, text: *const u8, length: usize) {
        // SAFETY: `to` is the vector below, which nothing else uses meanwhile, and LLVM's text so long.
        unsafe {
            let text = std::slice::from_raw_parts(text, length);
            (*to.cast::<Vec<String>>()).push(String::from_utf8_lossy(text).into_owned());
        }
    }
    let mut found: Vec<String> = Vec::new();
    give((&raw mut found).cast(), take);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "x86_64-unknown-linux-gnu";
    const ARM: &str = "aarch64-unknown-linux-gnu";

    #[test]
    fn processor_names_are_64_bit_processors() {
        let (x86, arm) = (names(X86), names(ARM));
        for name in ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "znver4", "skylake-avx512"] {
            assert!(x86.iter().any(|n| n == name), "{name}: {x86:?}");
        }
        for name in ["neoverse-n1", "cortex-a72", "apple-m1"] {
            assert!(arm.iter().any(|n| n == name), "{name}: {arm:?}");
        }
        for name in ["i386", "pentium4", "generic", ""] {
            assert!(!x86.iter().any(|n| n == name), "{name}");
        }
        assert!(x86.iter().all(|name| !arm.contains(name)), "a name is of one architecture");
        assert!(names("pdp11-dec-none").is_empty());
    }

    #[test]
    fn x86_levels_have_their_defined_features() {
        set_up();
        let has = |name: &str, features: &str| has(X86, name, "", features);
        assert!(has("x86-64-v3", "+avx2,+fma") && !has("x86-64-v3", "+avx512f"));
        assert!(has("x86-64-v4", "+avx512f,+avx512vl") && !has("x86-64-v2", "+avx"));
        assert!(has("znver4", "+avx512f,+avx512vl") && has("znver3", "+avx2"));
        assert!(!has("znver4", "+no-such-feature"));
    }

    #[test]
    fn features_may_be_removed_from_a_processor() {
        set_up();
        let has = |changes: &str, features: &str| has(X86, "znver5", changes, features);
        assert!(has("-sse4a", "+avx512f") && !has("-sse4a", "+sse4a"));
        assert!(!has("-avx512f", "+avx512vl"), "what needs a feature goes with it");
    }

    #[test]
    fn a_feature_list_is_reduced_to_differences_from_the_named_processor() {
        set_up();
        let all = |without: &str| {
            let known = ["sse4a", "avx2", "fma", "avx512f", "avx512vl", "amx-tile", "no-such-feature"];
            let sign = |f: &&str| if has(X86, "znver4", without, &format!("+{f}")) { '+' } else { '-' };
            known.map(|f| format!("{}{f}", sign(&f))).join(",")
        };
        assert_eq!(changes(X86, "znver4", &all("")), "");
        assert_eq!(changes(X86, "znver4", &all("-sse4a")), "-sse4a");
        assert_eq!(changes(X86, "znver4", "+amx-tile"), "+amx-tile");
        // Features that are not listed are those that the name implies.
        assert_eq!(changes(X86, "x86-64", "+sse3"), "+sse3");
        for without in ["-avx2", "-avx512f", "-fma"] {
            let changed = changes(X86, "znver4", &all(without));
            assert!(!has(X86, "znver4", &changed, &without.replace('-', "+")), "{changed}");
        }
    }
}
