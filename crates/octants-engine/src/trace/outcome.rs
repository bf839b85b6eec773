//! The outcome of a compilation other than its code: the stored form and the form in use.

use std::sync::Arc;

use octants_artifact::{
    ArgumentPlan, ArraySource, ArrayType, Outcome, ParamSource, Reach as StoredReach, ScalarKind, StoredWarning,
    ValueType, WarningKind,
};
use octants_diag::{Code, Diagnostic, Sources, Span};
use octants_frontend::{Capture, Lowered, NdarrayDesc, Obj, Reach};
use octants_ir::{ArgLayout, Scalar, StructType, Type};
use octants_runtime::Pointer;

/// How the outside's objects fill the arguments of a kernel: see [`Lowered`] for the members.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Binding {
    pub buffers: Vec<Option<Capture>>,
    pub roots: Vec<u32>,
    pub params: Vec<(u32, Vec<String>)>,
    pub returns: Vec<Obj>,
    pub checkpoints: Vec<(i64, Obj)>,
}

impl Binding {
    /// The binding of a kernel that was just lowered.
    pub fn of(lowered: &Lowered) -> Binding {
        Binding {
            buffers: lowered.buffers.clone(),
            roots: lowered.roots.clone(),
            params: lowered.params.clone(),
            returns: lowered.returns.clone(),
            checkpoints: lowered.checkpoints.clone(),
        }
    }
}

/// Binding, layout and addresses, to be stored.
pub(super) fn argument_plan(
    binding: &Binding,
    layout: &ArgLayout,
    (pointers, exposes_addresses): (&[Pointer], bool),
) -> ArgumentPlan {
    let buffer = |(capture, slot): (&Option<Capture>, &Option<u32>)| Some((source_of(capture.as_ref()?), (*slot)?));
    let params = binding.params.iter().zip(&layout.params).zip(&layout.param_leaves);
    ArgumentPlan {
        roots: binding.roots.clone(),
        buffers: binding.buffers.iter().zip(&layout.buffers).map(buffer).collect(),
        params: params
            .map(|(((index, path), slot), leaves)| ParamSource {
                index: *index,
                path: path.clone(),
                slot: *slot,
                leaves: leaves.iter().copied().map(kind_of).collect(),
            })
            .collect(),
        slots: layout.slots,
        pointers: pointers.to_vec(),
        exposes_addresses,
    }
}

/// What [`argument_plan`] was made from.
pub(super) fn binding_and_layout(outcome: &Outcome) -> (Binding, ArgLayout, Vec<Pointer>) {
    let plan = &outcome.arguments;
    let sources = plan.buffers.iter().map(|b| b.as_ref().map(|(source, _)| capture_of(source)));
    let binding = Binding {
        buffers: sources.collect(),
        roots: plan.roots.clone(),
        params: plan.params.iter().map(|p| (p.index, p.path.clone())).collect(),
        returns: outcome.returns.iter().copied().map(Obj).collect(),
        checkpoints: outcome.checkpoints.iter().map(|&(label, object)| (label, Obj(object))).collect(),
    };
    let layout = ArgLayout {
        roots: (0..plan.roots.len() as u32).collect(),
        buffers: plan.buffers.iter().map(|b| b.as_ref().map(|(_, slot)| *slot)).collect(),
        params: plan.params.iter().map(|p| p.slot).collect(),
        param_leaves: plan.params.iter().map(|p| p.leaves.iter().copied().map(scalar_of).collect()).collect(),
        slots: plan.slots,
    };
    (binding, layout, plan.pointers.clone())
}

fn source_of(capture: &Capture) -> ArraySource {
    match capture {
        Capture::Arg { index, path } => ArraySource::Argument(*index, path.clone()),
        Capture::ShadowBuffer { index, path, desc } => {
            let NdarrayDesc {
                elem,
                ndim,
                contiguous,
                reach,
                clamped,
                needs_grad,
                needs_dual: _,
                is_view: _,
                split_axis: _,
            } = desc;
            let array = ArrayType {
                element: type_to_stored(elem),
                axes: *ndim,
                contiguous: *contiguous,
                reach: reach_to_stored(*reach),
                clamped: *clamped,
                needs_grad: *needs_grad,
            };
            ArraySource::ShadowBuffer(*index, path.clone(), array)
        }
        Capture::Object { obj, from } => ArraySource::Object(obj.0, from.clone()),
    }
}

fn capture_of(source: &ArraySource) -> Capture {
    match source {
        ArraySource::Argument(index, path) => Capture::Arg { index: *index, path: path.clone() },
        ArraySource::ShadowBuffer(index, path, array) => Capture::ShadowBuffer {
            index: *index,
            path: path.clone(),
            desc: NdarrayDesc {
                elem: type_of(&array.element),
                ndim: array.axes,
                contiguous: array.contiguous,
                reach: reach_of(array.reach),
                clamped: array.clamped,
                needs_grad: array.needs_grad,
                needs_dual: false,
                is_view: false,
                split_axis: None,
            },
        },
        ArraySource::Object(obj, from) => Capture::Object { obj: Obj(*obj), from: from.clone() },
    }
}

fn reach_to_stored(reach: Reach) -> StoredReach {
    match reach {
        Reach::Short => StoredReach::Short,
        Reach::Long => StoredReach::Long,
        Reach::Wide => StoredReach::Wide,
    }
}

fn reach_of(stored: StoredReach) -> Reach {
    match stored {
        StoredReach::Short => Reach::Short,
        StoredReach::Long => Reach::Long,
        StoredReach::Wide => Reach::Wide,
    }
}

/// A type of the IR, as it is stored.
pub(super) fn type_to_stored(ty: &Type) -> ValueType {
    match ty {
        Type::Unit => ValueType::Nothing,
        Type::Scalar(s) => ValueType::Scalar(kind_of(*s)),
        Type::Vector(s, n) => ValueType::Vector(kind_of(*s), *n),
        Type::Matrix(s, n, m) => ValueType::Matrix(kind_of(*s), *n, *m),
        Type::Struct(s) => {
            let members = s.members.iter().map(|(name, ty)| (name.clone(), type_to_stored(ty)));
            ValueType::Struct(s.name.clone(), members.collect())
        }
        Type::Ref(_) => panic!("compiler bug: an address among a kernel's results or elements"),
    }
}

/// The type that [`type_to_stored`] was given.
pub(super) fn type_of(stored: &ValueType) -> Type {
    match stored {
        ValueType::Nothing => Type::Unit,
        ValueType::Scalar(s) => Type::Scalar(scalar_of(*s)),
        ValueType::Vector(s, n) => Type::Vector(scalar_of(*s), *n),
        ValueType::Matrix(s, n, m) => Type::Matrix(scalar_of(*s), *n, *m),
        ValueType::Struct(name, members) => Type::Struct(Arc::new(StructType {
            name: name.clone(),
            members: members.iter().map(|(name, ty)| (name.clone(), type_of(ty))).collect(),
        })),
    }
}

const KINDS: [(Scalar, ScalarKind); 12] = [
    (Scalar::U1, ScalarKind::U1),
    (Scalar::I8, ScalarKind::I8),
    (Scalar::I16, ScalarKind::I16),
    (Scalar::I32, ScalarKind::I32),
    (Scalar::I64, ScalarKind::I64),
    (Scalar::U8, ScalarKind::U8),
    (Scalar::U16, ScalarKind::U16),
    (Scalar::U32, ScalarKind::U32),
    (Scalar::U64, ScalarKind::U64),
    (Scalar::F16, ScalarKind::F16),
    (Scalar::F32, ScalarKind::F32),
    (Scalar::F64, ScalarKind::F64),
];

pub(crate) fn kind_of(scalar: Scalar) -> ScalarKind {
    KINDS.iter().find(|(s, _)| *s == scalar).expect("compiler bug: a scalar type without a kind").1
}

fn scalar_of(kind: ScalarKind) -> Scalar {
    KINDS.iter().find(|(_, k)| *k == kind).expect("compiler bug: a kind without a scalar type").0
}

/// A warning of the front end as the user sees it.
pub fn stored_warning(warning: &Diagnostic, sources: &Sources) -> StoredWarning {
    let text = match &warning.hint {
        Some(hint) => format!("{}; {hint}", warning.message),
        None => warning.message.clone(),
    };
    let is_library = |span: Span| sources.get(span.file).is_some_and(|file| file.is_library);
    let place = warning.span.map(|s| s.outermost_call().filter(|_| is_library(s)).unwrap_or(s));
    let place = place.and_then(|s| Some((sources.get(s.file)?.path.clone(), sources.position(s)?.line)));
    let about = match warning.code {
        Code::Syntax => WarningKind::Syntax,
        Code::Deprecated => WarningKind::Deprecation,
        _ => WarningKind::Effect,
    };
    StoredWarning { text, place, about }
}
