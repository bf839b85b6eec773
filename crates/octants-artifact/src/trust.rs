//! Which files a store trusts. They contain machine code, so anyone who can write them can run code as the reader.
//!
//! - In a folder of the user's own, files are trusted if they belong to the user (or the system's administrator) and
//!   nobody else may write to them. The same holds for the folder itself.
//! - In a folder that the user has named, everyone whom the folder lets write is trusted: its owner and, if its group
//!   has write permission, that group. A world-writable folder is never trusted, even with the sticky bit.
//!
//! Files that are not regular are skipped, without blocking on them.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

/// Whose files are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trust {
    #[cfg(unix)]
    owner: u32,
    /// Group and others may write to files.
    #[cfg(unix)]
    group: bool,
    /// Modes of created files and folders.
    #[cfg(unix)]
    mode: u32,
}

#[cfg(unix)]
mod unix {
    use std::fs::OpenOptions;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};

    use super::*;

    const GROUP_WRITES: u32 = 0o020;
    const OTHERS_WRITE: u32 = 0o002;

    fn me() -> u32 {
        // SAFETY: the call takes nothing and cannot fail.
        unsafe { libc::geteuid() }
    }

    fn is_own(owner: u32) -> bool {
        owner == me() || owner == 0
    }

    impl Trust {
        /// In a folder that does not exist yet.
        pub(crate) fn new() -> Trust {
            Trust { owner: me(), group: false, mode: 0o700 }
        }

        /// In an existing folder. The error gives the reason why nothing there is trusted.
        pub(crate) fn of(folder: &Metadata, named: bool) -> Result<Trust, String> {
            let (owner, mode) = (folder.uid(), folder.mode() & 0o7777);
            if mode & OTHERS_WRITE != 0 {
                return Err(format!("everyone can write to it (mode {mode:o})"));
            }
            if !named && !is_own(owner) {
                return Err(format!("it belongs to another user (number {owner})"));
            }
            if !named && mode & GROUP_WRITES != 0 {
                return Err(format!("its group can write to it (mode {mode:o})"));
            }
            Ok(Trust { owner, group: mode & GROUP_WRITES != 0, mode })
        }

        fn allows(self, file: &Metadata) -> bool {
            let writers = file.mode() & (GROUP_WRITES | OTHERS_WRITE);
            let kept = if self.group { writers & OTHERS_WRITE == 0 } else { writers == 0 };
            kept && (self.group || is_own(file.uid()) || file.uid() == self.owner)
        }

        /// Opens a file for reading; `None` if it is not, and `Err` if it is not trusted.
        pub(crate) fn open(self, path: &Path) -> io::Result<Option<(File, Metadata)>> {
            let Some((file, about)) = open_regular(path)? else { return Ok(None) };
            if self.allows(&about) {
                return Ok(Some((file, about)));
            }
            Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("user number {}, mode {:o}", about.uid(), about.mode() & 0o7777),
            ))
        }

        /// The same trust for a folder within this one.
        pub(crate) fn make_folders(self, folder: &Path) -> io::Result<()> {
            let missing: Vec<_> = folder.ancestors().take_while(|f| !f.is_dir()).collect();
            for folder in missing.into_iter().rev() {
                let mut builder = std::fs::DirBuilder::new();
                builder.recursive(true).mode(self.mode & 0o777).create(folder)?;
                if self.group {
                    // The umask of the process has removed permissions that the group has here.
                    std::fs::set_permissions(folder, PermissionsExt::from_mode(self.mode))?;
                }
            }
            Ok(())
        }

        /// Makes a file that is not there.
        pub(crate) fn create(self, path: &Path) -> io::Result<File> {
            let mode = (self.mode & 0o666) | 0o600;
            let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
            if self.group {
                file.set_permissions(PermissionsExt::from_mode(mode))?;
            }
            Ok(file)
        }
    }

    /// Opens a regular file, not a link, without blocking on pipes and devices.
    pub(crate) fn open_regular(path: &Path) -> io::Result<Option<(File, Metadata)>> {
        let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NOCTTY;
        let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(path) else { return Ok(None) };
        let about = file.metadata()?;
        Ok(about.is_file().then_some((file, about)))
    }
}

#[cfg(unix)]
pub(crate) use unix::open_regular;

#[cfg(not(unix))]
mod elsewhere {
    use super::*;

    impl Trust {
        pub(crate) fn new() -> Trust {
            Trust {}
        }

        pub(crate) fn of(_: &Metadata, _named: bool) -> Result<Trust, String> {
            Ok(Trust {})
        }

        pub(crate) fn open(self, path: &Path) -> io::Result<Option<(File, Metadata)>> {
            open_regular(path)
        }

        pub(crate) fn make_folders(self, folder: &Path) -> io::Result<()> {
            std::fs::create_dir_all(folder)
        }

        pub(crate) fn create(self, path: &Path) -> io::Result<File> {
            std::fs::OpenOptions::new().write(true).create_new(true).open(path)
        }
    }

    pub(crate) fn open_regular(path: &Path) -> io::Result<Option<(File, Metadata)>> {
        if !std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file()) {
            return Ok(None);
        }
        let Ok(file) = File::open(path) else { return Ok(None) };
        let about = file.metadata()?;
        Ok(Some((file, about)))
    }
}

#[cfg(not(unix))]
pub(crate) use elsewhere::open_regular;
