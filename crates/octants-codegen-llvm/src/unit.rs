//! A module under construction: the state that the lowering of all its functions shares.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use octants_ir::{FuncId, Program, TargetInfo};

use crate::CodegenOptions;
use crate::emit::{Emitter, V, llvm};
use crate::facts::Facts;
use crate::metadata::Metadata;
use crate::place::PlaceShape;
use crate::target::Target;

/// The shared state of the lowering of all tasks and functions of a module.
pub(crate) struct Unit<'p> {
    pub program: &'p Program,
    pub options: &'p CodegenOptions,
    pub facts: &'p Facts<'p>,
    pub target: &'p dyn Target,
    /// The capabilities of the machine.
    pub info: TargetInfo,
    pub e: Emitter,
    pub metadata: Metadata,
    pub instances: RefCell<HashMap<InstanceKey, V>>,
    pub pending: RefCell<Vec<(InstanceKey, V)>>,
    /// Functions of the module's own, by name.
    pub helpers: RefCell<HashMap<String, V>>,
    /// Vector forms of math functions, which must outlive the passes before vectorization.
    pub vector_functions: RefCell<Vec<V>>,
    /// The module holds the wide forms of its tasks.
    pub has_wide_forms: bool,
    /// Number of the task under way, part of the key of random numbers.
    pub task: Cell<u32>,
}

/// A way to call a function.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct InstanceKey {
    pub function: FuncId,
    /// Per parameter: the shape of a reference.
    pub refs: Vec<Option<PlaceShape>>,
}

impl<'p> Unit<'p> {
    /// An empty module's.
    pub fn new(facts: &'p Facts<'p>, target: &'p dyn Target, e: Emitter, has_wide_forms: bool) -> Unit<'p> {
        Unit {
            metadata: Metadata::new(&e, facts.program, facts.schedule),
            program: facts.program,
            options: facts.options,
            facts,
            info: target.info(),
            target,
            e,
            instances: RefCell::default(),
            pending: RefCell::default(),
            helpers: RefCell::default(),
            vector_functions: RefCell::default(),
            has_wide_forms,
            task: Cell::new(0),
        }
    }

    /// Keeps the declarations of vector functions alive until the vectorizer has run.
    pub fn keep_vector_functions(&self) {
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
