//! The parser of one operation: its name and its operands. The caller parses nested blocks.

use crate::lex::Token;
use crate::matrix_product::{FragmentAxis, FragmentElement, FragmentRole, ProductKind};
use crate::op::*;
use crate::operation_table::{AtomicOp, BinaryOp, GridValue, ReduceOp, SubgroupOp, UnaryOp};
use crate::parser::{Parsed, Parser};

/// Placeholder in a control operation until the caller has parsed its block.
const NO_BLOCK: BlockId = BlockId(0);

/// Reads an operation.
pub(crate) fn parse_op(p: &mut Parser) -> Parsed<Op> {
    let word = p.any_word()?;
    Ok(match word.as_str() {
        "const" => match p.next() {
            Token::Int(i) => Op::Const(Const::Int(i)),
            Token::Float(f) => Op::Const(Const::Float(f)),
            _ => return p.fail("expected a number"),
        },
        "param" => Op::Param(p.int()?),
        "select" => Op::Select(p.value()?, next_value(p)?, next_value(p)?),
        "balance" => Op::Balance {
            number: p.value()?,
            weight: next_value(p)?,
            end: next_value(p)?,
            heaviest_first: p.eat_word("heaviest_first"),
        },
        "freeze" => Op::Freeze(p.value()?),
        "grid" => Op::Grid(named(p, GridValue::from_name, "position in the grid")?),
        "fragment_index" => Op::FragmentIndex(fragment_element(p)?),
        "barrier" => Op::Barrier(thread_scope(p)?),
        "fence" => Op::Fence(thread_scope(p)?),
        "block_count" => Op::BlockCount(p.value()?),
        "subgroup" => {
            let op = named(p, SubgroupOp::from_name, "operation of a subgroup")?;
            Op::Subgroup(op, values(p, "(", ")")?)
        }
        "cast" => Op::Cast(p.value()?),
        "bitcast" => Op::Bitcast(p.value()?),
        "address_bits" => Op::AddressBits(p.value()?),
        "make_tensor" => Op::MakeTensor(values(p, "(", ")")?),
        "splat" => Op::Splat(p.value()?),
        "make_struct" => Op::MakeStruct(values(p, "(", ")")?),
        "extract" => Op::Extract(p.value()?, next_int(p)?),
        "extract_dyn" => Op::ExtractDyn(p.value()?, values(p, "[", "]")?),
        "matmul" => Op::MatMul(p.value()?, next_value(p)?),
        "transpose" => Op::Transpose(p.value()?),
        "fold" => Op::Fold(named(p, ReduceOp::from_name, "fold")?, p.value()?),
        "shape" => Op::Shape(BufferId(p.id('@')?), next_int(p)?),
        "random" => Op::Random,
        "random_at" => Op::RandomAt(p.value()?, next_value(p)?),
        "clock" => Op::Clock,
        "local_addr" => Op::LocalAddr(LocalId(p.id('$')?)),
        "buffer_addr" => Op::BufferAddr(BufferId(p.id('@')?), values(p, "[", "]")?),
        "frame_addr" => match p.numbered("frame") {
            Some(slot) => Op::FrameAddr(FrameSlot(slot)),
            None => return p.fail("expected a frame slot"),
        },
        "element_addr" => Op::ElementAddr(p.value()?, values(p, "[", "]")?),
        "member_addr" => Op::MemberAddr(p.value()?, next_int(p)?),
        "load" => Op::Load(p.value()?),
        "vector_load" => Op::VectorLoad(p.value()?),
        "vector_store" => Op::VectorStore(p.value()?, next_value(p)?),
        "load_matrices" => Op::LoadMatrices(p.value()?, p.eat_word("transposed")),
        "copy_async" => Op::CopyAsync(p.value()?, next_value(p)?),
        "await_copies" => Op::AwaitCopies,
        "prefetch" => Op::Prefetch(p.value()?),
        "volatile_load" => Op::VolatileLoad(p.value()?),
        "store" => Op::Store(p.value()?, next_value(p)?),
        "atomic" => Op::Atomic(named(p, AtomicOp::from_name, "atomic operation")?, p.value()?, next_value(p)?),
        "atomic_cas" => Op::AtomicCas(p.value()?, next_value(p)?, next_value(p)?),
        "reduce" => Op::Reduce(p.int()?, next_value(p)?),
        "if" => Op::If(p.value()?, NO_BLOCK, NO_BLOCK),
        "for" => for_loop(p)?,
        "loop" => Op::Loop(NO_BLOCK),
        "loop_index" => Op::LoopIndex(p.value()?, next_int(p)?),
        "checkpoint" => Op::Checkpoint(p.int()?, p.value()?),
        "section" => Op::Section(p.loop_group()?),
        "break" => Op::Break,
        "continue" => Op::Continue,
        "return" => Op::Return(returned(p)?),
        "call" => match p.numbered("fn") {
            Some(f) => Op::Call(FuncId(f), values(p, "(", ")")?),
            None => return p.fail("expected a function"),
        },
        "print" => Op::Print(parts(p)?),
        "assert" => {
            let c = p.value()?;
            p.sign(",")?;
            Op::Assert(c, parts(p)?)
        }
        other => match (UnaryOp::from_name(other), BinaryOp::from_name(other)) {
            (Some(op), _) => Op::Unary(op, p.value()?),
            (_, Some(op)) => Op::Binary(op, p.value()?, next_value(p)?),
            _ => return p.fail(format!("`{other}` is not an operation")),
        },
    })
}

/// `return %1`, but not the number of the next instruction, which cannot follow: a return ends its block.
fn returned(p: &mut Parser) -> Parsed<Option<ValueId>> {
    if matches!(p.peek(), Token::Id('%', _)) { p.value().map(Some) } else { Ok(None) }
}

/// A further operand.
fn next_value(p: &mut Parser) -> Parsed<ValueId> {
    p.sign(",")?;
    p.value()
}

/// The same if it is a number in the text.
fn next_int(p: &mut Parser) -> Parsed<u32> {
    p.sign(",")?;
    p.int()
}

fn values(p: &mut Parser, open: &str, close: &str) -> Parsed<Vec<ValueId>> {
    p.sign(open)?;
    p.list(close, Parser::value)
}

/// A word that names something; `what` describes it in the error.
fn named<T>(p: &mut Parser, from_name: impl Fn(&str) -> Option<T>, what: &str) -> Parsed<T> {
    let word = p.any_word()?;
    match from_name(&word) {
        Some(found) => Ok(found),
        None => p.fail(format!("`{word}` is not a known {what}")),
    }
}

fn fragment_element(p: &mut Parser) -> Parsed<FragmentElement> {
    Ok(FragmentElement {
        kind: named(p, ProductKind::from_name, "kind of product")?,
        role: named(p, FragmentRole::from_name, "role of a fragment")?,
        component: p.int()?,
        axis: named(p, FragmentAxis::from_name, "axis of a fragment")?,
    })
}

fn thread_scope(p: &mut Parser) -> Parsed<ThreadScope> {
    named(p, |word| ThreadScope::ALL.iter().copied().find(|s| s.name() == word), "scope of threads")
}

fn for_loop(p: &mut Parser) -> Parsed<Op> {
    p.sign("[")?;
    let dims = p.list("]", |p| {
        let begin = p.value()?;
        p.sign("..")?;
        Ok(Range { begin, end: p.value()? })
    })?;
    let parallel = if p.eat_word("parallel") { Some(p.config()?) } else { None };
    let mut reductions = Vec::new();
    if p.eat_word("reductions") {
        p.sign("(")?;
        reductions = p.list(")", |p| {
            let op = named(p, AtomicOp::from_name, "atomic operation")?;
            Ok(Reduction { op, target: p.value()?, plain: p.eat_word("plain") })
        })?;
    }
    let hints = if p.eat_word("hints") { loop_hints(p)? } else { LoopHints::default() };
    Ok(Op::For(Box::new(ForLoop { parallel, reductions, hints, ..ForLoop::serial(dims, NO_BLOCK) })))
}

fn loop_hints(p: &mut Parser) -> Parsed<LoopHints> {
    let mut hints = LoopHints::default();
    p.sign("(")?;
    p.list(")", |p| {
        let word = p.any_word()?;
        match word.as_str() {
            "unroll" => {
                let factor = p.int()?;
                let remainder_factor = if p.eat_word("remainder") { Some(p.int()?) } else { None };
                hints.unroll = Some(Unroll { factor, remainder_factor });
            }
            "independent" => hints.independent = true,
            "no_vectors" => hints.no_vectors = true,
            "masked" => hints.masked = true,
            "converged" => hints.converged = true,
            _ => match CodeSizeHint::ALL.iter().find(|hint| hint.name() == Some(word.as_str())) {
                Some(hint) => hints.code_size = *hint,
                None => return p.fail(format!("`{word}` is not a hint for a loop")),
            },
        }
        Ok(())
    })?;
    Ok(hints)
}

fn parts(p: &mut Parser) -> Parsed<Vec<TextPart>> {
    p.sign("(")?;
    p.list(")", |p| {
        if matches!(p.peek(), Token::Quoted(_)) {
            return p.quoted().map(TextPart::Text);
        }
        if p.eat_word("once") {
            return Ok(TextPart::Once);
        }
        if p.eat_word("race") {
            return Ok(TextPart::Race);
        }
        let v = p.value()?;
        if p.eat_word("of") {
            p.sign("(")?;
            return Ok(TextPart::Choice(v, p.list(")", |p| p.quoted())?));
        }
        let spec = if p.eat(":") { Some(p.quoted()?) } else { None };
        Ok(TextPart::Value(v, spec))
    })
}
