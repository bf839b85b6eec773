//! Fuses repeated launches: makes one kernel of those of several launches, for the runtime, which chooses them
//! ([`octants_runtime::Fuser`]).
//!
//! `map_arguments` determines which arguments of the launches are the same memory or number. The loops themselves are
//! fused by octants-passes.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use octants_diag::{SourceFile, Sources};
use octants_frontend::Lowered;
use octants_ir::{ArgLayout, Kernel, run_pipeline};
use octants_passes::fuse_kernels::{FusedKernel, FusionPart, FusionPlan, Iterations, fuse_kernels, iterations_of};
use octants_passes::{PIPELINE, offload};
use octants_runtime::{FusedLaunch, Fuser, FusionRequest, nesting};

use super::build::{Executable, Launching, STACK};
use super::map_arguments::{Arguments, evaluate, map_arguments};
use super::{Lowering, Session};
use crate::compile_times::Stopwatch;

/// A kernel as fusion needs it.
pub(super) struct FusionSource {
    lowered: Lowered,
    arrays_may_alias: bool,
    pub(super) layout: ArgLayout,
    prepared: OnceLock<Result<Prepared, String>>,
}

/// A kernel after the pipeline.
pub(super) struct Prepared {
    pub(super) kernel: Kernel,
    iterations: Iterations,
}

/// What a session knows about fusion.
#[derive(Default)]
pub(super) struct Fusions {
    /// Some thread has enabled fusion.
    enabled: AtomicBool,
    /// The compiled kernels.
    made: Mutex<HashMap<FusionKey, Arc<FusedCode>>>,
}

/// Identifies a fused kernel: its parts, and which arguments are the same.
#[derive(PartialEq, Eq, Hash)]
struct FusionKey {
    parts: Vec<usize>,
    arguments: Vec<Vec<u32>>,
    temporaries: Vec<u32>,
    options: (bool, u8),
}

struct FusedCode {
    /// Keep their addresses, which are in the key.
    _parts: Vec<Arc<FusionSource>>,
    code: Executable,
    removed: Vec<usize>,
}

/// Launches to fuse, with their arguments.
struct Fusing {
    sources: Vec<Arc<FusionSource>>,
    arguments: Arguments,
}

impl Session {
    /// Must be called before a thread enables fusion ([`nesting::set_fusion`]): kernels that are compiled from now on
    /// can be fused.
    pub fn prepare_fusion(&self) {
        self.fusions.enabled.store(true, Ordering::Release);
    }

    /// Whether kernels keep what fusion needs.
    pub(super) fn keeps_fusion_sources(&self) -> bool {
        self.config().fuses_launches() || self.fusions.enabled.load(Ordering::Acquire)
    }

    /// What fusion needs to know about a kernel, if it may be fused.
    pub(super) fn fusion_source(
        &self,
        lowering: &Lowering,
        code: &Executable,
        arrays_may_alias: bool,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        let lowered = &lowering.lowered;
        let is_plain = matches!(code.launching, Launching::Plain) && code.watched.is_none() && !lowering.result_only;
        let is_simple = lowered.split_arrays.is_empty() && lowered.kernel.shadow_buffers.is_empty();
        (self.keeps_fusion_sources() && is_plain && is_simple).then(|| {
            let (lowered, layout) = (lowered.clone(), code.layout.clone());
            Arc::new(FusionSource { lowered, arrays_may_alias, layout, prepared: OnceLock::new() }) as _
        })
    }

    fn prepare<'a>(&self, source: &'a FusionSource) -> Result<&'a Prepared, String> {
        let make = || {
            let mut kernel = source.lowered.kernel.clone();
            if source.lowered.keeps_packed {
                source.lowered.packed_fields.expand(&mut kernel);
            }
            let asked = (source.arrays_may_alias, self.launches_concurrently(), false);
            let mut options = self.pass_options(&source.lowered, asked, &self.target_info());
            run_pipeline(PIPELINE, &mut kernel, &mut options);
            let iterations = iterations_of(&kernel).map_err(|why| format!("`{}`: {why}", kernel.name))?;
            Ok(Prepared { kernel, iterations })
        };
        source.prepared.get_or_init(make).as_ref().map_err(String::clone)
    }

    /// The launches and their arguments, if all loops have the same iterations.
    fn begin_fusion(&self, request: &FusionRequest<'_>) -> Result<Fusing, String> {
        let source_of = |kernel: &octants_runtime::LoadedKernel| {
            let source = kernel.source().cloned().and_then(|s| s.downcast::<FusionSource>().ok());
            let name = kernel.name();
            source.ok_or_else(|| format!("`{name}` was compiled before fusion was enabled, or cannot be fused"))
        };
        let sources = request.launches.iter().map(|l| source_of(l.kernel)).collect::<Result<Vec<_>, _>>()?;
        let mut all = Vec::new();
        for (source, launch) in sources.iter().zip(&request.launches) {
            let prepared = self.prepare(source)?;
            for l in &prepared.iterations {
                all.push(evaluate(l, (&prepared.kernel, &source.layout), launch.args)?);
            }
        }
        if all.len() < 2 {
            return Err("it is a single loop".into());
        }
        if all.iter().any(|iterations| *iterations != all[0]) {
            return Err("the loops have different iterations".into());
        }
        let parts: Vec<(&Kernel, &ArgLayout)> = sources
            .iter()
            .map(|source| Ok((&self.prepare(source)?.kernel, &source.layout)))
            .collect::<Result<_, String>>()?;
        let arguments = map_arguments(&parts, request)?;
        Ok(Fusing { sources, arguments })
    }

    fn fuse_ir(&self, fusing: &Fusing) -> Result<FusedKernel, String> {
        let Fusing { sources, arguments } = fusing;
        let (mut parts, mut all) = (Vec::new(), Sources::default());
        for (source, (buffers, params)) in sources.iter().zip(&arguments.maps) {
            let kernel = &self.prepare(source)?.kernel;
            let files = files_of(&source.lowered.sources).map(|file| all.add(file)).collect();
            parts.push(FusionPart { kernel, buffers: buffers.clone(), params: params.clone(), files });
        }
        let plan = FusionPlan {
            parts,
            buffers: arguments.buffers.clone(),
            roots: arguments.roots.len() as u32,
            params: arguments.params.clone(),
            temporaries: arguments.temporaries.clone(),
            fast_math: self.config().fast_math,
            vectorizes: !self.target_info().has_grid,
        };
        stacker::grow(STACK, || fuse_kernels(&plan))
    }

    fn fused_code(&self, fusing: &Fusing) -> Result<Arc<FusedCode>, String> {
        let key = self.fusion_key(fusing);
        let made = || self.fusions.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = made().get(&key) {
            return Ok(known.clone());
        }
        let fused = self.fuse_ir(fusing)?;
        let mut watch = Stopwatch::default();
        let mut sources = Sources::default();
        for file in fusing.sources.iter().flat_map(|source| files_of(&source.lowered.sources)) {
            sources.add(file);
        }
        let own = fusing.sources[0].lowered.clone();
        let program = offload(fused.kernel.clone());
        let lowered = Lowered { kernel: fused.kernel, sources, ..own };
        let generate = || self.generate(&lowered, (program, None, false), false, &mut watch);
        let code = stacker::grow(STACK, generate).map_err(|e| e.to_string())?;
        self.compilations.add(code.name(), code.was_kept, watch);
        let removed = fused.removed.iter().map(|b| b.index()).collect();
        let code = Arc::new(FusedCode { _parts: fusing.sources.clone(), code, removed });
        made().insert(key, code.clone());
        Ok(code)
    }

    fn fusion_key(&self, fusing: &Fusing) -> FusionKey {
        let number = |source: &Arc<FusionSource>| Arc::as_ptr(source) as usize;
        let map = |(buffers, params): &(Vec<octants_ir::BufferId>, Vec<u32>)| {
            buffers.iter().map(|b| b.0).chain([u32::MAX]).chain(params.iter().copied()).collect()
        };
        FusionKey {
            parts: fusing.sources.iter().map(number).collect(),
            arguments: fusing.arguments.maps.iter().map(map).collect(),
            temporaries: fusing.arguments.temporaries.iter().map(|b| b.0).collect(),
            options: (self.config().fast_math, self.config().opt_level),
        }
    }
}

/// The source files of a kernel, in order.
fn files_of(sources: &Sources) -> impl Iterator<Item = Arc<SourceFile>> + '_ {
    (0..).map_while(|n| sources.get(n).cloned())
}

impl Fuser for Session {
    fn is_on(&self) -> bool {
        nesting::fuses() || self.config().fuses_launches()
    }

    fn check(&self, request: &FusionRequest<'_>) -> Result<(), String> {
        self.fuse_ir(&self.begin_fusion(request)?).map(|_| ())
    }

    fn fuse(&self, request: &FusionRequest<'_>) -> Result<FusedLaunch, String> {
        let fusing = self.begin_fusion(request)?;
        let made = self.fused_code(&fusing)?;
        let args = fusing.arguments.slots(&made.code.layout, &made.removed);
        let name = |b: &usize| fusing.arguments.buffers[*b].name.clone();
        let removed = made.removed.iter().map(name).collect();
        Ok(FusedLaunch { kernel: made.code.kernel.clone(), args: args.into(), removed })
    }
}
