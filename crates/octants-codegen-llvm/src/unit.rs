//! A program on its way to an artifact: the module under construction and what all its functions share.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use inkwell::context::Context;
use inkwell::targets::{FileType, TargetMachine};
use octants_artifact::{Artifact, CodeTarget, ScalarKind, Site};
use octants_diag::Span;
use octants_ir::{ArgLayout, Layout, Program, Scalar};

use crate::analyse_locals::{Effects, inlined_sizes};
use crate::emit::{Emitter, V, llvm};
use crate::functions::InstanceKey;
use crate::lower_task::{lower_tasks, lower_wide_form_of};
use crate::metadata::Metadata;
use crate::optimise::{emit_code, optimise};
use crate::place::MemoryLayout;
use crate::target::{self, CodeForm, Target};
use crate::{CodegenError, CodegenOptions, Listing};

/// What the lowering of every task and function shares.
pub(crate) struct Unit<'p> {
    pub program: &'p Program,
    pub options: &'p CodegenOptions,
    pub location: &'p dyn Fn(Span) -> String,
    pub target: &'p dyn Target,
    pub e: Emitter,
    pub args: ArgLayout,
    /// Byte offset of each frame slot.
    pub frame_offsets: Vec<u64>,
    pub frame_bytes: u64,
    /// Least size of each root, from the fields in it.
    pub root_bytes: Vec<u64>,
    pub metadata: Metadata,
    /// Effects of each function.
    pub effects: Vec<Effects>,
    /// Instructions of each function with all its calls inlined.
    pub inlined_sizes: Vec<usize>,
    pub sites: RefCell<Vec<Site>>,
    pub instances: RefCell<HashMap<InstanceKey, V>>,
    pub pending: RefCell<Vec<(InstanceKey, V)>>,
    /// Functions of the module's own, by name.
    pub helpers: RefCell<HashMap<String, V>>,
    /// Vector forms of math functions, which must outlive the passes before vectorisation.
    pub vector_functions: RefCell<Vec<V>>,
    /// The module holds wide forms of tasks.
    pub has_wide_forms: bool,
    /// Number of the task under way, part of the key of random numbers.
    pub task: Cell<u32>,
}

/// The artifact's name of a scalar.
pub(crate) fn kind_of(s: Scalar) -> ScalarKind {
    match s {
        Scalar::U1 => ScalarKind::U1,
        Scalar::I8 => ScalarKind::I8,
        Scalar::I16 => ScalarKind::I16,
        Scalar::I32 => ScalarKind::I32,
        Scalar::I64 => ScalarKind::I64,
        Scalar::U8 => ScalarKind::U8,
        Scalar::U16 => ScalarKind::U16,
        Scalar::U32 => ScalarKind::U32,
        Scalar::U64 => ScalarKind::U64,
        Scalar::F16 => ScalarKind::F16,
        Scalar::F32 => ScalarKind::F32,
        Scalar::F64 => ScalarKind::F64,
    }
}

fn root_bytes(program: &Program) -> Vec<u64> {
    let mut bytes = vec![0; program.roots as usize];
    for b in &program.buffers {
        let Layout::Dense { components, shape, .. } = &b.layout else { continue };
        if shape.contains(&0) {
            continue;
        }
        for (c, s) in components.iter().zip(b.elem.leaves()) {
            let digits = c.axes.iter().flatten();
            let last: u64 = digits.map(|d| d.extent.saturating_sub(1) * d.stride).sum();
            let end = c.base + last + u64::from(s.bytes());
            let root = &mut bytes[c.root as usize];
            *root = end.max(*root);
        }
    }
    bytes
}

impl<'p> Unit<'p> {
    fn new(
        program: &'p Program,
        location: &'p dyn Fn(Span) -> String,
        options: &'p CodegenOptions,
        target: &'p dyn Target,
        e: Emitter,
    ) -> Unit<'p> {
        let mut frame_bytes = 0u64;
        let frame_offsets = program
            .frame
            .iter()
            .map(|ty| {
                let at = frame_bytes;
                frame_bytes += MemoryLayout::of(ty).size.next_multiple_of(8);
                at
            })
            .collect();
        let mut memo = Vec::new();
        let effects =
            program.functions.iter().map(|f| Effects::of_body(&f.body, &program.functions, &mut memo)).collect();
        Unit {
            metadata: Metadata::new(&e, program, options.arrays_may_alias),
            args: ArgLayout::new(program.roots, &program.buffers, &program.params),
            root_bytes: root_bytes(program),
            program,
            options,
            location,
            target,
            e,
            frame_offsets,
            frame_bytes,
            effects,
            inlined_sizes: inlined_sizes(&program.functions),
            sites: RefCell::default(),
            instances: RefCell::default(),
            pending: RefCell::default(),
            helpers: RefCell::default(),
            vector_functions: RefCell::default(),
            has_wide_forms: true,
            task: Cell::new(0),
        }
    }

    /// Keeps the declarations of vector functions alive until the vectoriser has run.
    fn keep_vector_functions(&self) {
        let mut functions = self.vector_functions.borrow_mut();
        if functions.is_empty() {
            return;
        }
        use llvm_sys::core::*;
        let e = &self.e;
        let ty = e.array_type(e.ptr, functions.len() as u64);
        llvm!({
            let list = LLVMConstArray2(e.ptr, functions.as_mut_ptr(), functions.len() as u64);
            let global = LLVMAddGlobal(e.module, ty, c"llvm.compiler.used".as_ptr());
            LLVMSetInitializer(global, list);
            LLVMSetLinkage(global, llvm_sys::LLVMLinkage::LLVMAppendingLinkage);
            LLVMSetSection(global, c"llvm.metadata".as_ptr());
        });
    }
}

/// What of a program is to be in a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All of it.
    Whole,
    /// All but what is kept apart.
    Main,
    /// The wide form of a task.
    Wide(usize),
}

/// Lowers the program, then gives the finished module to `then`.
fn with_module<R>(
    program: &Program,
    location: &dyn Fn(Span) -> String,
    options: &CodegenOptions,
    machine: &CodeTarget,
    part: Part,
    then: impl FnOnce(&inkwell::module::Module<'_>, &TargetMachine, &dyn Target, Artifact) -> Result<R, CodegenError>,
) -> Result<R, CodegenError> {
    let (target, machine, name) = target::open(machine, options)?;
    let context = Context::create();
    let module = context.create_module(&program.name);
    module.set_triple(&machine.get_triple());
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    let artifact = {
        let e = Emitter::new(&context, &module, options.fast_math, &target.atomic_style());
        let mut unit = Unit::new(program, location, options, &*target, e);
        unit.has_wide_forms = part != Part::Main || !target.keeps_forms_apart();
        target.set_slots(unit.args.slots);
        target.describe_module(&unit.e);
        let tasks = match part {
            Part::Wide(task) => lower_wide_form_of(&unit, task),
            _ => lower_tasks(&unit),
        };
        unit.keep_vector_functions();
        Artifact {
            kernel: program.name.clone(),
            defined_at: None,
            target: name,
            code: Vec::new(),
            arg_slots: unit.args.slots,
            frame_bytes: unit.frame_bytes,
            result: program.ret.leaves().into_iter().map(kind_of).collect(),
            tasks,
            sites: unit.sites.take(),
        }
    };
    if options.verify
        && let Err(message) = module.verify()
    {
        panic!("compiler bug: LLVM rejects the module: {message}\n{}", module.print_to_string());
    }
    target.link(&module)?;
    then(&module, &machine, &*target, artifact)
}

/// See [`crate::compile`].
pub(crate) fn compile(
    program: &Program,
    location: &dyn Fn(Span) -> String,
    options: &CodegenOptions,
    target: &CodeTarget,
    after: &mut dyn FnMut(&'static str),
) -> Result<Artifact, CodegenError> {
    with_module(program, location, options, target, Part::Main, |module, machine, opened, mut artifact| {
        after("lower to LLVM");
        let mut apart: Vec<(usize, &mut Vec<u8>)> = Vec::new();
        if opened.keeps_forms_apart() {
            let wide = artifact.tasks.iter_mut().map(|t| t.parallel.as_mut()?.wide.as_mut());
            apart.extend(wide.enumerate().filter_map(|(i, form)| Some((i, &mut form?.code))));
        }
        artifact.code = std::thread::scope(|scope| {
            // Beside the rest: with a context of its own nothing is shared.
            let others = (!apart.is_empty()).then(|| {
                scope.spawn(|| {
                    apart.into_iter().try_for_each(|(task, code)| {
                        *code = compile_wide_form(program, options, target, task)?;
                        Ok(())
                    })
                })
            });
            optimise(module, machine, options.opt_level, opened.has_vectors())?;
            after("optimise");
            let code = opened.package(emit_code(module, machine, file_type(opened))?);
            after("emit");
            if let Some(others) = others {
                others.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                after("wait for wide forms");
            }
            code
        })?;
        Ok(artifact)
    })
}

fn file_type(target: &dyn Target) -> FileType {
    match target.code_form() {
        CodeForm::Object => FileType::Object,
        CodeForm::Text => FileType::Assembly,
    }
}

/// The code of the wide form of a task, where forms are kept apart.
fn compile_wide_form(
    program: &Program,
    options: &CodegenOptions,
    target: &CodeTarget,
    task: usize,
) -> Result<Vec<u8>, CodegenError> {
    // Nothing in such a form has a place to tell.
    with_module(program, &|_| String::new(), options, target, Part::Wide(task), |module, machine, opened, _| {
        optimise(module, machine, options.opt_level, opened.has_vectors())?;
        opened.package(emit_code(module, machine, file_type(opened))?)
    })
}

/// See [`crate::list`].
pub(crate) fn list(
    program: &Program,
    options: &CodegenOptions,
    target: &CodeTarget,
    listing: Listing,
) -> Result<String, CodegenError> {
    with_module(program, &|_| String::new(), options, target, Part::Whole, |module, machine, opened, _| {
        if listing != Listing::Lowered {
            optimise(module, machine, options.opt_level, opened.has_vectors())?;
        }
        if listing == Listing::Assembly {
            let text = emit_code(module, machine, FileType::Assembly)?;
            return Ok(String::from_utf8_lossy(&text).into_owned());
        }
        Ok(module.print_to_string().to_string())
    })
}
