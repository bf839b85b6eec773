//! Fingerprints: questions and answers as 16 bytes of a cryptographic hash. Types are hashed member by member, here or
//! by a derived `Hash`, so a new member cannot be left out: the code does not compile without it.

use std::hash::Hash;

use octants_artifact::{Fingerprint, KeyBuilder, Lookup};
use octants_diag::SourceFile;
use octants_frontend::{Entity, FuncSource, WorldResult};

use super::answer::Answer;

/// The fingerprint of a question and its answer.
pub(super) fn fingerprint(lookup: &Lookup, answer: &Answer) -> Fingerprint {
    let mut all = KeyBuilder::new();
    lookup.hash(&mut all);
    match answer {
        Answer::Entity(entity) => add_entity(&mut all, entity),
        Answer::Object(result) => add_result(&mut all, result),
        Answer::Perhaps(result) => add_result(&mut all, result),
        Answer::Truth(result) => add_result(&mut all, result),
        Answer::Objects(result) => add_result(&mut all, result),
        Answer::Text(result) => add_result(&mut all, result),
        Answer::Source(Ok(source)) => add_source(&mut all, source),
        Answer::Source(Err(error)) => error.message.hash(&mut all),
    }
    let mut out = Fingerprint::default();
    out.copy_from_slice(&all.key().bytes()[..16]);
    out
}

/// The number of an exception is left out: it counts those of this compilation.
fn add_result<T: Hash>(all: &mut KeyBuilder, result: &WorldResult<T>) {
    result.as_ref().map_err(|e| &e.message).hash(all);
}

fn add_source(all: &mut KeyBuilder, source: &FuncSource) {
    let FuncSource { file, name, params, returns, requires_top_level, pure, graph } = source;
    let SourceFile { path, text, first_line, is_library } = &**file;
    (path, text, first_line, is_library).hash(all);
    (name, params, returns, requires_top_level, pure, graph).hash(all);
}

fn add_entity(all: &mut KeyBuilder, entity: &Entity) {
    std::mem::discriminant(entity).hash(all);
    match entity {
        Entity::None | Entity::Opaque => {}
        Entity::Bool(b) => b.hash(all),
        Entity::Int(i) => i.hash(all),
        Entity::Float(x) => x.to_bits().hash(all),
        Entity::Str(s) | Entity::Builtin(s) => s.hash(all),
        Entity::Member(plain) => add_entity(all, plain),
        Entity::Tuple(items) | Entity::List(items) => items.hash(all),
        Entity::Live(scalar) | Entity::Dtype(scalar) => scalar.hash(all),
        Entity::TensorType(ty) | Entity::AnyTensorType(ty) => ty.hash(all),
        Entity::StructType { name, members } => (name, members).hash(all),
        Entity::TensorConst { ty, values, is_numpy } => {
            (ty, is_numpy).hash(all);
            values.len().hash(all);
            values.iter().for_each(|value| add_entity(all, value));
        }
        Entity::StructConst { ty, members } => (ty, members).hash(all),
        Entity::Field(field) => field.hash(all),
        Entity::StructField(members) | Entity::DataclassType(members) => members.hash(all),
        Entity::ReorderedField { field, positions } => (field, positions).hash(all),
        Entity::MeshElements { kind, count } => (kind, count).hash(all),
        Entity::Ndarray(array) => array.hash(all),
        Entity::SparseCells { state, index } => (state, index).hash(all),
        Entity::Func(kind) => kind.hash(all),
        Entity::Broken(why) => why.message.hash(all),
        Entity::Method(function, receiver) => (function, receiver).hash(all),
        Entity::Partial { func, args, keywords } => (func, args, keywords).hash(all),
    }
}
