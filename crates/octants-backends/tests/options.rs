//! Options of a session whose `arch` names this build's back ends.

#![allow(clippy::unwrap_used)]

use octants_backends::backends;
use octants_engine::config::OPTIONS;
use octants_engine::{Config, OptionValue};

fn config() -> Config {
    Config::new(backends())
}

/// Why an option rejects a text.
fn refusal(name: &str, value: &str) -> String {
    config().set(name, &OptionValue::Str(value.into())).expect_err("no such value").to_string()
}

#[test]
fn every_option_of_the_table_can_be_read_back_and_set() {
    let mut config = config();
    for option in OPTIONS {
        let value = config.get(option.name).unwrap_or_else(|| panic!("{} cannot be read", option.name));
        config.set(option.name, &value).unwrap_or_else(|e| panic!("{}: {e}", option.name));
        assert_eq!(config.get(option.name), Some(value), "{}", option.name);
    }
}

#[test]
fn unknown_options_are_refused_with_the_near_miss() {
    let e = config().set("fastmath", &OptionValue::Bool(true)).expect_err("unknown");
    assert!(e.to_string().contains("did you mean `fast_math`"), "{e}");
}

#[test]
fn values_are_checked() {
    let mut config = config();
    assert!(config.set("default_fp", &OptionValue::Str("i32".into())).is_err());
    assert!(config.set("opt_level", &OptionValue::Int(9)).is_err());
    assert!(config.set("debug", &OptionValue::Str("maybe".into())).is_err());
    assert!(config.set("offline_cache_cleaning_factor", &OptionValue::Float(1.5)).is_err());
    assert!(config.set("offline_cache_cleaning_policy", &OptionValue::Str("mru".into())).is_err());
}

#[test]
fn arch_names_match_the_back_ends() {
    let all = "cpu, x64, arm64, gpu, cuda, amdgpu, vulkan, metal";
    assert_eq!(refusal("arch", "cdua"), format!("option `arch`: `cdua` is not one of {all} (did you mean `cuda`?)"));
    for name in all.split(", ") {
        let mut config = config();
        config.set("arch", &OptionValue::Str(name.to_uppercase())).unwrap();
        let expected = if ["x64", "arm64"].contains(&name) { "cpu" } else { name };
        assert_eq!(config.arch.name(), expected);
    }
}
