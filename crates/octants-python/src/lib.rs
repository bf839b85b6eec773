//! The Python extension module `octants._octants`: the only crate that handles Python objects.
//!
//! Reading order: `back_ends`, [`program`] (init and reset), [`stream`], [`device`] (further devices),
//! [`device_group`], [`event`], [`captured_graph`], [`buffer`], [`host_work`] and [`ndarray`] (memory), [`level_tree`]
//! and [`placement`] (the layout of fields), [`func`], [`kernel`] and [`bound_kernel`] (what the decorators make),
//! [`autodiff_scope`], [`signature`] and [`annotation`] (a kernel's parameters), [`argument`], [`flattened`],
//! [`mod@array`], [`own_array`], [`plain_array`], [`foreign_array`], [`element_view`], [`dlpack`], [`exchange_table`],
//! [`scalar`] (a call's arguments), [`specialization`], [`guard`] and [`guard_group`] (a compiled kernel, how its slots
//! are filled, its assumptions), [`in_progress`], [`world`], [`classify`], [`source`] (the compiler's queries to
//! Python), [`result`], [`line_probes`] (kernel coverage), [`plain_python`] (kernels run as Python), [`kept_kernels`]
//! (the disk
//! cache), [`sparse_matrix`], [`device_sparse`], [`inspection`] (the code of kernels), [`profiler`], `recorder` (a
//! program on the recording driver, for tests), [`package`] (functions that the Python package registers), [`errors`],
//! [`names`].

mod annotation;
mod argument;
mod array;
mod array_view;
mod autodiff_scope;
mod back_ends;
mod bound_kernel;
mod buffer;
mod call_site;
mod captured_graph;
mod classify;
mod concurrency;
mod constant;
mod detached;
mod device;
mod device_group;
mod device_sparse;
mod device_work;
mod dlpack;
mod element_types;
mod element_view;
mod errors;
mod evaluate_annotations;
mod event;
mod exchange_table;
mod flattened;
mod foreign_array;
mod fork;
mod func;
mod gradient_order;
mod guard;
mod guard_group;
mod held;
mod host_memory;
mod host_step;
mod host_work;
mod in_progress;
mod inspection;
mod interpreter;
mod kept_kernels;
mod kernel;
mod launch_history;
mod level_tree;
mod line_probes;
mod names;
mod ndarray;
mod other_device;
mod own_array;
mod package;
mod placement;
mod plain_array;
mod plain_python;
mod profiler;
mod program;
mod program_functions;
mod races;
#[cfg(feature = "recording")]
mod recorder;
mod result;
mod scalar;
mod self_overlap;
mod signature;
mod source;
mod sparse_matrix;
mod specialization;
mod split_dispatch;
mod split_rows;
mod stream;
mod stream_methods;
mod trip_count_record;
mod vectorcall;
mod waiting;
mod watched;
mod world;

use pyo3::prelude::*;

// Nothing here is known to need the GIL, but nothing was tested without it.
#[pymodule(gil_used = true)]
fn _octants(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(package::register, m)?)?;
    m.add_class::<buffer::Buffer>()?;
    m.add_class::<captured_graph::CapturedGraph>()?;
    m.add_class::<level_tree::LevelTree>()?;
    m.add_class::<placement::Placement>()?;
    m.add_function(wrap_pyfunction!(placement::component_offsets, m)?)?;
    m.add_function(wrap_pyfunction!(placement::common_step, m)?)?;
    m.add_function(wrap_pyfunction!(placement::shared_axes, m)?)?;
    m.add_class::<ndarray::Ndarray>()?;
    m.add_class::<element_view::ElementView>()?;
    m.add_class::<sparse_matrix::HostMatrix>()?;
    m.add_class::<sparse_matrix::DirectSolver>()?;
    m.add_class::<device_sparse::DeviceProduct>()?;
    m.add_class::<device_sparse::DeviceSolver>()?;
    m.add_class::<func::Func>()?;
    m.add_class::<kernel::Kernel>()?;
    kernel::call_as_methods(m.py());
    m.add_class::<kernel::RecordedLaunch>()?;
    m.add_class::<gradient_order::GradientOrder>()?;
    m.add_class::<kernel::PreparedCall>()?;
    m.add_function(wrap_pyfunction!(kernel::last_task_count, m)?)?;
    m.add_class::<inspection::Inspection>()?;
    m.add_function(wrap_pyfunction!(inspection::code_targets, m)?)?;
    m.add_function(wrap_pyfunction!(back_ends::devices, m)?)?;
    m.add_function(wrap_pyfunction!(inspection::observe_compilations, m)?)?;
    m.add_class::<bound_kernel::BoundKernel>()?;
    m.add_class::<bound_kernel::KernelGradient>()?;
    m.add_function(wrap_pyfunction!(autodiff_scope::set_autodiff_scope, m)?)?;
    m.add_function(wrap_pyfunction!(autodiff_scope::in_autodiff_scope, m)?)?;
    m.add_class::<stream::Stream>()?;
    m.add_class::<event::Event>()?;
    m.add_class::<stream_methods::StreamScope>()?;
    m.add_class::<device::Device>()?;
    m.add_class::<device::ProgramScope>()?;
    m.add_function(wrap_pyfunction!(device::on_program, m)?)?;
    m.add_function(wrap_pyfunction!(device::current_device, m)?)?;
    m.add_function(wrap_pyfunction!(device::device_of, m)?)?;
    m.add_function(wrap_pyfunction!(device::open_device, m)?)?;
    m.add_function(wrap_pyfunction!(device_group::set_device_group, m)?)?;
    m.add_function(wrap_pyfunction!(device_group::device_group, m)?)?;
    m.add_function(wrap_pyfunction!(device_group::buffer_at, m)?)?;
    m.add_class::<device_group::PeerExchange>()?;
    m.add_function(wrap_pyfunction!(stream_methods::create_stream, m)?)?;
    m.add_function(wrap_pyfunction!(event::create_event, m)?)?;
    m.add_function(wrap_pyfunction!(stream_methods::stream_scope, m)?)?;
    m.add_function(wrap_pyfunction!(stream_methods::default_stream, m)?)?;
    m.add_function(wrap_pyfunction!(stream_methods::current_stream, m)?)?;
    m.add_function(wrap_pyfunction!(stream_methods::stream_pool_stats, m)?)?;
    m.add_function(wrap_pyfunction!(stream_methods::trim_stream_pool, m)?)?;
    m.add_function(wrap_pyfunction!(concurrency::request_concurrency, m)?)?;
    m.add_function(wrap_pyfunction!(concurrency::request_fusion, m)?)?;
    m.add_function(wrap_pyfunction!(concurrency::take_decisions, m)?)?;
    races::add_functions(m)?;
    m.add_function(wrap_pyfunction!(host_work::before_host_work, m)?)?;
    m.add_function(wrap_pyfunction!(host_work::queueing_stream, m)?)?;
    m.add_function(wrap_pyfunction!(device_sparse::missing_sparse_library, m)?)?;
    m.add_function(wrap_pyfunction!(device_work::default_stream_after, m)?)?;
    m.add_function(wrap_pyfunction!(device_work::end_host_work, m)?)?;
    m.add_function(wrap_pyfunction!(captured_graph::capturing, m)?)?;
    m.add_function(wrap_pyfunction!(captured_graph::uncaptured, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::init, m)?)?;
    m.add_function(wrap_pyfunction!(line_probes::probe_lines, m)?)?;
    m.add_function(wrap_pyfunction!(plain_python::run_as_python, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::reset, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::end_process, m)?)?;
    m.add_function(wrap_pyfunction!(fork::before_fork, m)?)?;
    m.add_function(wrap_pyfunction!(fork::after_fork_in_parent, m)?)?;
    m.add_function(wrap_pyfunction!(fork::after_fork_in_child, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::sync, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::is_initialized, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::generation, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::requested_arch, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::program_serial, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::program_serials, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::compiled_count, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::clock_hz, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::device_processor, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::subgroup_size, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::max_shared_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::config, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::set_option, m)?)?;
    m.add_function(wrap_pyfunction!(program_functions::options, m)?)?;
    m.add_function(wrap_pyfunction!(kept_kernels::cache_counts, m)?)?;
    m.add_function(wrap_pyfunction!(kept_kernels::cache_examine, m)?)?;
    m.add_function(wrap_pyfunction!(kept_kernels::cache_clear, m)?)?;
    m.add_function(wrap_pyfunction!(profiler::profiler_start, m)?)?;
    m.add_function(wrap_pyfunction!(profiler::profiler_stop, m)?)?;
    m.add_function(wrap_pyfunction!(profiler::profiler_spans, m)?)?;
    #[cfg(feature = "recording")]
    m.add_function(wrap_pyfunction!(recorder::record_calls, m)?)?;
    m.add_function(wrap_pyfunction!(profiler::profiler_totals, m)?)?;
    m.add_function(wrap_pyfunction!(profiler::profiler_clear, m)?)?;
    m.add_function(wrap_pyfunction!(profiler::compilations, m)?)?;
    m.add_function(wrap_pyfunction!(profiler::compile_phases, m)?)?;
    m.add_function(wrap_pyfunction!(profiler::clear_compilations, m)?)?;
    m.add_function(wrap_pyfunction!(profiler::memory_info, m)?)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
