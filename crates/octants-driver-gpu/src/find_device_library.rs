//! [`Places`]: where a vendor's math library for GPU code may be installed, and the search for it.

use std::path::{Path, PathBuf};

/// Paths of the library, in order of preference. `*` matches a version in a folder's name; the newest match is
/// preferred.
#[derive(Debug)]
pub struct Places {
    /// In an installation of the vendor's.
    pub in_home: &'static [&'static str],
    /// Paths in Python packages, relative to a directory of packages.
    pub in_packages: &'static [&'static str],
    /// Usual installation directories, relative to the root.
    pub homes: &'static [&'static str],
    /// Usual directories of a stand-alone library.
    pub alone: &'static [&'static str],
}

impl Places {
    /// The library: in the installations that `homes` names, below the directories of packages, then where systems
    /// usually have it.
    pub fn find(&self, homes: &[PathBuf], packages: &[PathBuf]) -> Option<PathBuf> {
        let below = |dirs: &[PathBuf], names| dirs.iter().find_map(|dir| find_first(dir, names));
        below(homes, self.in_home)
            .or_else(|| below(packages, self.in_packages))
            .or_else(|| self.find_installed(Path::new("/")))
    }

    /// The library as systems have it.
    pub fn find_installed(&self, root: &Path) -> Option<PathBuf> {
        let mut homes = self.homes.iter().flat_map(|pattern| matches(root, pattern));
        homes.find_map(|home| find_first(&home, self.in_home)).or_else(|| find_first(root, self.alone))
    }
}

fn find_first(dir: &Path, patterns: &[&str]) -> Option<PathBuf> {
    patterns.iter().flat_map(|pattern| matches(dir, pattern)).find(|path| path.is_file())
}

/// The paths that match a pattern, highest version first.
fn matches(dir: &Path, pattern: &str) -> Vec<PathBuf> {
    pattern.split('/').fold(vec![dir.to_path_buf()], |found, part| {
        let Some((before, after)) = part.split_once('*') else {
            return found.into_iter().map(|dir| dir.join(part)).collect();
        };
        found.iter().flat_map(|dir| versions_in(dir, before, after)).collect()
    })
}

fn versions_in(dir: &Path, before: &str, after: &str) -> Vec<PathBuf> {
    let mut versions: Vec<(Vec<u32>, PathBuf)> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let version = name.strip_prefix(before)?.strip_suffix(after)?;
            Some((version.split(['.', '-']).map(|n| n.parse().unwrap_or(0)).collect(), entry.path()))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: Places = Places {
        in_home: &["lib/*/code.bc", "code.bc"],
        in_packages: &["vendor/code.bc"],
        homes: &["opt/vendor", "opt/vendor-*"],
        alone: &["usr/lib/code.bc"],
    };

    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Root {
            let dir = std::env::temp_dir().join(format!("octants-places-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&dir).expect("a folder");
            Root(dir)
        }

        fn add(&self, path: &str) -> PathBuf {
            let path = self.0.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, b"BC").expect("a file");
            path
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_path_from_the_user_precedes_packages() {
        let root = Root::new("given");
        let packaged = root.add("site/vendor/code.bc");
        let (homes, packages) = ([root.0.join("home")], [root.0.join("empty"), root.0.join("site")]);
        assert_eq!(PLACES.find(&homes, &packages), Some(packaged));
        let home = root.add("home/code.bc");
        assert_eq!(PLACES.find(&homes, &packages), Some(home));
    }

    #[test]
    fn the_newest_installed_version_is_used() {
        let root = Root::new("installed");
        let found = || PLACES.find_installed(&root.0);
        assert_eq!(found(), None);
        let alone = root.add("usr/lib/code.bc");
        assert_eq!(found(), Some(alone));
        root.add("opt/vendor-5.7.1/code.bc");
        let new = root.add("opt/vendor-6.10.0/lib/9/code.bc");
        root.add("opt/vendor-6.9.2/code.bc");
        root.add("opt/vendor-7.0/elsewhere");
        assert_eq!(found(), Some(new));
        let newer = root.add("opt/vendor-6.10.0/lib/17/code.bc");
        assert_eq!(found(), Some(newer));
        let linked = root.add("opt/vendor/code.bc");
        assert_eq!(found(), Some(linked));
    }
}
