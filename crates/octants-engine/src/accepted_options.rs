//! Options of Quadrants that have no effect here. Programs may set them and read them back.

use std::collections::BTreeMap;

use crate::option_values::OptionValue;

/// The values that a program gave to options that steer nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct AcceptedOptions(BTreeMap<&'static str, OptionValue>);

impl AcceptedOptions {
    /// Stores a value; returns false if there is no such option.
    pub(crate) fn set(&mut self, name: &str, value: &OptionValue) -> bool {
        let Some((name, _)) = TABLE.iter().find(|(known, _)| *known == name) else { return false };
        if *value != OptionValue::None {
            self.0.insert(name, value.clone());
        }
        true
    }

    /// The value given, or the default that programs expect.
    pub(crate) fn get(&self, name: &str) -> Option<OptionValue> {
        let (name, default) = TABLE.iter().find(|(known, _)| *known == name)?;
        Some(self.0.get(name).cloned().unwrap_or_else(|| default.to_value()))
    }
}

/// The names of these options.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

enum Default {
    Flag(bool),
    Int(i64),
    Float(f64),
    Text(&'static str),
}
use Default::{Flag, Float, Int, Text};

impl Default {
    fn to_value(&self) -> OptionValue {
        match *self {
            Flag(b) => OptionValue::Bool(b),
            Int(i) => OptionValue::Int(i),
            Float(x) => OptionValue::Float(x),
            Text(s) => OptionValue::Str(s.to_string()),
        }
    }
}

const TABLE: &[(&str, Default)] = &[
    ("ad_stack_experimental_enabled", Flag(false)),
    ("ad_stack_size", Int(0)),
    ("ad_stack_sparse_threshold_bytes", Int(100 << 20)),
    ("advanced_optimization", Flag(true)),
    ("auto_mesh_local_default_occupacy", Int(4)),
    ("cache_loop_invariant_global_vars", Flag(true)),
    ("cfg_optimization", Flag(true)),
    ("cuda_stack_limit", Int(0)),
    ("default_cpu_block_dim", Int(32)),
    ("default_gpu_block_dim", Int(128)),
    ("default_up", Text("u32")),
    ("demote_dense_struct_fors", Flag(true)),
    ("demote_no_access_mesh_fors", Flag(true)),
    ("detect_read_only", Flag(true)),
    ("device_memory_GB", Float(1.0)),
    ("device_memory_fraction", Float(0.0)),
    ("experimental_auto_mesh_local", Flag(false)),
    ("external_metal_command_queue", Int(0)),
    ("external_metal_command_queue_is_torch_queue", Flag(false)),
    ("flatten_if", Flag(false)),
    ("force_scalarize_matrix", Flag(false)),
    ("gdb_trigger", Flag(false)),
    ("half2_vectorization", Flag(false)),
    ("make_block_local", Flag(true)),
    ("make_cpu_multithreading_loop", Flag(true)),
    ("make_mesh_block_local", Flag(true)),
    ("make_thread_local", Flag(true)),
    ("max_block_dim", Int(1024)),
    ("mesh_localize_all_attr_mappings", Flag(false)),
    ("mesh_localize_from_end_mapping", Flag(false)),
    ("mesh_localize_to_end_mapping", Flag(true)),
    ("move_loop_invariant_outside_if", Flag(false)),
    ("optimize_mesh_reordered_mapping", Flag(true)),
    ("print_accessor_ir", Flag(false)),
    ("print_ir_dbg_info", Flag(false)),
    ("print_preprocessed_ir", Flag(false)),
    ("print_struct_llvm_ir", Flag(false)),
    ("quant_opt_atomic_demotion", Flag(true)),
    ("quant_opt_store_fusion", Flag(true)),
    ("real_matrix_scalarize", Flag(true)),
    ("saturating_grid_dim", Int(0)),
    ("src_ll_cache", Flag(true)),
    ("timeline", Flag(false)),
    ("vk_api_version", Text("")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_values_are_read_back_and_names_are_sorted() {
        let mut options = AcceptedOptions::default();
        assert_eq!(options.get("flatten_if"), Some(OptionValue::Bool(false)));
        assert!(options.set("flatten_if", &OptionValue::Bool(true)) && !options.set("flatten", &OptionValue::None));
        assert_eq!(options.get("flatten_if"), Some(OptionValue::Bool(true)));
        assert!(names().is_sorted());
    }
}
