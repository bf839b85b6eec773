//! Compiles programs to artifacts: one module per task, with one entry point.

use octants_artifact::{Artifact, CodeTarget, DeviceContext, TaskMeta, WideForm};
use octants_codegen::{Facts, describe_loop, graph_parts, kind_of, wide_form};
use octants_diag::Span;
use octants_ir::schedule::{Coarsening, Role, TaskSchedule};
use octants_ir::{AtomicOp, Body, Op as IrOp, Scalar, Scheduled, TaskKind, Type};
use rspirv::binary::Assemble;
use rspirv::dr::{Module, Operand};
use rspirv::spirv::{Capability, Decoration, StorageClass};

use crate::emit::Emitter;
use crate::lowering::{BodyKind, Lowering, Unit};
use crate::target::DeviceFeatures;
use crate::{CodegenError, CodegenOptions, ENTRY_POINT, MOST_ARGUMENT_BYTES};

/// Words of a `DeviceContext`.
pub(crate) const CONTEXT_WORDS: u32 = DeviceContext::BYTES as u32 / 8;

/// The word [`DeviceContext::of_loop`].
const OF_LOOP: u32 = 7;

/// The message of a loop that the device has left too early.
const LEFT_EARLY: &str = "the device left this loop too early: Mesa's lavapipe runs at most 65535 iterations of all \
                          loops of a thread together";

/// Whether this many argument slots follow the context. Otherwise, their address does.
pub(crate) fn are_by_value(slots: u32) -> bool {
    u64::from(slots) * 8 <= MOST_ARGUMENT_BYTES
}

/// See [`fn@crate::compile`].
pub(crate) fn compile(
    scheduled: &Scheduled,
    location: &dyn Fn(Span) -> String,
    options: &CodegenOptions,
    target: &CodeTarget,
) -> Result<Artifact, CodegenError> {
    let features = DeviceFeatures::of(target)?;
    let facts = facts_of(scheduled, options, features, location);
    let program = facts.program;
    let mut artifact = Artifact {
        kernel: program.name.clone(),
        defined_at: None,
        assumes_order: false,
        target: target_name(target),
        modules: Vec::new(),
        arg_slots: facts.args.slots,
        frame_bytes: facts.frame_bytes,
        result: program.ret.leaves().into_iter().map(kind_of).collect(),
        buffers: program.buffers.iter().map(|b| b.name.clone()).collect(),
        tasks: Vec::new(),
        graph: graph_parts(&facts),
        loops: Vec::new(),
        counters: Vec::new(),
        sites: facts.sites.clone(),
    };
    let code = |number, role| -> Result<Vec<u8>, CodegenError> {
        let module = lower_task(&facts, features, (number, role), location)?;
        Ok(module.assemble().into_iter().flat_map(u32::to_le_bytes).collect())
    };
    for number in 0..program.tasks.len() {
        let mut task = describe(&facts, number);
        artifact.modules.push(code(number, Role::Main)?);
        if let (Some(coarsening), Some(meta)) = (coarsening(&facts, number), &mut task.parallel) {
            let form = wide_form(&facts, ENTRY_POINT.to_owned(), coarsening);
            meta.wide = Some(WideForm { code: code(number, Role::Coarse)?, ..form });
        }
        artifact.tasks.push(task);
    }
    Ok(artifact)
}

/// Computes the facts of a program. Loops get message sites if the device may leave them too early.
fn facts_of<'p>(
    scheduled: &'p Scheduled,
    options: &'p CodegenOptions,
    features: DeviceFeatures,
    location: &dyn Fn(Span) -> String,
) -> Facts<'p> {
    let mut facts = Facts::of(scheduled, options, location);
    if features.limits_loops {
        facts.number_loops(LEFT_EARLY, location);
    }
    facts
}

/// How a task's coarsened variant runs, if it has one.
fn coarsening(facts: &Facts<'_>, number: usize) -> Option<Coarsening> {
    facts.schedule.tasks[number].forms.coarsening
}

fn target_name(target: &CodeTarget) -> String {
    match target {
        CodeTarget::Host => String::new(),
        CodeTarget::Device { triple, cpu, features } => format!("{triple} {cpu} {features}"),
    }
}

/// The modules of a program's tasks: of each task its main variant, then the coarsened one.
pub(crate) fn modules(
    scheduled: &Scheduled,
    options: &CodegenOptions,
    target: &CodeTarget,
) -> Result<Vec<Module>, CodegenError> {
    let features = DeviceFeatures::of(target)?;
    let facts = facts_of(scheduled, options, features, &|_| String::new());
    let with_coarse =
        |number| [Some(Role::Main), coarsening(&facts, number).map(|_| Role::Coarse)].map(|r| (number, r));
    let all = (0..facts.program.tasks.len()).flat_map(with_coarse);
    all.filter_map(|(number, role)| Some((number, role?)))
        .map(|which| lower_task(&facts, features, which, &|_| String::new()))
        .collect()
}

/// The launch metadata of a task.
fn describe(facts: &Facts<'_>, number: usize) -> TaskMeta {
    let (task, schedule) = (&facts.program.tasks[number], &facts.schedule.tasks[number]);
    let parallel = match &task.kind {
        TaskKind::Serial => None,
        TaskKind::Parallel(config) | TaskKind::Grid(config) => Some(describe_loop(facts, number, config)),
    };
    TaskMeta {
        name: task.name.clone(),
        symbol: ENTRY_POINT.to_owned(),
        module: number as u32,
        single_thread_symbol: None,
        parallel,
        waits_itself: false,
        polls: false,
        draws_random: schedule.behavior.draws,
        flushes_denormals: false,
        depends_on: None,
        is_short: false,
        reads: task.access.reads.iter().map(|b| b.0).collect(),
        writes: task.access.writes.iter().map(|b| b.0).collect(),
        access: Vec::new(),
        block_bytes: 0,
        split: None,
    }
}

/// Properties of a task's code that determine how its memory is accessed.
#[derive(Default)]
struct Sharing {
    /// Threads read values that others of their block or the device write.
    shares_memory: bool,
    /// Floats of 32 bits are exchanged, not only added to.
    swaps_floats: bool,
}

impl Sharing {
    fn add(&mut self, body: &Body) {
        body.visit(body.root, &mut |_, inst| match &inst.op {
            IrOp::Barrier(_) | IrOp::Fence(_) | IrOp::BlockCount(_) | IrOp::VolatileLoad(_) => {
                self.shares_memory = true;
            }
            IrOp::Atomic(op, _, _) if inst.ty.scalar() == Some(Scalar::F32) => {
                self.swaps_floats |= !matches!(op, AtomicOp::Add | AtomicOp::Sub);
            }
            IrOp::AtomicCas(..) => self.swaps_floats |= inst.ty.scalar() == Some(Scalar::F32),
            _ => {}
        });
    }
}

fn lower_task(
    facts: &Facts<'_>,
    features: DeviceFeatures,
    (number, role): (usize, Role),
    location: &dyn Fn(Span) -> String,
) -> Result<Module, CodegenError> {
    let (task, schedule) = (&facts.program.tasks[number], &facts.schedule.tasks[number]);
    let main = schedule.variant(role).expect("compiler bug: a task without code");
    let e = Emitter::new(features, facts.options.fast_math);
    if features.special_float32 || features.special_float64 || features.special_float16 {
        e.need(Capability::SignedZeroInfNanPreserve);
        e.extend("SPV_KHR_float_controls");
    }
    e.extend("SPV_KHR_physical_storage_buffer");
    let mut sharing = Sharing { swaps_floats: !features.shared_atomic_float32, ..Sharing::default() };
    sharing.add(&main.body);
    schedule.functions.iter().for_each(|f| sharing.add(&facts.program.functions[f.index()].body));
    let context = push_constants(&e, facts.args.slots);
    let block_size = e.settable(0, 1);
    e.set_block_size(block_size);
    let u = Unit {
        facts,
        e,
        task: number as u32,
        shares_memory: sharing.shares_memory,
        swaps_shared_floats: sharing.swaps_floats,
        context,
        block_size,
        instances: Default::default(),
        pending: Default::default(),
        helpers: Default::default(),
        shared: Default::default(),
        left_words: Default::default(),
        block_words: Default::default(),
    };
    let entry = u.e.id();
    u.e.name(entry, &task.name);
    u.e.begin_function(entry, u.e.void(), &[]);
    let ret: &Type = &facts.program.ret;
    let mut l = Lowering::start(&u, (&main.body, &main.schedule), BodyKind::Task, ret);
    if role == Role::Coarse {
        l.vector_alignment = coarsening(facts, number).map(|c| c.alignment);
    }
    fill_task(&mut l, &main.kind(&task.kind), (schedule, facts.guarded[number]));
    u.e.end_function();
    u.lower_pending();
    if let Some((why, at)) = u.e.refusal() {
        let place = at.map(location).filter(|place| !place.is_empty());
        let place = place.map_or_else(String::new, |place| format!(" ({place})"));
        return Err(CodegenError::new(format!("kernel `{}` cannot run here: {why}{place}", facts.program.name)));
    }
    Ok(u.e.finish(entry, ENTRY_POINT))
}

/// The body of an entry point.
fn fill_task(l: &mut Lowering<'_, '_>, kind: &TaskKind, (schedule, guarded): (&TaskSchedule, bool)) {
    let root = l.body.root;
    if schedule.behavior.draws {
        l.make_random_state();
    }
    // All threads of a block decide in the same way.
    let enters = l.u.facts.schedule.may_fail().then(|| {
        l.has_failed = Some(l.e.variable(l.e.bool()));
        let out = l.stays_out();
        l.e.begin_if(l.e.not(out), false)
    });
    let holds = guarded.then(|| l.e.begin_if(guard_holds(l), false));
    match kind {
        TaskKind::Serial => {
            l.prepare_locals(|_, _| true);
            l.start_random_sequence(l.e.u64c(0));
        }
        TaskKind::Grid(_) => l.prepare_locals(|l, local| l.schedule.locals.of(local).is_used_before_loop),
        TaskKind::Parallel(_) => panic!("compiler bug: a range task on a device with a grid"),
    }
    l.block(root);
    for selection in holds.into_iter().chain(enters) {
        l.e.end_if(selection);
    }
    l.end_of_body();
}

/// Whether a task in guarded iterations runs: it has no guard, or the guard is not zero.
fn guard_holds(l: &Lowering<'_, '_>) -> crate::emit::Id {
    let (e, at) = (l.e, l.context_word(OF_LOOP));
    let holds = e.variable(e.bool());
    e.store(holds, e.truth(true));
    let has_guard = e.begin_if(e.ine(at, e.u64c(0)), false);
    e.store(holds, e.ine(l.load_at(at, Scalar::U32, false), e.u32c(0)));
    e.end_if(has_guard);
    e.load(e.bool(), holds)
}

/// The variable of the push constants: a context, then slots or their address.
fn push_constants(e: &Emitter, slots: u32) -> crate::emit::Id {
    let behind = if are_by_value(slots) { slots.max(1) } else { 1 };
    let array = e.laid_out_array_type(e.u64(), CONTEXT_WORDS + behind, 8);
    let block = e.struct_type(&[array]);
    e.decorate(block, Decoration::Block, vec![]);
    e.decorate_member(block, 0, Decoration::Offset, vec![Operand::LiteralBit32(0)]);
    e.global(StorageClass::PushConstant, block)
}
