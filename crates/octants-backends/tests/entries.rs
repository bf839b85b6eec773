//! Invariants of each entry of the table of back ends.

#![allow(clippy::unwrap_used)]

use octants_artifact::CodeTarget;
use octants_backends::backends;
use octants_engine::config::Arch;

#[test]
fn names_are_unique_and_the_host_entry_is_first() {
    let entries = backends().entries;
    assert_eq!(entries[0].name(), Arch::CPU.name());
    let mut names: Vec<&str> = entries.iter().flat_map(|b| b.names()).copied().collect();
    names.extend(backends().unsupported);
    names.push(Arch::GPU.name());
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}

#[test]
fn every_name_has_a_default_target() {
    for backend in backends().entries {
        for arch in backend.names() {
            let usual = backend.usual_target(arch);
            assert!(backend.target(arch, usual).is_some(), "{arch}: {usual}");
        }
    }
}

#[test]
fn every_target_has_one_kind_and_code() {
    for (i, backend) in backends().entries.iter().enumerate() {
        let targets = backend.targets();
        assert!(targets.iter().any(|name| backend.is_listed(name)), "{}", backend.name());
        for name in targets {
            let claims = |i: usize| backends().entries[i].claims(&name);
            let kinds: Vec<usize> = (0..backends().entries.len()).filter(|i| claims(*i)).collect();
            assert_eq!(kinds, [i], "{name}");
            let target = backend.target(backend.name(), &name).unwrap_or_else(|| panic!("{name}"));
            backend.code_generator().check_target(&target).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}

#[test]
fn code_formats_have_file_suffixes() {
    let ending = |backend: usize, form: &str, target: &str| {
        let backend = backends().entries[backend];
        let form = backend.code_generator().forms().iter().find(|f| f.name == form).unwrap();
        backend.file_ending(&backend.target(backend.name(), target).unwrap(), *form)
    };
    assert_eq!(["llvm", "asm", "object"].map(|form| ending(0, form, "cpu")), ["ll", "s", "o"]);
    assert_eq!(["llvm", "asm", "object"].map(|form| ending(1, form, "sm_90")), ["ll", "ptx", "ptx"]);
    assert_eq!(["llvm", "asm", "object"].map(|form| ending(2, form, "gfx90a")), ["ll", "s", "hsaco"]);
}

#[test]
fn the_identity_of_host_code_names_the_processor() {
    let generator = backends().entries[0].code_generator();
    let host = generator.identity(&CodeTarget::Host).unwrap();
    let other = CodeTarget::Device { triple: "t".into(), cpu: "c".into(), features: String::new() };
    let elsewhere = generator.identity(&other).unwrap();
    assert!(host.starts_with(&elsewhere) && host.len() > elsewhere.len(), "{host}: {elsewhere}");
}
