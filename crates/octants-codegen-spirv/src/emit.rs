//! [`Emitter`]: a SPIR-V module under construction. Types and constants are created once each; instructions are
//! appended to the current block of the current function.
//!
//! Integer types are unsigned; the operations determine signedness. The first block of a function holds its variables
//! and what is computed once, and is closed last. Control flow is in `structure`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};

use octants_ir::Scalar;
use rspirv::dr::{Block, Function, Instruction, Module, ModuleHeader, Operand};
pub(crate) use rspirv::spirv::Op;
use rspirv::spirv::{
    AddressingModel, BuiltIn, Capability, Decoration, ExecutionMode, ExecutionModel, FunctionControl, MemoryModel,
    StorageClass,
};

use crate::target::DeviceFeatures;

/// A value, a type or a label.
pub(crate) type Id = u32;

/// SPIR-V 1.5.
const VERSION: u32 = 0x0001_0500;

/// A function while it is filled.
#[derive(Default)]
struct Filling {
    function: Function,
    /// Variables, which are first.
    variables: Vec<Instruction>,
    /// The instructions of the first block.
    entry: Vec<Instruction>,
    entry_label: Id,
    start_label: Id,
    /// The open block.
    block: Block,
    label: Id,
    is_terminated: bool,
    /// Instructions are emitted into the first block.
    is_in_entry: bool,
}

#[derive(Default)]
struct State {
    next: Id,
    module: Module,
    capabilities: BTreeSet<u32>,
    extensions: BTreeSet<&'static str>,
    /// Types by their definition.
    types: HashMap<(Op, Vec<u32>), Id>,
    constants: HashMap<(Id, u64), Id>,
    values: HashMap<Id, (Id, u64)>,
    /// The type of each value.
    type_of: HashMap<Id, Id>,
    /// Global variables, which entry points name.
    interface: Vec<Id>,
    builtins: HashMap<u32, Id>,
    extended: Option<Id>,
    filling: Filling,
}

/// Builds a module.
pub(crate) struct Emitter {
    state: RefCell<State>,
    pub features: DeviceFeatures,
    /// Floats may be contracted.
    pub fast_math: bool,
    /// The first thing that the device cannot do.
    refused: RefCell<Option<String>>,
    /// The source location of the code that is being generated.
    pub place: Cell<Option<octants_diag::Span>>,
    refused_at: Cell<Option<octants_diag::Span>>,
}

impl Emitter {
    pub fn new(features: DeviceFeatures, fast_math: bool) -> Emitter {
        let e = Emitter {
            state: RefCell::new(State { next: 1, ..State::default() }),
            features,
            fast_math,
            refused: RefCell::default(),
            place: Cell::new(None),
            refused_at: Cell::new(None),
        };
        for capability in [
            Capability::Shader,
            Capability::Int64,
            Capability::PhysicalStorageBufferAddresses,
            Capability::VulkanMemoryModel,
            Capability::VulkanMemoryModelDeviceScope,
        ] {
            e.need(capability);
        }
        e
    }

    /// Declares a capability.
    pub fn need(&self, capability: Capability) {
        self.state.borrow_mut().capabilities.insert(capability as u32);
    }

    /// Declares an extension.
    pub fn extend(&self, extension: &'static str) {
        self.state.borrow_mut().extensions.insert(extension);
    }

    /// Records the reason why there is no code.
    pub fn refuse(&self, why: impl Into<String>) {
        let mut refused = self.refused.borrow_mut();
        if refused.is_none() {
            *refused = Some(why.into());
            self.refused_at.set(self.place.get());
        }
    }

    /// Why there is no code, and where it would be.
    pub fn refusal(&self) -> Option<(String, Option<octants_diag::Span>)> {
        Some((self.refused.borrow().clone()?, self.refused_at.get()))
    }

    /// A new number.
    pub fn id(&self) -> Id {
        let mut state = self.state.borrow_mut();
        state.next += 1;
        state.next - 1
    }

    // Types.

    fn make_type(&self, op: Op, operands: Vec<Operand>, key: Vec<u32>) -> Id {
        if let Some(id) = self.state.borrow().types.get(&(op, key.clone())) {
            return *id;
        }
        let id = self.id();
        let mut state = self.state.borrow_mut();
        state.module.types_global_values.push(Instruction::new(op, None, Some(id), operands));
        state.types.insert((op, key), id);
        id
    }

    pub fn void(&self) -> Id {
        self.make_type(Op::TypeVoid, vec![], vec![])
    }

    pub fn bool(&self) -> Id {
        self.make_type(Op::TypeBool, vec![], vec![])
    }

    /// An unsigned integer type.
    pub fn int_type(&self, bits: u32) -> Id {
        match bits {
            8 => self.need(Capability::Int8),
            16 => self.need(Capability::Int16),
            _ => {}
        }
        self.make_type(Op::TypeInt, vec![Operand::LiteralBit32(bits), Operand::LiteralBit32(0)], vec![bits])
    }

    pub fn u32(&self) -> Id {
        self.int_type(32)
    }

    pub fn u64(&self) -> Id {
        self.int_type(64)
    }

    pub fn float_type(&self, bits: u32) -> Id {
        match bits {
            16 => self.need(Capability::Float16),
            64 => self.need(Capability::Float64),
            _ => {}
        }
        self.make_type(Op::TypeFloat, vec![Operand::LiteralBit32(bits)], vec![bits])
    }

    /// The type of a scalar in registers.
    pub fn scalar(&self, s: Scalar) -> Id {
        if let Some(why) = self.features.missing(s) {
            self.refuse(why);
        }
        match s {
            Scalar::U1 => self.bool(),
            s if s.is_float() => self.float_type(s.bits()),
            s => self.int_type(s.bits()),
        }
    }

    pub fn vector_type(&self, of: Id, n: u32) -> Id {
        self.make_type(Op::TypeVector, vec![Operand::IdRef(of), Operand::LiteralBit32(n)], vec![of, n])
    }

    pub fn struct_type(&self, members: &[Id]) -> Id {
        self.make_type(Op::TypeStruct, members.iter().map(|m| Operand::IdRef(*m)).collect(), members.to_vec())
    }

    pub fn array_type(&self, of: Id, n: u32) -> Id {
        let length = self.u32c(n);
        self.make_type(Op::TypeArray, vec![Operand::IdRef(of), Operand::IdRef(length)], vec![of, length])
    }

    /// An array whose length is a constant, which the module's loader may set.
    pub fn sized_array_type(&self, of: Id, length: Id) -> Id {
        self.make_type(Op::TypeArray, vec![Operand::IdRef(of), Operand::IdRef(length)], vec![of, length])
    }

    /// An array with a given stride in bytes, in memory: another type than variables have.
    pub fn laid_out_array_type(&self, of: Id, n: u32, stride: u32) -> Id {
        let length = self.u32c(n);
        let operands = vec![Operand::IdRef(of), Operand::IdRef(length)];
        let ty = self.make_type(Op::TypeArray, operands, vec![of, length, stride]);
        self.decorate(ty, Decoration::ArrayStride, vec![Operand::LiteralBit32(stride)]);
        ty
    }

    pub fn pointer_type(&self, class: StorageClass, of: Id) -> Id {
        let operands = vec![Operand::StorageClass(class), Operand::IdRef(of)];
        self.make_type(Op::TypePointer, operands, vec![class as u32, of])
    }

    pub fn function_type(&self, ret: Id, params: &[Id]) -> Id {
        let all: Vec<Id> = [ret].into_iter().chain(params.iter().copied()).collect();
        self.make_type(Op::TypeFunction, all.iter().map(|t| Operand::IdRef(*t)).collect(), all)
    }

    /// The type of a value.
    pub fn type_of(&self, v: Id) -> Id {
        *self.state.borrow().type_of.get(&v).expect("compiler bug: a word that is not a value")
    }

    fn set_type(&self, v: Id, ty: Id) {
        self.state.borrow_mut().type_of.insert(v, ty);
    }

    // Constants.

    fn constant(&self, ty: Id, bits: u64, op: Op, operands: Vec<Operand>) -> Id {
        if let Some(id) = self.state.borrow().constants.get(&(ty, bits)) {
            return *id;
        }
        let id = self.id();
        let mut state = self.state.borrow_mut();
        state.module.types_global_values.push(Instruction::new(op, Some(ty), Some(id), operands));
        state.constants.insert((ty, bits), id);
        state.values.insert(id, (ty, bits));
        state.type_of.insert(id, ty);
        id
    }

    /// An integer constant; bits beyond the width are dropped.
    pub fn int(&self, bits: u32, value: i64) -> Id {
        let ty = self.int_type(bits);
        match bits {
            64 => self.constant(ty, value as u64, Op::Constant, vec![Operand::LiteralBit64(value as u64)]),
            _ => {
                let word = (value as u64 & ((1u64 << bits) - 1)) as u32;
                self.constant(ty, u64::from(word), Op::Constant, vec![Operand::LiteralBit32(word)])
            }
        }
    }

    pub fn u32c(&self, value: u32) -> Id {
        self.int(32, i64::from(value))
    }

    pub fn u64c(&self, value: u64) -> Id {
        self.int(64, value as i64)
    }

    /// A float constant of the given width.
    pub fn real(&self, bits: u32, value: f64) -> Id {
        let ty = self.float_type(bits);
        match bits {
            64 => self.constant(ty, value.to_bits(), Op::Constant, vec![Operand::LiteralBit64(value.to_bits())]),
            32 => {
                let word = (value as f32).to_bits();
                self.constant(ty, u64::from(word), Op::Constant, vec![Operand::LiteralBit32(word)])
            }
            _ => {
                // By way of f32, as casts go.
                let word = u32::from(half::f16::from_f32(value as f32).to_bits());
                self.constant(ty, u64::from(word), Op::Constant, vec![Operand::LiteralBit32(word)])
            }
        }
    }

    pub fn truth(&self, value: bool) -> Id {
        let op = if value { Op::ConstantTrue } else { Op::ConstantFalse };
        self.constant(self.bool(), u64::from(value), op, vec![])
    }

    /// The zero of any type.
    pub fn null(&self, ty: Id) -> Id {
        // Not the bits of any scalar's constant.
        let key = (Op::ConstantNull, vec![ty]);
        if let Some(id) = self.state.borrow().types.get(&key) {
            return *id;
        }
        let id = self.id();
        let mut state = self.state.borrow_mut();
        state.module.types_global_values.push(Instruction::new(Op::ConstantNull, Some(ty), Some(id), vec![]));
        state.types.insert(key, id);
        state.type_of.insert(id, ty);
        id
    }

    pub fn zero(&self, s: Scalar) -> Id {
        match s {
            Scalar::U1 => self.truth(false),
            s if s.is_float() => self.real(s.bits(), 0.0),
            s => self.int(s.bits(), 0),
        }
    }

    /// The bits of a constant scalar.
    pub fn as_bits(&self, v: Id) -> Option<u64> {
        self.state.borrow().values.get(&v).map(|(_, bits)| *bits)
    }

    /// The value of an integer constant of the given width.
    pub fn as_int(&self, v: Id, bits: u32) -> Option<i64> {
        let unused = 64 - bits;
        self.as_bits(v).map(|word| (word << unused) as i64 >> unused)
    }

    // Global variables and entry points.

    /// A variable of the module.
    pub fn global(&self, class: StorageClass, ty: Id) -> Id {
        let (pointer, id) = (self.pointer_type(class, ty), self.id());
        let mut state = self.state.borrow_mut();
        let operands = vec![Operand::StorageClass(class)];
        state.module.types_global_values.push(Instruction::new(Op::Variable, Some(pointer), Some(id), operands));
        state.type_of.insert(id, pointer);
        state.interface.push(id);
        id
    }

    /// The built-in variable with a property of the thread.
    pub fn builtin(&self, what: BuiltIn, ty: Id) -> Id {
        if let Some(id) = self.state.borrow().builtins.get(&(what as u32)) {
            return *id;
        }
        let id = self.global(StorageClass::Input, ty);
        self.decorate(id, Decoration::BuiltIn, vec![Operand::BuiltIn(what)]);
        self.state.borrow_mut().builtins.insert(what as u32, id);
        id
    }

    pub fn decorate(&self, id: Id, decoration: Decoration, more: Vec<Operand>) {
        let mut operands = vec![Operand::IdRef(id), Operand::Decoration(decoration)];
        operands.extend(more);
        let instruction = Instruction::new(Op::Decorate, None, None, operands);
        self.state.borrow_mut().module.annotations.push(instruction);
    }

    pub fn decorate_member(&self, ty: Id, member: u32, decoration: Decoration, more: Vec<Operand>) {
        let mut operands = vec![Operand::IdRef(ty), Operand::LiteralBit32(member), Operand::Decoration(decoration)];
        operands.extend(more);
        let instruction = Instruction::new(Op::MemberDecorate, None, None, operands);
        self.state.borrow_mut().module.annotations.push(instruction);
    }

    /// An integer constant that the module's loader may set, by its number.
    pub fn settable(&self, number: u32, value: u32) -> Id {
        let (ty, id) = (self.u32(), self.id());
        let operands = vec![Operand::LiteralBit32(value)];
        let instruction = Instruction::new(Op::SpecConstant, Some(ty), Some(id), operands);
        self.state.borrow_mut().module.types_global_values.push(instruction);
        self.set_type(id, ty);
        self.decorate(id, Decoration::SpecId, vec![Operand::LiteralBit32(number)]);
        id
    }

    /// The size of blocks. The first extent is given; the others are one.
    pub fn set_block_size(&self, size: Id) {
        let (ty, one, id) = (self.vector_type(self.u32(), 3), self.u32c(1), self.id());
        let operands = [size, one, one].map(Operand::IdRef).to_vec();
        let instruction = Instruction::new(Op::SpecConstantComposite, Some(ty), Some(id), operands);
        self.state.borrow_mut().module.types_global_values.push(instruction);
        self.decorate(id, Decoration::BuiltIn, vec![Operand::BuiltIn(BuiltIn::WorkgroupSize)]);
    }

    pub fn name(&self, id: Id, name: &str) {
        let operands = vec![Operand::IdRef(id), Operand::LiteralString(name.replace('\0', "_"))];
        self.state.borrow_mut().module.debug_names.push(Instruction::new(Op::Name, None, None, operands));
    }

    // Functions.

    /// Starts a function; its parameters.
    pub fn begin_function(&self, id: Id, ret: Id, params: &[Id]) -> Vec<Id> {
        let ty = self.function_type(ret, params);
        let ids: Vec<Id> = params.iter().map(|_| self.id()).collect();
        let (entry_label, start_label) = (self.id(), self.id());
        let operands = vec![Operand::FunctionControl(FunctionControl::NONE), Operand::IdRef(ty)];
        let mut function = Function {
            def: Some(Instruction::new(Op::Function, Some(ret), Some(id), operands)),
            end: Some(Instruction::new(Op::FunctionEnd, None, None, vec![])),
            ..Function::default()
        };
        for (ty, id) in params.iter().zip(&ids) {
            function.parameters.push(Instruction::new(Op::FunctionParameter, Some(*ty), Some(*id), vec![]));
            self.set_type(*id, *ty);
        }
        let filling = Filling { function, entry_label, start_label, ..Filling::default() };
        self.state.borrow_mut().filling = filling;
        self.position(start_label);
        ids
    }

    /// Closes the function.
    pub fn end_function(&self) {
        let mut state = self.state.borrow_mut();
        let filling = std::mem::take(&mut state.filling);
        assert!(filling.is_terminated, "compiler bug: a function whose last block has no terminator");
        let Filling { mut function, mut variables, entry, entry_label, start_label, .. } = filling;
        variables.extend(entry);
        variables.push(Instruction::new(Op::Branch, None, None, vec![Operand::IdRef(start_label)]));
        let label = Some(Instruction::new(Op::Label, None, Some(entry_label), vec![]));
        function.blocks.insert(0, Block { label, instructions: variables });
        state.module.functions.push(function);
    }

    /// A variable of the function.
    pub fn variable(&self, ty: Id) -> Id {
        let (pointer, id) = (self.pointer_type(StorageClass::Function, ty), self.id());
        let operands = vec![Operand::StorageClass(StorageClass::Function)];
        let mut state = self.state.borrow_mut();
        state.filling.variables.push(Instruction::new(Op::Variable, Some(pointer), Some(id), operands));
        state.type_of.insert(id, pointer);
        id
    }

    /// Emits into the first block, which runs once, before all else.
    pub fn at_entry<R>(&self, f: impl FnOnce() -> R) -> R {
        if std::mem::replace(&mut self.state.borrow_mut().filling.is_in_entry, true) {
            return f();
        }
        let swap = || {
            let mut state = self.state.borrow_mut();
            let filling = &mut state.filling;
            std::mem::swap(&mut filling.block.instructions, &mut filling.entry);
        };
        let was_terminated = std::mem::replace(&mut self.state.borrow_mut().filling.is_terminated, false);
        swap();
        let r = f();
        swap();
        let mut state = self.state.borrow_mut();
        state.filling.is_terminated = was_terminated;
        state.filling.is_in_entry = false;
        r
    }

    /// Opens a block.
    pub fn position(&self, label: Id) {
        let mut state = self.state.borrow_mut();
        let filling = &mut state.filling;
        filling.label = label;
        filling.is_terminated = false;
        let label = Some(Instruction::new(Op::Label, None, Some(label), vec![]));
        filling.block = Block { label, instructions: Vec::new() };
    }

    /// The label of the open block.
    pub fn block(&self) -> Id {
        self.state.borrow().filling.label
    }

    /// The current block has ended.
    pub fn is_terminated(&self) -> bool {
        self.state.borrow().filling.is_terminated
    }

    /// Ends the block by these instructions.
    pub fn terminate(&self, with: Vec<Instruction>) {
        let mut state = self.state.borrow_mut();
        let filling = &mut state.filling;
        if filling.is_terminated {
            return;
        }
        filling.block.instructions.extend(with);
        filling.is_terminated = true;
        let block = std::mem::take(&mut filling.block);
        filling.function.blocks.push(block);
    }

    /// Sets an operand of an instruction of a block that has ended.
    pub fn patch(&self, label: Id, instruction: usize, operand: usize, value: Id) {
        let mut state = self.state.borrow_mut();
        let is_it = |b: &&mut Block| b.label.as_ref().and_then(|l| l.result_id) == Some(label);
        let block = state.filling.function.blocks.iter_mut().rev().find(is_it).expect("compiler bug: no such block");
        block.instructions[instruction].operands[operand] = Operand::IdRef(value);
    }

    // Instructions.

    /// Appends an instruction that yields a value.
    pub fn op(&self, op: Op, ty: Id, operands: Vec<Operand>) -> Id {
        let id = self.id();
        let mut state = self.state.borrow_mut();
        state.type_of.insert(id, ty);
        // Unreachable code is not generated.
        if !state.filling.is_terminated {
            state.filling.block.instructions.push(Instruction::new(op, Some(ty), Some(id), operands));
        }
        id
    }

    /// The same, of values only.
    pub fn of(&self, op: Op, ty: Id, operands: &[Id]) -> Id {
        self.op(op, ty, operands.iter().map(|o| Operand::IdRef(*o)).collect())
    }

    /// Appends an instruction that yields nothing.
    pub fn effect(&self, op: Op, operands: Vec<Operand>) {
        let mut state = self.state.borrow_mut();
        if !state.filling.is_terminated {
            state.filling.block.instructions.push(Instruction::new(op, None, None, operands));
        }
    }

    /// An instruction of GLSL's extended set, by its number.
    pub fn extended(&self, number: u32, ty: Id, operands: &[Id]) -> Id {
        let known = self.state.borrow().extended;
        let set = known.unwrap_or_else(|| {
            let id = self.id();
            let operands = vec![Operand::LiteralString("GLSL.std.450".into())];
            let mut state = self.state.borrow_mut();
            state.module.ext_inst_imports.push(Instruction::new(Op::ExtInstImport, None, Some(id), operands));
            state.extended = Some(id);
            id
        });
        let mut all = vec![Operand::IdRef(set), Operand::LiteralExtInstInteger(number)];
        all.extend(operands.iter().map(|o| Operand::IdRef(*o)));
        self.op(Op::ExtInst, ty, all)
    }

    /// The module, with its entry point.
    pub fn finish(self, entry: Id, name: &str) -> Module {
        let State { next, mut module, capabilities, extensions, interface, .. } = self.state.into_inner();
        let numbers = capabilities.into_iter().filter_map(Capability::from_u32);
        module.capabilities =
            numbers.map(|c| Instruction::new(Op::Capability, None, None, vec![Operand::Capability(c)])).collect();
        let extension =
            |e: &str| Instruction::new(Op::Extension, None, None, vec![Operand::LiteralString(e.to_owned())]);
        module.extensions = extensions.into_iter().map(extension).collect();
        let model = vec![
            Operand::AddressingModel(AddressingModel::PhysicalStorageBuffer64),
            Operand::MemoryModel(MemoryModel::Vulkan),
        ];
        module.memory_model = Some(Instruction::new(Op::MemoryModel, None, None, model));
        let mut operands = vec![
            Operand::ExecutionModel(ExecutionModel::GLCompute),
            Operand::IdRef(entry),
            Operand::LiteralString(name.to_owned()),
        ];
        operands.extend(interface.into_iter().map(Operand::IdRef));
        module.entry_points.push(Instruction::new(Op::EntryPoint, None, None, operands));
        // The block's real size is a constant that the driver sets.
        let mut modes = vec![(ExecutionMode::LocalSize, vec![1, 1, 1])];
        let has =
            |c: Capability| module.capabilities.iter().any(|i| i.operands.first() == Some(&Operand::Capability(c)));
        if has(Capability::SignedZeroInfNanPreserve) {
            let features = &self.features;
            let widths = [
                (16, features.special_float16 && has(Capability::Float16)),
                (32, features.special_float32),
                (64, features.special_float64 && has(Capability::Float64)),
            ];
            let used = widths.into_iter().filter(|(_, is)| *is);
            modes.extend(used.map(|(bits, _)| (ExecutionMode::SignedZeroInfNanPreserve, vec![bits])));
        }
        if has(Capability::RoundingModeRTE) {
            modes.push((ExecutionMode::RoundingModeRTE, vec![16]));
        }
        for (mode, literals) in modes {
            let mut operands = vec![Operand::IdRef(entry), Operand::ExecutionMode(mode)];
            operands.extend(literals.into_iter().map(Operand::LiteralBit32));
            module.execution_modes.push(Instruction::new(Op::ExecutionMode, None, None, operands));
        }
        let mut header = ModuleHeader::new(next);
        header.version = VERSION;
        module.header = Some(header);
        module
    }
}
