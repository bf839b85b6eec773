//! Compiles programs to artifacts: the pieces of a program become modules, on several threads if that pays.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::targets::{FileType, TargetMachine};
use octants_artifact::{Artifact, CodeTarget, PersistentLoop, TaskMeta};
use octants_codegen::{graph_parts, kind_of};
use octants_diag::Span;
use octants_ir::Scheduled;

use crate::emit::Emitter;
use crate::facts::Facts;
use crate::fatal_errors::{Diagnostics, on_a_thread, on_threads};
use crate::fuse_products::fuse_products;
use crate::lower_entries::lower_entries;
use crate::optimize::{check_module, emit_code, optimize, poll_loops};
use crate::persistent_loops::symbol_of;
use crate::pieces::{Entry, Piece, cut, everything};
use crate::target::{self, CodeForm, Target};
use crate::unit::Unit;
use crate::{CodegenError, CodegenOptions, Listing};

/// The result of compiling a piece.
struct Made {
    code: Vec<u8>,
    /// The tasks whose main form it contains.
    tasks: Vec<TaskMeta>,
}

/// See [`fn@crate::compile`].
pub(crate) fn compile(
    scheduled: &Scheduled,
    location: &dyn Fn(Span) -> String,
    options: &CodegenOptions,
    code_target: &CodeTarget,
    after: &mut dyn FnMut(&'static str),
) -> Result<Artifact, CodegenError> {
    let facts = Facts::of(scheduled, options, location);
    on_a_thread(after, |after| compile_with(&facts, code_target, after))
}

fn compile_with(
    facts: &Facts<'_>,
    code_target: &CodeTarget,
    after: &mut dyn FnMut(&'static str),
) -> Result<Artifact, CodegenError> {
    let program = facts.program;
    let builder = ModuleBuilder::open(facts, code_target)?;
    let pieces = cut(facts, builder.target.keeps_forms_apart());
    let mut artifact = Artifact {
        kernel: program.name.clone(),
        defined_at: None,
        assumes_order: false,
        target: builder.name.clone(),
        modules: Vec::new(),
        arg_slots: facts.args.slots,
        frame_bytes: facts.frame_bytes,
        result: program.ret.leaves().into_iter().map(kind_of).collect(),
        buffers: program.buffers.iter().map(|b| b.name.clone()).collect(),
        tasks: Vec::new(),
        graph: graph_parts(facts),
        loops: Vec::new(),
        counters: Vec::new(),
        sites: facts.sites.clone(),
    };
    for (piece, made) in pieces.iter().zip(make_all(facts, code_target, builder, &pieces, after)?) {
        let module = artifact.modules.len() as u32;
        match (piece.wide_form_of(), piece.loop_of()) {
            (Some(task), _) => {
                let form = artifact.tasks[task].parallel.as_mut().and_then(|p| p.wide.as_mut());
                form.expect("compiler bug: a task without the requested coarsened variant").code = made.code;
            }
            (None, Some(index)) => {
                let of = &facts.loops[index];
                let symbol = symbol_of(&artifact.tasks[of.tasks[0]].symbol);
                let tasks = of.tasks.iter().map(|task| *task as u32).collect();
                artifact.loops.push(PersistentLoop { number: of.number, symbol, module, tasks });
                artifact.modules.push(made.code);
            }
            (None, None) => {
                artifact.modules.push(made.code);
                artifact.tasks.extend(made.tasks.into_iter().map(|task| TaskMeta { module, ..task }));
            }
        }
    }
    Ok(artifact)
}

/// Generates the code of all pieces: a single piece on this thread, several on helper threads. `after` receives the
/// steps of one thread.
fn make_all(
    facts: &Facts<'_>,
    code_target: &CodeTarget,
    builder: ModuleBuilder,
    pieces: &[Piece],
    after: &mut dyn FnMut(&'static str),
) -> Result<Vec<Made>, CodegenError> {
    if let [piece] = pieces {
        return Ok(vec![builder.make(facts, piece, after)?]);
    }
    // The largest first, so that none starts last.
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(pieces[*i].size));
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Made, CodegenError>>>> = pieces.iter().map(|_| Mutex::default()).collect();
    let work = |after: &mut dyn FnMut(&'static str)| {
        while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let made = ModuleBuilder::open(facts, code_target).and_then(|own| own.make(facts, &pieces[i], after));
            *results[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        }
    };
    on_threads(facts.options.threads.min(pieces.len()), after, &work)?;
    after("wait for other threads");
    let all = results.into_iter().map(|r| r.into_inner().unwrap_or_else(PoisonError::into_inner));
    all.map(|made| made.expect("compiler bug: a module part was not compiled")).collect()
}

/// Builds one module.
struct ModuleBuilder {
    target: Box<dyn Target>,
    machine: TargetMachine,
    /// The target of the code.
    name: String,
}

/// A module before it is optimized.
struct Lowered<'m, 'c> {
    module: &'m Module<'c>,
    builder: &'m ModuleBuilder,
    level: u8,
    /// The tasks whose main form it contains.
    tasks: Vec<TaskMeta>,
}

impl ModuleBuilder {
    fn open(facts: &Facts<'_>, code_target: &CodeTarget) -> Result<ModuleBuilder, CodegenError> {
        let (target, machine, name) = target::open(code_target, facts.options)?;
        Ok(ModuleBuilder { target, machine, name })
    }

    fn make(self, facts: &Facts<'_>, piece: &Piece, after: &mut dyn FnMut(&'static str)) -> Result<Made, CodegenError> {
        let has_wide_forms = piece.wide_form_of().is_some() || !self.target.keeps_forms_apart();
        self.with_module(facts, &piece.entries, has_wide_forms, |mut lowered| {
            after("lower to LLVM");
            lowered.optimize()?;
            after("optimize");
            let code = lowered.emit()?;
            after("emit");
            Ok(Made { code, tasks: std::mem::take(&mut lowered.tasks) })
        })
    }

    /// Lowers forms of tasks, then gives the module to `then`.
    fn with_module<R>(
        &self,
        facts: &Facts<'_>,
        entries: &[Entry],
        has_wide_forms: bool,
        then: impl FnOnce(Lowered<'_, '_>) -> Result<R, CodegenError>,
    ) -> Result<R, CodegenError> {
        let (target, machine) = (&*self.target, &self.machine);
        let diagnostics = Diagnostics::default();
        let context = Context::create();
        // SAFETY: what is declared later is dropped earlier.
        unsafe { diagnostics.collect(&context) };
        let module = context.create_module(&facts.program.name);
        module.set_triple(&machine.get_triple());
        module.set_data_layout(&machine.get_target_data().get_data_layout());
        let tasks = {
            let e = Emitter::new(&context, &module, facts.options.fast_math, &target.atomic_style());
            let unit = Unit::new(facts, target, e, has_wide_forms);
            target.set_slots(facts.args.slots);
            target.describe_module(&unit.e);
            let tasks = lower_entries(&unit, entries);
            unit.keep_vector_functions();
            tasks
        };
        check_module(&module, "the lowering")?;
        target.link(&module)?;
        let made = then(Lowered { module: &module, builder: self, level: facts.options.opt_level, tasks })?;
        diagnostics.check().map(|()| made)
    }
}

impl Lowered<'_, '_> {
    fn optimize(&self) -> Result<(), CodegenError> {
        let target = &*self.builder.target;
        optimize(self.module, &self.builder.machine, self.level, target.info().has_vectors)?;
        if self.level >= 2 && target.fuses_shared_products() {
            fuse_products(self.module);
        }
        if let Some(offset) = target.poll_offset() {
            poll_loops(self.module, &self.builder.machine, offset);
        }
        Ok(())
    }

    /// Code as the driver takes it.
    fn emit(&self) -> Result<Vec<u8>, CodegenError> {
        let kind = match self.builder.target.code_form() {
            CodeForm::Object => FileType::Object,
            CodeForm::Text => FileType::Assembly,
        };
        self.builder.target.package(emit_code(self.module, &self.builder.machine, kind)?)
    }
}

/// Passes the whole program, as one module, to `then`.
fn as_one<R>(
    scheduled: &Scheduled,
    options: &CodegenOptions,
    code_target: &CodeTarget,
    then: impl FnOnce(Lowered<'_, '_>) -> Result<R, CodegenError> + Send,
) -> Result<R, CodegenError>
where
    R: Send,
{
    let facts = Facts::of(scheduled, options, &|_| String::new());
    on_a_thread(&mut |_| (), |_| {
        let builder = ModuleBuilder::open(&facts, code_target)?;
        let entries = everything(&facts);
        builder.with_module(&facts, &entries, true, then)
    })
}

/// See [`crate::compile_as_one`].
pub(crate) fn compile_as_one(
    scheduled: &Scheduled,
    options: &CodegenOptions,
    code_target: &CodeTarget,
) -> Result<Vec<u8>, CodegenError> {
    as_one(scheduled, options, code_target, |lowered| {
        lowered.optimize()?;
        lowered.emit()
    })
}

/// See [`crate::list`].
pub(crate) fn list(
    scheduled: &Scheduled,
    options: &CodegenOptions,
    code_target: &CodeTarget,
    listing: Listing,
) -> Result<String, CodegenError> {
    as_one(scheduled, options, code_target, |lowered| {
        if listing != Listing::Lowered {
            lowered.optimize()?;
        }
        if listing == Listing::Assembly {
            let text = match lowered.builder.target.code_form() {
                CodeForm::Object => emit_code(lowered.module, &lowered.builder.machine, FileType::Assembly)?,
                CodeForm::Text => lowered.emit()?,
            };
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        Ok(lowered.module.print_to_string().to_string())
    })
}
