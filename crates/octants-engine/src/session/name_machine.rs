//! The names that users give to a [`Machine`].

use std::path::PathBuf;

use octants_ir::DeviceLibrary;

use super::Session;
use crate::backend::Backend;
use crate::config::{Arch, given_path};
use crate::error::Error;
use crate::machine::{Machine, not_one_of};
use crate::suggest::nearest;

fn bad_target(reason: String) -> Error {
    Error::BadOption { name: "target".into(), reason }
}

impl Session {
    /// The machine that a user names by its kind, its chip, or both; this session's own by default. In `packages`,
    /// folders of installed packages, vendors' libraries are looked for.
    pub fn machine(&self, arch: Option<&str>, target: Option<&str>, packages: &[PathBuf]) -> Result<Machine, Error> {
        let backends = self.config().backends;
        let kind = match arch {
            None => None,
            Some(name) => match backends.named(name) {
                None => return Err(not_one_of("arch", name, backends.names())),
                Some(backend) => Some((name, backend)),
            },
        };
        let Some(target) = target else {
            return match kind {
                None => Ok(self.machine.clone()),
                // The name of the host's kind alone denotes the host, regardless of the session's device.
                Some((_, b)) if !backends.is_host(b) && b.name() == self.config().arch.name() => {
                    Ok(self.machine.clone())
                }
                Some((name, backend)) => self.find_target((name, backend), backend.usual_target(name), packages),
            };
        };
        let Some(told) = backends.entries.iter().copied().find(|b| b.claims(target)) else {
            return Err(self.unknown_target(target, kind.map(|(_, backend)| backend.name())));
        };
        match kind {
            Some((name, backend)) if backend.name() != told.name() => Err(not_of_kind(target, name)),
            Some(named) => self.find_target(named, target, packages),
            None => self.find_target((told.name(), told), target, packages),
        }
    }

    /// A machine of the kind that a back end's name refers to.
    fn find_target(
        &self,
        (arch, backend): (&str, &'static dyn Backend),
        name: &str,
        packages: &[PathBuf],
    ) -> Result<Machine, Error> {
        match backend.target(arch, name) {
            Some(target) => Ok(Machine { backend, target, library: self.library_of(backend, packages) }),
            None if backend.target(backend.name(), name).is_some() => Err(not_of_kind(name, arch)),
            None => Err(self.unknown_target(name, Some(backend.name()))),
        }
    }

    /// The library of math functions that the user names, unless for devices of another kind, or the one found.
    fn library_of(&self, backend: &dyn Backend, packages: &[PathBuf]) -> DeviceLibrary {
        let config = self.config();
        if config.backends.is_host(backend) {
            return DeviceLibrary::default();
        }
        let is_meant = config.arch == Arch::CPU || config.arch.name() == backend.name();
        let given = given_path(&config.device_library).filter(|_| is_meant);
        DeviceLibrary { path: given.or_else(|| backend.find_device_library(packages)) }
    }

    /// The error for an unknown target, with the known ones; those of one kind if the user named it.
    fn unknown_target(&self, target: &str, kind: Option<&str>) -> Error {
        let of_kind = |b: &&&'static dyn Backend| kind.is_none_or(|kind| kind == b.name());
        let entries = self.config().backends.entries.iter().filter(of_kind);
        let kinds: Vec<(&dyn Backend, Vec<String>)> = entries.map(|b| (*b, b.targets())).collect();
        let names = kinds.iter().flat_map(|(_, names)| names.iter().map(String::as_str));
        let hint = nearest(target, names).map_or_else(String::new, |s| format!(" (did you mean `{s}`?)"));
        let list = |(backend, names): &(&dyn Backend, Vec<String>)| {
            // The generic ones among hundreds of processors.
            let is_shown = |n: &&str| kind.is_some() || backend.is_listed(n);
            let (shown, others): (Vec<&str>, Vec<&str>) = names.iter().map(String::as_str).partition(is_shown);
            let rest = if others.is_empty() { String::new() } else { format!(", and {} by name", others.len()) };
            format!("\n  {}: {}{rest}", backend.name(), shown.join(", "))
        };
        let lists: String = kinds.iter().map(list).collect();
        let all = "`python -m octants.inspect --list` prints all";
        bad_target(format!("`{target}` is not a supported target{hint}. Supported ({all}):{lists}"))
    }
}

fn not_of_kind(target: &str, arch: &str) -> Error {
    bad_target(format!("`{target}` is not a chip of arch `{arch}`"))
}
