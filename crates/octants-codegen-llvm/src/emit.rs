//! A thin, uniform layer over LLVM's instruction builder: one method per instruction, with copyable handles.
//!
//! Assumes that every handle passed in belongs to the same [`Emitter`]: there is one emitter per compilation, and
//! handles never leave it. Instructions are appended at the end of a block. IR types, metadata and control flow are
//! handled elsewhere.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;

use inkwell::context::Context;
use inkwell::module::Module;
use llvm_sys::core::*;
use llvm_sys::prelude::*;
use llvm_sys::{LLVMAtomicOrdering, LLVMAtomicRMWBinOp};
use octants_ir::Scalar;

/// A value.
pub(crate) type V = LLVMValueRef;
/// A type.
pub(crate) type T = LLVMTypeRef;
/// A basic block.
pub(crate) type Bb = LLVMBasicBlockRef;

pub(crate) use llvm_sys::LLVMIntPredicate as IntCmp;
pub(crate) use llvm_sys::LLVMRealPredicate as FloatCmp;

pub(crate) const NO_NAME: *const std::ffi::c_char = c"".as_ptr();

/// Calls into LLVM with handles of this emitter.
macro_rules! llvm {
    ($($call:tt)*) => {
        // SAFETY: the handles belong to the emitter's context, which outlives the emitter (see the file's comment), and
        // the types fit by construction; the verifier checks the module in debug builds.
        unsafe { $($call)* }
    };
}
pub(crate) use llvm;

/// How atomic operations are marked for LLVM.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AtomicStyle {
    /// LLVM's name of the scope in which memory is shared by the threads that run a program; empty for all there are.
    pub scope: &'static str,
    /// The scope that includes the host.
    pub scope_with_host: &'static str,
    /// Kinds of metadata that assert properties of the program's memory.
    pub promises: &'static [&'static str],
}

/// Builds instructions into one module.
pub(crate) struct Emitter {
    pub ctx: LLVMContextRef,
    pub module: LLVMModuleRef,
    pub(crate) builder: LLVMBuilderRef,
    pub i1: T,
    pub i8: T,
    pub i16: T,
    pub i32: T,
    pub i64: T,
    pub f16: T,
    pub f32: T,
    pub f64: T,
    pub ptr: T,
    pub void: T,
    fast_math_flags: u32,
    /// Which threads atomic operations are ordered for: LLVM's number of a synchronization scope.
    scope: u32,
    /// The same for memory shared with the host.
    scope_with_host: u32,
    /// Kinds of metadata that atomic operations carry.
    atomic_promises: Vec<u32>,
    intrinsics: RefCell<HashMap<(&'static str, usize), V>>,
}

impl Drop for Emitter {
    fn drop(&mut self) {
        llvm!(LLVMDisposeBuilder(self.builder));
    }
}

/// A name as a C string; names of ours hold no NUL.
pub(crate) fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "_")).expect("compiler bug: a NUL byte in a name")
}

macro_rules! binary_instructions {
    ($($name:ident => $build:ident),* $(,)?) => {
        $(pub fn $name(&self, a: V, b: V) -> V {
            llvm!($build(self.builder, a, b, NO_NAME))
        })*
    };
}

macro_rules! float_instructions {
    ($($name:ident => $build:ident),* $(,)?) => {
        $(pub fn $name(&self, a: V, b: V) -> V {
            self.flagged(llvm!($build(self.builder, a, b, NO_NAME)))
        })*
    };
}

macro_rules! conversions {
    ($($name:ident => $build:ident),* $(,)?) => {
        $(pub fn $name(&self, v: V, to: T) -> V {
            llvm!($build(self.builder, v, to, NO_NAME))
        })*
    };
}

impl Emitter {
    /// An emitter into `module` of `context`.
    pub fn new(context: &Context, module: &Module<'_>, fast_math: bool, atomics: &AtomicStyle) -> Emitter {
        let ctx = context.raw();
        let scope = |name: &str| llvm!(LLVMGetSyncScopeID(ctx, name.as_ptr().cast(), name.len()));
        let (scope, scope_with_host) = (scope(atomics.scope), scope(atomics.scope_with_host));
        let kind = |name: &&str| llvm!(LLVMGetMDKindIDInContext(ctx, name.as_ptr().cast(), name.len() as u32));
        let atomic_promises = atomics.promises.iter().map(kind).collect();
        let flags = if fast_math {
            llvm_sys::LLVMFastMathAllowReassoc
                | llvm_sys::LLVMFastMathNoSignedZeros
                | llvm_sys::LLVMFastMathAllowReciprocal
                | llvm_sys::LLVMFastMathAllowContract
                | llvm_sys::LLVMFastMathApproxFunc
        } else {
            0
        };
        llvm!(Emitter {
            ctx,
            module: module.as_mut_ptr(),
            builder: LLVMCreateBuilderInContext(ctx),
            i1: LLVMInt1TypeInContext(ctx),
            i8: LLVMInt8TypeInContext(ctx),
            i16: LLVMInt16TypeInContext(ctx),
            i32: LLVMInt32TypeInContext(ctx),
            i64: LLVMInt64TypeInContext(ctx),
            f16: LLVMHalfTypeInContext(ctx),
            f32: LLVMFloatTypeInContext(ctx),
            f64: LLVMDoubleTypeInContext(ctx),
            ptr: LLVMPointerTypeInContext(ctx, 0),
            void: LLVMVoidTypeInContext(ctx),
            fast_math_flags: flags,
            scope,
            scope_with_host,
            atomic_promises,
            intrinsics: RefCell::default(),
        })
    }

    // Types and constants.

    /// The register type of a scalar.
    pub fn scalar(&self, s: Scalar) -> T {
        match s {
            Scalar::U1 => self.i1,
            Scalar::I8 | Scalar::U8 => self.i8,
            Scalar::I16 | Scalar::U16 => self.i16,
            Scalar::I32 | Scalar::U32 => self.i32,
            Scalar::I64 | Scalar::U64 => self.i64,
            Scalar::F16 => self.f16,
            Scalar::F32 => self.f32,
            Scalar::F64 => self.f64,
        }
    }

    /// The type of a scalar in memory: `u1` takes a byte.
    pub fn memory(&self, s: Scalar) -> T {
        if s == Scalar::U1 { self.i8 } else { self.scalar(s) }
    }

    /// The integer type with the bits of a scalar in memory.
    pub fn bits(&self, s: Scalar) -> T {
        match s.bytes() {
            1 => self.i8,
            2 => self.i16,
            4 => self.i32,
            _ => self.i64,
        }
    }

    pub fn struct_type(&self, members: &mut [T]) -> T {
        llvm!(LLVMStructTypeInContext(self.ctx, members.as_mut_ptr(), members.len() as u32, 0))
    }

    pub fn array_type(&self, of: T, n: u64) -> T {
        llvm!(LLVMArrayType2(of, n))
    }

    pub fn vector_type(&self, of: T, lanes: u32) -> T {
        llvm!(LLVMVectorType(of, lanes))
    }

    pub fn function_type(&self, ret: T, params: &mut [T]) -> T {
        llvm!(LLVMFunctionType(ret, params.as_mut_ptr(), params.len() as u32, 0))
    }

    /// An integer constant; bits beyond the type's width are dropped.
    pub fn int(&self, ty: T, value: i64) -> V {
        let unused = llvm!(64 - LLVMGetIntTypeWidth(ty));
        llvm!(LLVMConstInt(ty, (value << unused >> unused) as u64, 1))
    }

    pub fn i64c(&self, value: i64) -> V {
        self.int(self.i64, value)
    }

    pub fn i32c(&self, value: i64) -> V {
        self.int(self.i32, value)
    }

    pub fn real(&self, ty: T, value: f64) -> V {
        llvm!(LLVMConstReal(ty, value))
    }

    pub fn zero(&self, ty: T) -> V {
        llvm!(LLVMConstNull(ty))
    }

    pub fn undef(&self, ty: T) -> V {
        llvm!(LLVMGetUndef(ty))
    }

    pub fn type_of(&self, v: V) -> T {
        llvm!(LLVMTypeOf(v))
    }

    /// The value of an integer constant.
    pub fn as_int(&self, v: V) -> Option<i64> {
        llvm!(if LLVMIsAConstantInt(v).is_null() { None } else { Some(LLVMConstIntGetSExtValue(v)) })
    }

    /// The value of a float constant.
    pub fn as_real(&self, v: V) -> Option<f64> {
        let mut lossy = 0;
        llvm!(if LLVMIsAConstantFP(v).is_null() { None } else { Some(LLVMConstRealGetDouble(v, &mut lossy)) })
    }

    // Blocks and functions.

    pub fn add_function(&self, name: &str, ty: T) -> V {
        let name = c_string(name);
        llvm!(LLVMAddFunction(self.module, name.as_ptr(), ty))
    }

    /// A function of the C library, declared once.
    pub fn declare(&self, name: &str, ret: T, params: &mut [T]) -> V {
        let c_name = c_string(name);
        let known = llvm!(LLVMGetNamedFunction(self.module, c_name.as_ptr()));
        if known.is_null() { self.add_function(name, self.function_type(ret, params)) } else { known }
    }

    pub fn set_internal(&self, f: V) {
        llvm!(LLVMSetLinkage(f, llvm_sys::LLVMLinkage::LLVMInternalLinkage));
    }

    pub fn param(&self, f: V, i: usize) -> V {
        llvm!(LLVMGetParam(f, i as u32))
    }

    pub fn add_block(&self, f: V, name: &std::ffi::CStr) -> Bb {
        llvm!(LLVMAppendBasicBlockInContext(self.ctx, f, name.as_ptr()))
    }

    pub fn position(&self, bb: Bb) {
        llvm!(LLVMPositionBuilderAtEnd(self.builder, bb));
    }

    pub fn block(&self) -> Bb {
        llvm!(LLVMGetInsertBlock(self.builder))
    }

    /// The function that holds the insertion point.
    pub fn function(&self) -> V {
        llvm!(LLVMGetBasicBlockParent(self.block()))
    }

    /// Emits into another block, then goes back.
    pub fn in_block<R>(&self, bb: Bb, f: impl FnOnce() -> R) -> R {
        let here = self.block();
        self.position(bb);
        let r = f();
        self.position(here);
        r
    }

    /// The current block already ends.
    pub fn is_terminated(&self) -> bool {
        llvm!(!LLVMGetBasicBlockTerminator(self.block()).is_null())
    }

    pub fn br(&self, to: Bb) -> V {
        llvm!(LLVMBuildBr(self.builder, to))
    }

    pub fn cond_br(&self, c: V, then: Bb, otherwise: Bb) -> V {
        llvm!(LLVMBuildCondBr(self.builder, c, then, otherwise))
    }

    pub fn ret(&self, v: V) {
        llvm!(LLVMBuildRet(self.builder, v));
    }

    pub fn ret_void(&self) {
        llvm!(LLVMBuildRetVoid(self.builder));
    }

    pub fn phi(&self, ty: T) -> V {
        llvm!(LLVMBuildPhi(self.builder, ty, NO_NAME))
    }

    pub fn add_incoming(&self, phi: V, value: V, from: Bb) {
        let (mut value, mut from) = (value, from);
        llvm!(LLVMAddIncoming(phi, &mut value, &mut from, 1));
    }

    pub fn call(&self, f: V, args: &[V]) -> V {
        let mut args = args.to_vec();
        llvm!(LLVMBuildCall2(self.builder, LLVMGlobalGetValueType(f), f, args.as_mut_ptr(), args.len() as u32, NO_NAME))
    }

    pub fn call_pointer(&self, f: V, ty: T, args: &[V]) -> V {
        let mut args = args.to_vec();
        llvm!(LLVMBuildCall2(self.builder, ty, f, args.as_mut_ptr(), args.len() as u32, NO_NAME))
    }

    /// An inline assembly instruction without operands, with its clobbers.
    pub fn assembly(&self, text: &str, touches: &str) {
        let [text, touches] = [text, touches].map(|t| (t.as_ptr().cast_mut().cast(), t.len()));
        let (ty, att) =
            (self.function_type(self.void, &mut []), llvm_sys::LLVMInlineAsmDialect::LLVMInlineAsmDialectATT);
        let code = llvm!(LLVMGetInlineAsm(ty, text.0, text.1, touches.0, touches.1, 1, 0, att, 0));
        llvm!(LLVMBuildCall2(self.builder, ty, code, std::ptr::null_mut(), 0, NO_NAME));
    }

    /// Reads a register of the processor by its name, each time again.
    pub fn read_register(&self, name: &str, ty: T) -> V {
        let name = llvm!({
            let text = LLVMMDStringInContext2(self.ctx, name.as_ptr().cast(), name.len());
            LLVMMetadataAsValue(self.ctx, LLVMMDNodeInContext2(self.ctx, [text].as_mut_ptr(), 1))
        });
        self.intrinsic("llvm.read_volatile_register", ty, &[name])
    }

    /// Calls an LLVM intrinsic overloaded on one type.
    pub fn intrinsic(&self, name: &'static str, ty: T, args: &[V]) -> V {
        let f = *self.intrinsics.borrow_mut().entry((name, ty as usize)).or_insert_with(|| {
            let mut ty = ty;
            llvm!({
                let id = LLVMLookupIntrinsicID(name.as_ptr().cast(), name.len());
                assert!(id != 0, "compiler bug: no intrinsic {name}");
                LLVMGetIntrinsicDeclaration(self.module, id, &mut ty, 1)
            })
        });
        self.flagged(self.call(f, args))
    }

    // Arithmetic.

    /// Adds the fast-math flags of the compilation, if the instruction takes them.
    pub fn flagged(&self, v: V) -> V {
        llvm!(
            if self.fast_math_flags != 0 && !LLVMIsAInstruction(v).is_null() && LLVMCanValueUseFastMathFlags(v) != 0 {
                LLVMSetFastMathFlags(v, self.fast_math_flags);
            }
        );
        v
    }

    /// Lets a float operation yield a zero of either sign.
    pub fn without_signs_of_zeros(&self, v: V) -> V {
        llvm!(if !LLVMIsAInstruction(v).is_null() {
            LLVMSetFastMathFlags(v, LLVMGetFastMathFlags(v) | llvm_sys::LLVMFastMathNoSignedZeros);
        });
        v
    }

    /// Promises that an integer operation does not wrap in the signed sense.
    pub fn no_signed_wrap(&self, v: V) -> V {
        llvm!(if !LLVMIsAInstruction(v).is_null() {
            LLVMSetNSW(v, 1);
        });
        v
    }

    binary_instructions! {
        add => LLVMBuildAdd, sub => LLVMBuildSub, mul => LLVMBuildMul, sdiv => LLVMBuildSDiv, udiv => LLVMBuildUDiv,
        srem => LLVMBuildSRem, urem => LLVMBuildURem, and => LLVMBuildAnd, or => LLVMBuildOr, xor => LLVMBuildXor,
        shl => LLVMBuildShl, ashr => LLVMBuildAShr, lshr => LLVMBuildLShr, add_nsw => LLVMBuildNSWAdd,
        sub_nsw => LLVMBuildNSWSub, mul_nsw => LLVMBuildNSWMul,
    }

    float_instructions! {
        fadd => LLVMBuildFAdd, fsub => LLVMBuildFSub, fmul => LLVMBuildFMul, fdiv => LLVMBuildFDiv, frem => LLVMBuildFRem,
    }

    conversions! {
        trunc => LLVMBuildTrunc, zext => LLVMBuildZExt, sext => LLVMBuildSExt, bitcast => LLVMBuildBitCast,
        fptosi => LLVMBuildFPToSI, fptoui => LLVMBuildFPToUI, sitofp => LLVMBuildSIToFP, uitofp => LLVMBuildUIToFP,
        ptrtoint => LLVMBuildPtrToInt, fpext => LLVMBuildFPExt, fptrunc => LLVMBuildFPTrunc,
    }

    pub fn fneg(&self, v: V) -> V {
        self.flagged(llvm!(LLVMBuildFNeg(self.builder, v, NO_NAME)))
    }

    pub fn not(&self, v: V) -> V {
        llvm!(LLVMBuildNot(self.builder, v, NO_NAME))
    }

    pub fn neg(&self, v: V) -> V {
        llvm!(LLVMBuildNeg(self.builder, v, NO_NAME))
    }

    pub fn freeze(&self, v: V) -> V {
        llvm!(LLVMBuildFreeze(self.builder, v, NO_NAME))
    }

    pub fn icmp(&self, p: IntCmp, a: V, b: V) -> V {
        llvm!(LLVMBuildICmp(self.builder, p, a, b, NO_NAME))
    }

    /// Comparisons carry no flags: `isnan` and `isinf` must keep their meaning.
    pub fn fcmp(&self, p: FloatCmp, a: V, b: V) -> V {
        llvm!(LLVMBuildFCmp(self.builder, p, a, b, NO_NAME))
    }

    pub fn select(&self, c: V, a: V, b: V) -> V {
        self.flagged(llvm!(LLVMBuildSelect(self.builder, c, a, b, NO_NAME)))
    }

    pub fn extract_value(&self, v: V, i: usize) -> V {
        llvm!(LLVMBuildExtractValue(self.builder, v, i as u32, NO_NAME))
    }

    pub fn insert_value(&self, v: V, part: V, i: usize) -> V {
        llvm!(LLVMBuildInsertValue(self.builder, v, part, i as u32, NO_NAME))
    }

    // Memory.

    /// A pointer in another address space than the common one.
    pub fn pointer_in(&self, space: u32) -> T {
        llvm!(LLVMPointerTypeInContext(self.ctx, space))
    }

    pub fn address_space_cast(&self, v: V, to: T) -> V {
        llvm!(LLVMBuildAddrSpaceCast(self.builder, v, to, NO_NAME))
    }

    /// The memory of this name, created on first use.
    pub fn named_memory(&self, name: &str, ty: T, space: u32, align: u32) -> V {
        let known = llvm!(LLVMGetNamedGlobal(self.module, c_string(name).as_ptr()));
        if known.is_null() { self.add_memory(name, ty, space, align) } else { known }
    }

    /// Memory by its name. Its size is unknown to the module.
    pub fn external_memory(&self, name: &str, ty: T, space: u32, align: u32) -> V {
        let name = c_string(name);
        llvm!({
            let known = LLVMGetNamedGlobal(self.module, name.as_ptr());
            if !known.is_null() {
                return known;
            }
            let memory = LLVMAddGlobalInAddressSpace(self.module, ty, name.as_ptr(), space);
            LLVMSetAlignment(memory, align);
            memory
        })
    }

    /// Memory of the module's own in an address space, undefined at first.
    pub fn add_memory(&self, name: &str, ty: T, space: u32, align: u32) -> V {
        let name = c_string(name);
        llvm!({
            let memory = LLVMAddGlobalInAddressSpace(self.module, ty, name.as_ptr(), space);
            LLVMSetInitializer(memory, LLVMGetUndef(ty));
            LLVMSetLinkage(memory, llvm_sys::LLVMLinkage::LLVMInternalLinkage);
            LLVMSetAlignment(memory, align);
            memory
        })
    }

    /// Sets a module flag, which the linker and passes read; of two values, the larger one wins.
    pub fn set_module_flag(&self, key: &str, value: i64) {
        let behavior = llvm_sys::LLVMModuleFlagBehavior::LLVMModuleFlagBehaviorWarning;
        llvm!({
            let value = LLVMValueAsMetadata(self.i32c(value));
            LLVMAddModuleFlag(self.module, behavior, key.as_ptr().cast(), key.len(), value);
        });
    }

    /// Memory of the function, as a common pointer.
    pub fn alloca(&self, ty: T, align: u32) -> V {
        let v = llvm!(LLVMBuildAlloca(self.builder, ty, NO_NAME));
        llvm!(LLVMSetAlignment(v, align));
        if self.type_of(v) == self.ptr { v } else { self.address_space_cast(v, self.ptr) }
    }

    /// The value is memory that [`Emitter::alloca`] made.
    pub fn is_alloca(&self, v: V) -> bool {
        llvm!({
            let cast = !LLVMIsAAddrSpaceCastInst(v).is_null();
            !LLVMIsAAllocaInst(if cast { LLVMGetOperand(v, 0) } else { v }).is_null()
        })
    }

    /// `base + offset * size_of(ty)`, inside one object.
    pub fn gep(&self, ty: T, base: V, offset: V) -> V {
        let mut offset = offset;
        llvm!(LLVMBuildInBoundsGEP2(self.builder, ty, base, &mut offset, 1, NO_NAME))
    }

    /// `base` moved by a number of bytes.
    pub fn byte_offset(&self, base: V, bytes: i64) -> V {
        if bytes == 0 { base } else { self.gep(self.i8, base, self.i64c(bytes)) }
    }

    pub fn load(&self, ty: T, ptr: V, align: u32) -> V {
        let v = llvm!(LLVMBuildLoad2(self.builder, ty, ptr, NO_NAME));
        llvm!(LLVMSetAlignment(v, align));
        v
    }

    pub fn store(&self, ptr: V, value: V, align: u32) -> V {
        let v = llvm!(LLVMBuildStore(self.builder, value, ptr));
        llvm!(LLVMSetAlignment(v, align));
        v
    }

    pub fn memset_zero(&self, ptr: V, bytes: u64, align: u32) {
        llvm!(LLVMBuildMemSet(self.builder, ptr, self.zero(self.i8), self.i64c(bytes as i64), align));
    }

    pub fn atomic_rmw(&self, op: LLVMAtomicRMWBinOp, ptr: V, value: V) -> V {
        let v = self.atomic_rmw_in(self.scope, op, ptr, value);
        self.atomic_promises.iter().for_each(|kind| self.note(v, *kind));
        v
    }

    /// The same on memory that the host shares.
    pub fn atomic_rmw_with_host(&self, op: LLVMAtomicRMWBinOp, ptr: V, value: V) -> V {
        self.atomic_rmw_in(self.scope_with_host, op, ptr, value)
    }

    fn atomic_rmw_in(&self, scope: u32, op: LLVMAtomicRMWBinOp, ptr: V, value: V) -> V {
        let order = LLVMAtomicOrdering::LLVMAtomicOrderingMonotonic;
        llvm!(LLVMBuildAtomicRMWSyncScope(self.builder, op, ptr, value, order, scope))
    }

    /// LLVM's number of a kind of metadata.
    pub fn metadata_kind(&self, name: &str) -> u32 {
        llvm!(LLVMGetMDKindIDInContext(self.ctx, name.as_ptr().cast(), name.len() as u32))
    }

    /// Adds metadata without content.
    pub fn note(&self, v: V, kind: u32) {
        llvm!({
            let empty = LLVMMDNodeInContext2(self.ctx, std::ptr::null_mut(), 0);
            LLVMSetMetadata(v, kind, LLVMMetadataAsValue(self.ctx, empty));
        });
    }

    /// Yields `{ old, i1 success }`.
    pub fn cmpxchg(&self, ptr: V, expected: V, desired: V) -> V {
        self.cmpxchg_in(self.scope, ptr, expected, desired)
    }

    /// The same on memory that the host shares.
    pub fn cmpxchg_with_host(&self, ptr: V, expected: V, desired: V) -> V {
        self.cmpxchg_in(self.scope_with_host, ptr, expected, desired)
    }

    fn cmpxchg_in(&self, scope: u32, ptr: V, expected: V, desired: V) -> V {
        let order = LLVMAtomicOrdering::LLVMAtomicOrderingMonotonic;
        llvm!(LLVMBuildAtomicCmpXchgSyncScope(self.builder, ptr, expected, desired, order, order, scope))
    }

    /// Earlier writes of this thread are visible to a thread that passes a fence after it.
    pub fn fence(&self) {
        self.fence_in("", LLVMAtomicOrdering::LLVMAtomicOrderingAcquireRelease);
    }

    /// The same for the threads of a scope.
    pub fn fence_in(&self, scope: &str, order: LLVMAtomicOrdering) {
        llvm!({
            let scope = LLVMGetSyncScopeID(self.ctx, scope.as_ptr().cast(), scope.len());
            LLVMBuildFenceSyncScope(self.builder, order, scope, NO_NAME);
        });
    }

    pub fn set_volatile(&self, access: V) {
        llvm!(LLVMSetVolatile(access, 1));
    }

    pub fn set_monotonic(&self, access: V) {
        llvm!({
            LLVMSetOrdering(access, LLVMAtomicOrdering::LLVMAtomicOrderingMonotonic);
            LLVMSetAtomicSyncScopeID(access, self.scope);
        });
    }
}
