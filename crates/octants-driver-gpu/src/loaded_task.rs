//! [`LoadedTask`]: a task of loaded code, ready to launch.

use std::sync::OnceLock;

use octants_artifact::{ParallelMeta, TaskMeta, WideForm};
use octants_runtime::{ErrorKind, Launch, Result};

use crate::context::{Context, Entered};
use crate::plan_grid::{GridPlan, Parameter, best_block, worthwhile_run};
use crate::symbols::{RawFunction, RawModule, RawStream, number};
use crate::vendor::GridShape;

/// A task with the data of its launches.
#[derive(Debug)]
pub struct LoadedTask {
    /// Its place among the kernel's tasks.
    pub number: u32,
    /// The kernel's number in [`crate::last_launches`].
    pub kernel: u32,
    /// Its code itself waits for the previous work (programmatic dependent launch).
    pub waits_itself: bool,
    /// Its code depends on the number of the launch.
    pub is_numbered: bool,
    /// As [`TaskMeta::is_short`].
    pub is_short: bool,
    /// As [`TaskMeta::depends_on`].
    pub depends_on: Option<Box<[u32]>>,
    kind: Kind,
    /// Bytes of local memory per thread: spilled registers. The driver reserves this for every thread that the device
    /// can hold.
    pub local_bytes: u32,
}

#[derive(Debug)]
enum Kind {
    /// One thread.
    Serial(RawFunction),
    Parallel(Box<Forms>),
}

/// The variants of a parallel task.
#[derive(Debug)]
struct Forms {
    meta: ParallelMeta,
    /// For any launch.
    narrow: Form,
    /// For launches in which a thread may run several iterations at a time.
    wide: Option<Wide>,
}

/// A variant that few launches may use.
#[derive(Debug)]
struct Wide {
    /// The variant and its own module, loaded at the first launch that it fits; `None` if loading failed.
    form: OnceLock<Option<(Form, Option<RawModule>)>>,
}

/// A function for a grid of threads, with its grids.
#[derive(Debug, Clone, Copy)]
struct Form {
    function: RawFunction,
    plan: GridPlan,
    /// Bytes of dynamic shared memory.
    block_bytes: u32,
}

/// The magic number of a binary for one chip. Text for the driver's assembler starts differently.
const BINARY: &[u8] = b"\x7fELF";

/// A module of a binary or of text.
pub(crate) fn load_code(calls: &Entered<'_>, code: &[u8]) -> std::result::Result<RawModule, String> {
    let text;
    let image = if code.starts_with(BINARY) {
        code
    } else {
        text = [code, b"\0"].concat();
        &text
    };
    // SAFETY: the image is whole, or text that ends with a zero.
    unsafe { calls.load_module(image) }
}

/// # Safety
/// The module is loaded.
pub(crate) unsafe fn load_task(
    context: &Context,
    calls: &Entered<'_>,
    module: RawModule,
    task: &TaskMeta,
    (number, kernel): (u32, u32),
    asserts: bool,
) -> Result<LoadedTask> {
    // SAFETY: the contract above.
    unsafe {
        let function = calls.function(module, &task.symbol)?;
        let local_bytes = calls.function_attribute(function, number::FUNCTION_LOCAL_SIZE_BYTES)?.max(0) as u32;
        let kind = match task.parallel.as_ref().filter(|p| !p.serialize) {
            None => Kind::Serial(function),
            Some(meta) => {
                let bytes = u32::try_from(task.block_bytes).unwrap_or(u32::MAX);
                if bytes > 0 {
                    calls.allow_block_memory(function, bytes)?;
                }
                let narrow = form(context, calls, (function, bytes), meta, 1)?;
                let wide = match &meta.wide {
                    Some(w) if w.code.is_empty() => {
                        let form = form(context, calls, (calls.function(module, &w.symbol)?, 0), meta, w.lanes)?;
                        Some(Wide { form: OnceLock::from(Some((form, None))) })
                    }
                    // Load now, because loading may wait for the device. Text that must still be assembled takes
                    // longer, and the variant may never be used.
                    Some(w) if w.code.starts_with(BINARY) => {
                        Some(Wide { form: OnceLock::from(load_wide(context, calls, w, meta).ok()) })
                    }
                    Some(_) => Some(Wide { form: OnceLock::new() }),
                    None => None,
                };
                Kind::Parallel(Box::new(Forms { meta: meta.clone(), narrow, wide }))
            }
        };
        let (waits_itself, is_numbered) = (task.waits_itself, task.draws_random || asserts);
        let is_short = task.is_short;
        let depends_on = task.depends_on.as_deref().map(Box::from);
        Ok(LoadedTask { number, kernel, waits_itself, is_numbered, is_short, depends_on, kind, local_bytes })
    }
}

/// # Safety
/// The function's module is loaded.
unsafe fn form(
    context: &Context,
    calls: &Entered<'_>,
    (function, block_bytes): (RawFunction, u32),
    meta: &ParallelMeta,
    lanes: u32,
) -> Result<Form> {
    // SAFETY: the contract above.
    unsafe {
        let most = calls.function_attribute(function, number::FUNCTION_MAX_THREADS_PER_BLOCK)?.max(1) as u32;
        // Any number of whole warps computes the correct result, so a block that exceeds the registers is reduced,
        // unless its threads cooperate.
        let asked = match meta.block_dim {
            Some(asked) if meta.cooperates && asked > most => {
                let message = format!(
                    "the loop needs blocks of {asked} cooperating threads, but this device supports at most \
                     {most} threads per block"
                );
                return Err(ErrorKind::Misuse { message }.into());
            }
            Some(asked) if meta.cooperates => Some(asked.max(1)),
            asked => asked.map(|asked| asked.max(1).next_multiple_of(context.warp).min(most)),
        };
        let fits = |block| calls.blocks_per_multiprocessor(function, block, block_bytes);
        let (block, resident) = match asked {
            Some(block) => (block, fits(block)?),
            None => best_block(most, context.warp, fits)?,
        };
        let plan = GridPlan {
            block,
            fixed: meta.block_dim.is_some(),
            resident,
            multiprocessors: context.multiprocessors,
            warp: context.warp,
            once: meta.block_sums,
            single: meta.cooperates,
            lanes,
            run: worthwhile_run(meta.cost_per_iteration, lanes),
        };
        Ok(Form { function, plan, block_bytes })
    }
}

/// Loads a variant with its own module.
#[cold]
fn load_wide(
    context: &Context,
    calls: &Entered<'_>,
    what: &WideForm,
    meta: &ParallelMeta,
) -> Result<(Form, Option<RawModule>)> {
    let module = load_code(calls, &what.code).map_err(|message| ErrorKind::Misuse { message })?;
    // SAFETY: the module was loaded above; where its function is missing nothing else uses it.
    unsafe {
        let form = calls.function(module, &what.symbol).and_then(|f| form(context, calls, (f, 0), meta, what.lanes));
        if form.is_err() {
            let _ = calls.unload_module(module);
        }
        Ok((form?, Some(module)))
    }
}

impl LoadedTask {
    /// The function and the grid for a launch with these argument slots; `None` if there are no iterations.
    #[inline]
    pub fn plan(&self, calls: &Entered<'_>, args: &[u64]) -> Option<(RawFunction, GridShape)> {
        let forms = match &self.kind {
            Kind::Serial(function) => return Some((*function, GridShape::ONE)),
            Kind::Parallel(forms) => forms,
        };
        // If the wide variant cannot be loaded, the narrow one computes the same.
        let wide = forms.wide.as_ref().and_then(|wide| {
            let what = forms.meta.wide_form(args)?;
            let load = || load_wide(calls.context(), &calls.context().enter_aside()?, what, &forms.meta);
            wide.form.get_or_init(|| load().ok()).as_ref()
        });
        let form = wide.map_or(&forms.narrow, |(form, _)| form);
        let (blocks, threads) = form.plan.plan(forms.meta.iterations(args))?;
        Some((form.function, GridShape { blocks, threads, block_bytes: form.block_bytes }))
    }

    /// As [`LoadedTask::plan`], for a node of a graph, which runs even without iterations; `None` if that would be
    /// wrong.
    pub fn plan_node(&self, calls: &Entered<'_>, args: &[u64]) -> Option<(RawFunction, GridShape)> {
        self.plan(calls, args).or_else(|| match &self.kind {
            // Without iterations any grid is right, unless threads cooperate: these rely on their grid.
            Kind::Parallel(forms) if !forms.meta.cooperates => {
                let Form { function, plan, block_bytes } = forms.narrow;
                Some((function, GridShape { blocks: 1, threads: plan.warp.min(plan.block), block_bytes }))
            }
            _ => None,
        })
    }

    /// The parameter of its code, with a [`DeviceContext::of_loop`]. Contains the launch's number only if the code
    /// depends on it, because a graph must update it.
    ///
    /// [`DeviceContext::of_loop`]: octants_artifact::DeviceContext::of_loop
    #[inline]
    pub fn parameter(&self, launch: &Launch<'_>, of_loop: u64) -> Parameter {
        Parameter::new(launch, self.number, if self.is_numbered { launch.number } else { 0 }, of_loop)
    }

    /// The number of iterations of a launch with these argument slots, 1 for a serial task; `None` if it is unknown.
    pub fn iterations(&self, args: &[u64]) -> Option<u64> {
        match &self.kind {
            Kind::Serial(_) => Some(1),
            Kind::Parallel(forms) => forms.meta.iterations(args),
        }
    }

    /// Maximum number of resident threads on the device; `None` for a serial task.
    pub fn max_resident_threads(&self) -> Option<u64> {
        match &self.kind {
            Kind::Serial(_) => None,
            Kind::Parallel(forms) => Some(forms.narrow.plan.max_resident_threads()),
        }
    }

    /// Queues the task.
    ///
    /// # Safety
    /// The module is loaded, the stream alive, and `launch` holds what the code expects.
    #[inline]
    pub unsafe fn launch(&self, calls: &Entered<'_>, stream: RawStream, launch: &Launch<'_>) -> Result<()> {
        let Some((function, shape)) = self.plan(calls, launch.args) else { return Ok(()) };
        let mut parameter = self.parameter(launch, launch.guard.0);
        // SAFETY: the contract above; the driver copies the parameter before it returns.
        unsafe { calls.launch(function, shape, stream, parameter.address(), self.kernel) }
    }

    /// As [`LoadedTask::launch`], for a task that waits itself: its blocks may start before the previous work ends.
    ///
    /// # Safety
    /// As there. Nobody captures the stream.
    pub unsafe fn launch_early(&self, calls: &Entered<'_>, stream: RawStream, launch: &Launch<'_>) -> Result<()> {
        let Some((function, shape)) = self.plan(calls, launch.args) else { return Ok(()) };
        let mut parameter = self.parameter(launch, launch.guard.0);
        // SAFETY: the contract above; the driver copies the parameter before it returns.
        unsafe { calls.launch_early(function, shape, stream, parameter.address(), self.kernel) }
    }

    /// Unloads modules that were loaded for this task only.
    ///
    /// # Safety
    /// No launch of it is queued or running.
    pub(crate) unsafe fn unload(&self, calls: &Entered<'_>) {
        if let Kind::Parallel(forms) = &self.kind
            && let Some(wide) = &forms.wide
            && let Some(Some((_, Some(module)))) = wide.form.get()
        {
            // SAFETY: the contract above. At process exit, it may be unloaded already.
            let _ = unsafe { calls.unload_module(*module) };
        }
    }
}
