//! [`find_library`]: opens an optional library of the vendor.

use std::path::PathBuf;

use libloading::Library;

use crate::find_device_library::Places;

/// Opens the first library of these names that the system's loader finds or the process has already loaded, or else the
/// first one in `places`. It stays loaded. The error is a sentence for the user.
pub fn find_library(
    names: &[&str],
    places: &Places,
    homes: &[PathBuf],
    packages: &[PathBuf],
) -> Result<&'static Library, String> {
    // SAFETY: loading such a library has no effect on anything else.
    let open = |path: &std::ffi::OsStr| unsafe { Library::new(path) };
    if let Some(library) = names.iter().find_map(|name| open(name.as_ref()).ok()) {
        return Ok(Box::leak(Box::new(library)));
    }
    let path = places.find(homes, packages).ok_or_else(|| format!("{} was not found", names[0]))?;
    let opened = open(path.as_os_str()).map_err(|e| {
        let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
        format!("{} cannot be opened: {why}", path.display())
    });
    Ok(Box::leak(Box::new(opened?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: Places = Places { in_home: &["lib/libacme-sparse.so"], in_packages: &[], homes: &[], alone: &[] };

    #[test]
    fn missing_and_broken_libraries_are_named() {
        let missing = find_library(&["libacme-sparse.so"], &NOWHERE, &[], &[]).unwrap_err();
        assert_eq!(missing, "libacme-sparse.so was not found");
        let home = std::env::temp_dir().join(format!("octants-library-{}", std::process::id()));
        std::fs::create_dir_all(home.join("lib")).expect("a folder");
        std::fs::write(home.join("lib/libacme-sparse.so"), b"no library").expect("a file");
        let broken = find_library(&["libacme-sparse.so"], &NOWHERE, std::slice::from_ref(&home), &[]).unwrap_err();
        let _ = std::fs::remove_dir_all(&home);
        assert!(broken.contains("lib/libacme-sparse.so cannot be opened: "), "{broken}");
    }
}
