//! [`Session`]: one device, one configuration, and the way of a kernel from its source to code that runs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use octants_artifact::{Artifact, CodeTarget, Key, StoreCounts};
use octants_codegen_llvm::{CodegenOptions, DeviceLibrary, compile};
use octants_diag::{Code, Diagnostic, Span};
use octants_driver_host::{HostConfig, HostDriver};
use octants_frontend::{ArgSpec, Lowered, Obj, Options, World};
use octants_ir::{ArgLayout, AutodiffMode, Layout, Op, Program, Type};
use octants_passes::{
    Alias, Kept, PassOptions, StoreNeed, differentiate, find_overlaps, may_tally_loops, offload, run_pipeline,
    run_pipeline_with, tally_loops, validate_reads,
};
use octants_runtime::{
    Buffer, Caller, Device, DeviceConfig, DeviceError, Driver, ErrorKind, HostArray, LoadedKernel, Patient, Pointer,
    Results, Stream, TextSink,
};

use crate::artifact_cache::{ArtifactCache, Ingredients, open_store};
use crate::compile_times::{Compilation, CompileLog, Phase, Stopwatch};
use crate::config::{Arch, Config};
use crate::error::{CompileError, Error};
use crate::gradient_store::{GradientStore, Lanes};
use crate::open_gpu::open_gpu;
use crate::trace::{Binding, Recalled, Request, Search, keep, outcome, search};

/// A device with the options that programs on it are compiled under.
pub struct Session {
    config: Config,
    notices: Mutex<Vec<String>>,
    device: Device,
    /// What its code is made for.
    pub(crate) target: CodeTarget,
    pub(crate) library: DeviceLibrary,
    /// Compiled kernels on disk.
    cache: Option<ArtifactCache>,
    compilations: CompileLog,
    lowered: AtomicU64,
    recalled: AtomicU64,
}

/// How kernels came to their code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FrontEndCounts {
    /// Their sources were parsed and lowered.
    pub lowered: u64,
    /// What an earlier process had asked was asked again, and no source was parsed.
    pub recalled: u64,
}

/// A kernel after the front end: what [`Session::build`] takes. Of the outside's objects it holds numbers alone, so it may
/// cross threads.
pub struct Lowering {
    /// What the front end made.
    pub lowered: Lowered,
    /// What the code keeps in memory of the launch, if it is a gradient.
    pub store: Option<StoreNeed>,
    watch: Stopwatch,
}

impl Lowering {
    /// Of a kernel that was lowered elsewhere.
    pub fn new(lowered: Lowered) -> Lowering {
        Lowering { lowered, store: None, watch: Stopwatch::default() }
    }

    /// The length of some loop may come from memory, so that it may change before the kernel's gradient runs.
    pub fn may_tally_loops(&self) -> bool {
        may_tally_loops(&self.lowered.kernel)
    }

    /// What the code keeps in memory of the launch, a line of comment each.
    pub fn kept(&self) -> String {
        let line = |k: &Kept| {
            let place = self.lowered.sources.location(k.span);
            format!("; keeps `{}` of the loop at {place}: {} bytes for each iteration\n", k.name, k.bytes)
        };
        self.store.iter().flat_map(|s| &s.kept).map(line).collect()
    }

    /// The kernel has `stream_parallel` groups.
    pub fn has_groups(&self) -> bool {
        group_loops(&self.lowered).next().is_some()
    }

    /// Makes of the kernel what a mode asks for; `warn` is told what the user should look at.
    pub fn differentiate(&mut self, mode: AutodiffMode, warn: &mut dyn FnMut(Diagnostic)) -> Result<(), CompileError> {
        if mode == AutodiffMode::Validation {
            validate_reads(&mut self.lowered.kernel, &self.lowered.sources);
            return Ok(());
        }
        if mode == AutodiffMode::Trips {
            tally_loops(&mut self.lowered.kernel, &self.lowered.sources);
            self.lowered.returns.clear();
            self.watch.lap(Phase::Passes, "tally loops");
            return Ok(());
        }
        match differentiate(&mut self.lowered.kernel, mode, warn) {
            Ok(store) => self.store = store,
            Err(errors) => return Err(CompileError::User(errors, self.lowered.sources.clone())),
        }
        if mode == AutodiffMode::Reverse {
            self.lowered.returns.clear();
        }
        if mode != AutodiffMode::None {
            self.watch.lap(Phase::Passes, "differentiate");
        }
        Ok(())
    }

    /// The error of a kernel that is to be one graph and has `stream_parallel` groups.
    pub fn refuse_groups(&self) -> Result<(), CompileError> {
        let Some((_, span)) = group_loops(&self.lowered).next() else { return Ok(()) };
        let message = "qd.stream_parallel() is not compatible with graph=True kernels";
        let diagnostic = Diagnostic::new(Code::Syntax, span, message).with_hint("leave out `graph=True`");
        Err(CompileError::User(vec![*diagnostic], self.lowered.sources.clone()))
    }
}

/// Code ready to be launched.
pub struct Executable {
    /// Where each argument goes.
    pub layout: ArgLayout,
    /// Type of the result; a struct for several.
    pub ret: Type,
    kernel: LoadedKernel,
    store: Option<GradientStore>,
    /// What its code is kept under.
    pub(crate) key: Option<Key>,
    pub(crate) pointers: Vec<Pointer>,
}

impl Executable {
    /// The kernel's name.
    pub fn name(&self) -> &str {
        self.kernel.name()
    }

    /// Whether some task writes to the buffer of this index.
    pub fn writes_buffer(&self, index: u32) -> bool {
        self.kernel.meta().tasks.iter().any(|t| t.writes.contains(&index))
    }
}

impl Session {
    /// Opens the device that `config` asks for, or the CPU where it is not available and fallback is allowed. Printed text
    /// goes to `sink`. In `packages`, folders of installed packages, a device's own libraries are looked for.
    pub fn new(mut config: Config, sink: TextSink, packages: &[PathBuf]) -> Result<Session, Error> {
        let mut notices = Vec::new();
        match config.arch {
            Arch::Cpu => {}
            Arch::Gpu | Arch::Cuda | Arch::Amdgpu => match open_gpu(&config, packages) {
                Ok((arch, driver, library)) => {
                    config.arch = arch;
                    return Session::over(driver, config, notices, sink, library);
                }
                Err(reason) => fall_back(&mut config, &mut notices, &reason)?,
            },
            Arch::Other(_) => fall_back(&mut config, &mut notices, "this build does not drive it")?,
        }
        // A device with memory of its own works asynchronously.
        config.cpu_streams |= config.cpu_separate_memory;
        let max_threads = Some(config.cpu_max_num_threads).filter(|n| *n > 0);
        let (streams, schedule) = (config.cpu_streams, config.schedule_seed());
        let separate_memory = config.cpu_separate_memory;
        let driver = HostDriver::new(HostConfig { max_threads, streams, schedule, separate_memory });
        Session::over(driver, config, notices, sink, DeviceLibrary::default())
    }

    /// A session on a driver that the caller has opened, whatever device `config` asks for.
    pub fn on(driver: impl Driver, config: Config, sink: TextSink) -> Result<Session, Error> {
        Session::over(driver, config, Vec::new(), sink, DeviceLibrary::default())
    }

    fn over(
        driver: impl Driver,
        config: Config,
        mut notices: Vec<String>,
        sink: TextSink,
        library: DeviceLibrary,
    ) -> Result<Session, Error> {
        let target = driver.code_target();
        let device = Device::new(driver, DeviceConfig { seed: config.random_seed, sink });
        if config.kernel_profiler {
            device.profiler().start()?;
        }
        let store = open_store(&config).unwrap_or_else(|reason| {
            notices.push(reason);
            None
        });
        let cache = store.map(ArtifactCache::new);
        let (notices, compilations) = (Mutex::new(notices), CompileLog::default());
        let (lowered, recalled) = Default::default();
        Ok(Session { config, notices, device, target, library, cache, compilations, lowered, recalled })
    }

    /// What was compiled so far, in the order in which it was done.
    pub fn compilations(&self) -> Vec<Compilation> {
        self.compilations.all()
    }

    /// Begins anew to keep what is compiled.
    pub fn clear_compilations(&self) {
        self.compilations.clear();
    }

    /// The options in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The processor that code is made for, as LLVM calls it; `None` for the host's own.
    pub fn processor(&self) -> Option<&str> {
        match &self.target {
            CodeTarget::Host => None,
            CodeTarget::Device { cpu, .. } => Some(cpu),
        }
    }

    /// What the user should be told and was not yet: after opening, and after a kernel was built.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *self.lock_notices())
    }

    fn lock_notices(&self) -> MutexGuard<'_, Vec<String>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where compiled kernels are kept, and what was found and stored there so far; `None` where they are not kept.
    pub fn kept_kernels(&self) -> Option<(&Path, StoreCounts)> {
        self.cache.as_ref().map(|cache| (cache.folder(), cache.counts()))
    }

    /// How many kernels were parsed and lowered, and how many did without.
    pub fn front_end_counts(&self) -> FrontEndCounts {
        FrontEndCounts {
            lowered: self.lowered.load(Ordering::Relaxed),
            recalled: self.recalled.load(Ordering::Relaxed),
        }
    }

    /// Looks whether a kernel need not be compiled. [`Session::lower`] then takes the [`Search::tracing`] for its world.
    pub fn search<'w>(&self, world: &'w dyn World, request: &Request<'_>) -> Search<'w> {
        // Who wants to see the compiler's work must let it work.
        let cache = self.cache.as_ref().filter(|_| !self.config.print_ir);
        let common = cache.and_then(|cache| cache.common(&self.target, &self.library)).map(|mut key| {
            key.add("concurrent_launches", &!self.device.is_immediate());
            key
        });
        search(world, cache, common, &self.config, request)
    }

    /// The code that an earlier compilation made, if it is still kept. `watch` has measured how long finding it took.
    pub fn load_recalled(&self, recalled: &Recalled, mut watch: Stopwatch) -> Option<Executable> {
        let mut code = self.load_again(recalled.artifact, &recalled.pointers, recalled, &mut watch)?;
        if let Some(stored) = &recalled.store {
            let pointers: Vec<_> = stored.pointers.iter().map(|&(slot, written)| Pointer { slot, written }).collect();
            let count = self.load_again(stored.count, &pointers, recalled, &mut watch)?;
            code.store = Some(GradientStore::from_stored(count, stored)?);
        }
        self.recalled.fetch_add(1, Ordering::Relaxed);
        self.compilations.add(code.kernel.name(), true, watch);
        Some(code)
    }

    fn load_again(
        &self,
        key: Key,
        pointers: &[Pointer],
        recalled: &Recalled,
        watch: &mut Stopwatch,
    ) -> Option<Executable> {
        let artifact = self.cache.as_ref()?.get_again(&key)?;
        watch.lap(Phase::Load, "read");
        let pointers = pointers.to_vec();
        let kernel = self.device.load(&artifact).ok()?.with_pointers(pointers.clone());
        watch.lap(Phase::Link, "");
        let (layout, ret) = (recalled.layout.clone(), recalled.ret.clone());
        Some(Executable { layout, ret, kernel, key: Some(key), pointers, store: None })
    }

    /// Stores what a compilation asked and what came of it.
    pub fn keep_trace(&self, search: Search<'_>, lowering: &Lowering, code: &Executable, may_alias: bool) {
        let (Some(cache), Some(artifact)) = (&self.cache, code.key) else { return };
        let store = code.store.as_ref().map(GradientStore::to_stored);
        // A store whose counting code is not kept could not be made again.
        if store.as_ref().is_some_and(Option::is_none) {
            return;
        }
        let lowered = &lowering.lowered;
        let outcome = outcome(
            &Binding::of(lowered),
            (&code.layout, &code.pointers, &code.ret),
            (artifact, store.flatten()),
            (may_alias, lowering.has_groups(), lowering.may_tally_loops()),
            search.tracing.said(&lowered.sources),
        );
        if let Err(notice) = keep(cache, search, outcome) {
            self.lock_notices().push(notice);
        }
    }

    /// Allocates zeroed memory.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer, Error> {
        Ok(self.device.allocate(bytes)?)
    }

    /// Waits for everything launched before.
    pub fn sync(&self) -> Result<(), Error> {
        Ok(self.device.synchronize(&Patient)?)
    }

    /// Ends the session: waits for its work and gives its memory back. Its objects raise from now on.
    pub fn close(&self) -> Result<(), Error> {
        Ok(self.device.close(&Patient)?)
    }

    /// Source to IR, with the companions that `mode` will need. The only stop that asks the outside world anything.
    pub fn lower(
        &self,
        world: &dyn World,
        kernel: Obj,
        args: &[ArgSpec],
        mode: AutodiffMode,
    ) -> Result<Lowering, CompileError> {
        let mut watch = Stopwatch::default();
        self.lowered.fetch_add(1, Ordering::Relaxed);
        let options = Options {
            default_fp: self.config.default_fp,
            default_ip: self.config.default_ip,
            debug: self.config.debug,
            short_circuit: self.config.short_circuit_operators,
            unrolling_limit: self.config.unrolling_limit,
            mode,
        };
        match octants_frontend::lower(world, kernel, args, &options) {
            Ok(lowered) => {
                watch.lap_two((Phase::Parse, lowered.parsing), Phase::Lower);
                self.check_groups(world, &lowered, &[])?;
                watch.lap(Phase::Lower, "check groups");
                Ok(Lowering { lowered, store: None, watch })
            }
            Err((diagnostics, sources)) => Err(CompileError::User(diagnostics, sources)),
        }
    }

    /// Refuses a kernel whose `stream_parallel` groups touch the same memory, and warns of one whose groups may. With `aliases`, which
    /// some call has, only what these make so: the rest was found when the kernel was lowered.
    pub fn check_groups(&self, world: &dyn World, lowered: &Lowered, aliases: &[Alias]) -> Result<(), CompileError> {
        let mut groups: Vec<u32> = group_loops(lowered).map(|(group, _)| group).collect();
        groups.dedup();
        if groups.len() < 2 {
            return Ok(());
        }
        let mut kernel = lowered.kernel.clone();
        run_pipeline(&mut kernel, &PassOptions::default());
        let mut errors = Vec::new();
        for found in find_overlaps(&kernel, &lowered.overlap_allowed, aliases) {
            if found.alias.is_some() == aliases.is_empty() {
                continue;
            }
            let name_of = |b: octants_ir::BufferId| &kernel.buffers[b.index()].name;
            let name = match found.alias {
                None => format!("`{}`", name_of(found.buffer)),
                Some(other) => {
                    format!("`{}` and `{}` (the same memory in this call)", name_of(found.buffer), name_of(other))
                }
            };
            let may = if found.certain { "" } else { "may " };
            let what = if found.both_write {
                format!("two qd.stream_parallel() blocks {may}write the same elements of {name}")
            } else {
                let (touch, read) = if found.certain { ("writes", "reads") } else { ("may write", "reads") };
                format!("one qd.stream_parallel() block {touch} elements of {name} that another {read}")
            };
            let earlier = lowered.sources.location(found.first);
            let diagnostic = Diagnostic::new(Code::Syntax, found.second, format!("{what} (the other is at {earlier})"))
                .with_hint(
                    "put both into one block, or say `qd.stream_parallel(allow_overlap=True)` where this is meant",
                );
            if found.certain {
                errors.push(*diagnostic);
            } else {
                world.warn(*diagnostic);
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(CompileError::User(errors, lowered.sources.clone())) }
    }

    /// IR to callable code.
    pub fn build(&self, lowering: &Lowering, arrays_may_alias: bool) -> Result<Executable, Error> {
        let mut watch = lowering.watch.clone();
        watch.resume();
        let (mut code, mut kept) = self.make(&lowering.lowered, arrays_may_alias, &mut watch)?;
        if let Some(store) = &lowering.store {
            let lowered = Lowered { kernel: store.count.clone(), ..lowering.lowered.clone() };
            let (count, found) = self.make(&lowered, arrays_may_alias, &mut watch)?;
            let place = |k: &Kept| format!("`{}` of the loop at {}", k.name, lowered.sources.location(k.span));
            let names = store.kept.iter().map(place).collect::<Vec<_>>().join(" and ");
            code.store = Some(GradientStore::new(count, &store.arguments, &code.layout, names));
            kept &= found;
        }
        self.compilations.add(code.kernel.name(), kept, watch);
        Ok(code)
    }

    /// The code, and whether it was found on disk.
    fn make(
        &self,
        lowered: &Lowered,
        arrays_may_alias: bool,
        watch: &mut Stopwatch,
    ) -> Result<(Executable, bool), Error> {
        let sources = &lowered.sources;
        let kernel = &lowered.kernel;
        let layout = ArgLayout::new(kernel.roots, &kernel.buffers, &kernel.params);
        let ret = kernel.ret.clone();
        let program =
            self.split(lowered, arrays_may_alias, self.config.print_ir, |pass| watch.lap(Phase::Passes, pass));
        let options = self.codegen_options(arrays_may_alias, !self.device.is_immediate(), &self.library);
        // Only a device apart can be lost. A kernel's own source is the first that was read.
        let own = sources.get(0).filter(|_| self.config.debug && !self.device.is_immediate());
        let defined_at = own.map(|file| format!("{}:{}", file.path, file.first_line));
        let key = self.cache.as_ref().and_then(|cache| {
            let target = &self.target;
            let defined_at = defined_at.as_deref();
            let from = Ingredients { program: &program, sources, defined_at, options: &options, target };
            Some((cache, cache.key(&from)?))
        });
        let kept = key.and_then(|(cache, key)| cache.get(&key));
        let kept_under = key.map(|(_, key)| key);
        watch.lap(Phase::Load, "look up");
        let pointers = |artifact: &Artifact| pointers(&layout, &program.buffers, artifact);
        // What this device refuses is made anew.
        let load = |artifact: &Artifact| {
            let pointers = pointers(artifact);
            let kernel = self.device.load(artifact)?.with_pointers(pointers.clone());
            Ok::<_, Error>((kernel, pointers))
        };
        let found = kept.and_then(|a| load(&a).ok());
        if let Some((kernel, pointers)) = found {
            watch.lap(Phase::Link, "");
            return Ok((Executable { layout, ret, kernel, key: kept_under, pointers, store: None }, true));
        }
        let location = |span: Span| sources.location(span);
        let mut artifact =
            compile(&program, &location, &options, &self.target, &mut |step| watch.lap(Phase::Codegen, step))
                .map_err(|e| Error::Codegen(e.to_string()))?;
        artifact.defined_at = defined_at;
        // Where nothing is kept here, the device's driver may keep what it makes of the text.
        let assembled = key.and_then(|_| self.device.assemble(&artifact));
        let loaded = assembled.as_ref().and_then(|a| load(a).ok());
        let (artifact, (kernel, pointers)) = match (loaded, assembled) {
            (Some(loaded), Some(assembled)) => (assembled, loaded),
            _ => {
                let loaded = load(&artifact)?;
                (artifact, loaded)
            }
        };
        watch.lap(Phase::Link, "");
        if let Some((cache, key)) = key {
            self.keep(cache, &key, &artifact);
            watch.lap(Phase::Load, "store");
        }
        Ok((Executable { layout, ret, kernel, key: kept_under, pointers, store: None }, false))
    }

    /// IR to a program of tasks; printed on the way where `shows` asks for it. `done` is told of each pass.
    pub(crate) fn split(
        &self,
        lowered: &Lowered,
        arrays_may_alias: bool,
        shows: bool,
        mut done: impl FnMut(&'static str),
    ) -> Program {
        let mut kernel = lowered.kernel.clone();
        let options = PassOptions {
            check_bounds: self.config.debug || self.config.check_out_of_bound,
            debug: self.config.debug,
            fast_math: self.config.fast_math,
            arrays_may_alias,
            sources: Some(&lowered.sources),
        };
        run_pipeline_with(&mut kernel, &options, &mut done);
        if shows {
            eprintln!("{kernel}");
        }
        let program = offload(kernel);
        done("offload");
        program
    }

    pub(crate) fn codegen_options(
        &self,
        arrays_may_alias: bool,
        concurrent_launches: bool,
        library: &DeviceLibrary,
    ) -> CodegenOptions {
        CodegenOptions {
            fast_math: self.config.fast_math,
            opt_level: self.config.opt_level,
            arrays_may_alias,
            concurrent_launches,
            device_library: library.clone(),
            ..CodegenOptions::default()
        }
    }

    /// Stores an artifact.
    fn keep(&self, cache: &ArtifactCache, key: &Key, artifact: &Artifact) {
        if let Err(notice) = cache.put(key, artifact) {
            self.lock_notices().push(notice);
        }
    }

    /// Runs code on a stream, the default one for `None`: `slots` are the argument slots of its layout, `arrays` those that hold
    /// addresses in the host's memory, of which a device that does all work at once need not be told. `caller` is told before
    /// this thread works or waits for long. In debug mode a launch on the default stream waits for its work, so that what fails in it is
    /// the error of the call; launches on other streams return as they do without.
    ///
    /// # Safety
    /// `slots` holds what the code expects: addresses of live memory, true extents, values of the parameters.
    #[inline]
    pub unsafe fn launch(
        &self,
        code: &Executable,
        slots: &[u64],
        arrays: &[HostArray],
        stream: Option<&Stream>,
        caller: &dyn Caller,
    ) -> Result<Option<Results>, Error> {
        let stream = stream.unwrap_or_else(|| self.device.default_stream());
        let results = match &code.store {
            // SAFETY: the caller's contract.
            None => unsafe { stream.launch_with(&code.kernel, slots, arrays, caller) }?,
            // SAFETY: the caller's contract.
            Some(store) => unsafe { self.launch_with_store(code, store, slots, arrays, stream, caller) }?,
        };
        let is_default = stream.number() == 0;
        if self.config.debug && is_default && !self.device.is_immediate() {
            stream.synchronize(caller)?;
        }
        Ok(results)
    }
}

impl Session {
    /// Counts what a gradient must keep, makes the store and runs the gradient.
    ///
    /// # Safety
    /// That of [`Session::launch`].
    #[cold]
    unsafe fn launch_with_store(
        &self,
        code: &Executable,
        store: &GradientStore,
        slots: &[u64],
        arrays: &[HostArray],
        stream: &Stream,
        caller: &dyn Caller,
    ) -> Result<Option<Results>, Error> {
        let mut slots = slots.to_vec();
        // SAFETY: the counting kernel has the arguments of the gradient, and does not use the store.
        let counted = unsafe { stream.launch_with(&store.count.kernel, &slots, arrays, caller) }?;
        let counted = counted.expect("compiler bug: a store is counted without a result");
        let buffers = store.make(&counted, self.lanes(), &mut slots, |bytes| self.allocate(bytes))?;
        // SAFETY: the caller's contract, and the store lives until the stream has run what uses it: its memory is freed in order.
        let results = unsafe { stream.launch_with(&code.kernel, &slots, arrays, caller) };
        drop(buffers);
        Ok(results?)
    }

    fn lanes(&self) -> Lanes {
        let most_bytes = match self.config.ad_store_bytes {
            0 => u64::MAX,
            bytes => bytes,
        };
        if self.device.is_host_addressable() {
            let threads = match self.config.cpu_max_num_threads {
                0 => std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
                n => u64::from(n),
            };
            // More lanes than threads, so that uneven ones balance.
            return Lanes { most: threads * 8, neighbours: true, most_bytes };
        }
        Lanes { most: 1 << 16, neighbours: false, most_bytes }
    }
}

/// Takes the CPU in place of a device that is not there, with a notice, where that is allowed.
fn fall_back(config: &mut Config, notices: &mut Vec<String>, why: &str) -> Result<(), Error> {
    let reason = format!("arch `{}` is not available: {why}", config.arch.name());
    if !config.enable_fallback {
        return Err(Error::Unavailable(reason));
    }
    notices.push(format!("{reason}; falling back to the CPU"));
    config.arch = Arch::Cpu;
    Ok(())
}

/// The loops of `stream_parallel` groups: group and place.
fn group_loops(lowered: &Lowered) -> impl Iterator<Item = (u32, Span)> {
    let body = &lowered.kernel.body;
    body.block(body.root).iter().filter_map(|&v| {
        let inst = body.inst(v);
        match &inst.op {
            Op::For(l) => l.parallel.as_ref().and_then(|c| c.group).map(|group| (group, inst.span)),
            _ => None,
        }
    })
}

/// The slots that hold addresses, and whether the code writes there.
fn pointers(layout: &ArgLayout, buffers: &[octants_ir::Buffer], artifact: &Artifact) -> Vec<Pointer> {
    let mut roots = vec![false; layout.roots.len()];
    let mut out = Vec::new();
    for (i, buffer) in buffers.iter().enumerate() {
        let written = artifact.tasks.iter().any(|t| t.writes.contains(&(i as u32)));
        match (&buffer.layout, layout.buffers[i]) {
            (Layout::Dense { components, .. }, _) => components.iter().for_each(|c| roots[c.root as usize] |= written),
            (_, Some(slot)) => out.push(Pointer { slot, written }),
            (_, None) => {}
        }
    }
    out.extend(layout.roots.iter().zip(roots).map(|(&slot, written)| Pointer { slot, written }));
    out
}

impl Drop for Session {
    fn drop(&mut self) {
        // An error here is of work that nobody waited for, and nobody is left to be told.
        let _ = self.device.close(&Patient);
    }
}

impl From<DeviceError> for Error {
    fn from(e: DeviceError) -> Error {
        match e.kind() {
            ErrorKind::OutOfMemory { .. } => Error::OutOfMemory { message: e.to_string() },
            ErrorKind::Assertion(_) => Error::Assertion(e.to_string()),
            _ => Error::Device(e.to_string()),
        }
    }
}
