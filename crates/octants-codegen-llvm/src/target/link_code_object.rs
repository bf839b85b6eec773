//! [`link_code_object`]: links an object file to the shared object that the runtime loads, with LLVM's linker (lld)
//! inside this process.
//!
//! lld reads and writes files, and keeps its state in global variables: only one link runs at a time.

use std::ffi::{CString, c_char, c_int};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::CodegenError;
use crate::fatal_errors::holding_a_lock;

unsafe extern "C" {
    /// Runs lld on arguments; its error messages are written to `message`. Zero: all is well. Two: it must not run
    /// again.
    fn octants_lld(count: usize, arguments: *const *const c_char, message: *mut c_char, capacity: usize) -> c_int;
}

/// The state of lld in this process.
struct Lld {
    broken: bool,
}

static LLD: Mutex<Lld> = Mutex::new(Lld { broken: false });

/// Symbols that an object file uses and does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undefined {
    /// They are an error.
    Refused,
    /// They are resolved when the code is loaded.
    #[cfg(feature = "host-gpu")]
    Allowed,
}

/// Links one object file.
pub(super) fn link_code_object(object: &[u8], undefined: Undefined) -> Result<Vec<u8>, CodegenError> {
    let mut lld = LLD.lock().unwrap_or_else(PoisonError::into_inner);
    if lld.broken {
        return Err(CodegenError::new("the linker has failed before and cannot run again in this process"));
    }
    let folder = std::env::temp_dir().join(folder_name());
    let failed = |what: &str, e: &dyn std::fmt::Display| {
        CodegenError::new(format!("cannot link code: {what} {}: {e}", folder.display()))
    };
    make_folder(&folder).map_err(|e| failed("cannot create", &e))?;
    let result = (|| {
        let (input, output) = (folder.join("code.o"), folder.join("code.hsaco"));
        std::fs::write(&input, object).map_err(|e| failed("cannot write in", &e))?;
        run(&mut lld, undefined, &input, &output)?;
        std::fs::read(&output).map_err(|e| failed("cannot read from", &e))
    })();
    // A failure is ignored: the system cleans the folder of temporary files.
    let _ = std::fs::remove_dir_all(&folder);
    result
}

/// A name that no other process uses, including processes in other containers that share the folder of temporary files,
/// where process numbers may be equal.
fn folder_name() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("octants-link-{}-{now:x}", std::process::id())
}

/// A new folder, of this user only: files that others put there would be executed. An existing folder is an error.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn run(lld: &mut Lld, undefined: Undefined, input: &Path, output: &Path) -> Result<(), CodegenError> {
    let path = |p: &Path| CString::new(p.as_os_str().as_encoded_bytes()).map_err(|e| CodegenError::new(e.to_string()));
    let (input, output) = (path(input)?, path(output)?);
    // A file mapped into memory would have lld set handlers of signals, which are the program's.
    let undefined = if undefined == Undefined::Refused { c"--no-undefined" } else { c"--allow-shlib-undefined" };
    let arguments =
        [c"ld.lld", c"-shared", undefined, c"--threads=1", c"--no-mmap-output-file", c"-o", &output, &input]
            .map(|a| a.as_ptr());
    let mut message = vec![0u8; 4096];
    // SAFETY: the arguments are C strings that live until the call returns, the message's capacity is its length. The
    // lock held by the caller keeps a second linkage out.
    let status = holding_a_lock(|| unsafe {
        octants_lld(arguments.len(), arguments.as_ptr(), message.as_mut_ptr().cast(), message.len())
    });
    lld.broken = status == 2;
    if status == 0 {
        return Ok(());
    }
    let text = message.split(|b| *b == 0).next().unwrap_or_default();
    Err(CodegenError::new(format!("cannot link code: {}", String::from_utf8_lossy(text).trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_existing_folder_is_not_used_for_linking() {
        let folder = std::env::temp_dir().join(folder_name());
        make_folder(&folder).expect("a new folder");
        assert!(make_folder(&folder).is_err());
        std::fs::remove_dir(&folder).expect("made above");
    }

    #[test]
    fn an_invalid_object_file_is_refused_with_the_linkers_message_each_time() {
        for _ in 0..2 {
            let error = link_code_object(b"nothing of the kind", Undefined::Refused).expect_err("refused").to_string();
            assert!(error.contains("code.o"), "{error}");
        }
    }
}
