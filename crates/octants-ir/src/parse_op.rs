//! The parser of one operation: its word and its operands. Blocks that follow are left to the caller.

use crate::lex::Token;
use crate::op::*;
use crate::operation_table::{AtomicOp, BinaryOp, ReduceOp, UnaryOp};
use crate::parse::{Parsed, Parser};

/// Stands in a control operation until the caller has read its block.
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
        "select" => {
            let (c, a) = pair(p)?;
            p.sign(",")?;
            Op::Select(c, a, p.value()?)
        }
        "balance" => {
            let (number, weight) = pair(p)?;
            p.sign(",")?;
            Op::Balance { number, weight, end: p.value()?, heaviest_first: p.eat_word("heaviest_first") }
        }
        "cast" => Op::Cast(p.value()?),
        "bitcast" => Op::Bitcast(p.value()?),
        "address_bits" => Op::AddressBits(p.value()?),
        "make_tensor" => Op::MakeTensor(values(p, "(", ")")?),
        "splat" => Op::Splat(p.value()?),
        "make_struct" => Op::MakeStruct(values(p, "(", ")")?),
        "extract" => {
            let (a, i) = value_and_index(p)?;
            Op::Extract(a, i)
        }
        "extract_dyn" => Op::ExtractDyn(p.value()?, values(p, "[", "]")?),
        "matmul" => {
            let (a, b) = pair(p)?;
            Op::MatMul(a, b)
        }
        "transpose" => Op::Transpose(p.value()?),
        "fold" => {
            let word = p.any_word()?;
            match ReduceOp::from_name(&word) {
                Some(op) => Op::Fold(op, p.value()?),
                None => return p.fail(format!("`{word}` is not a fold")),
            }
        }
        "shape" => {
            let b = BufferId(p.id('@')?);
            p.sign(",")?;
            Op::Shape(b, p.int()?)
        }
        "random" => Op::Random,
        "local_addr" => Op::LocalAddr(LocalId(p.id('$')?)),
        "buffer_addr" => Op::BufferAddr(BufferId(p.id('@')?), values(p, "[", "]")?),
        "frame_addr" => match p.numbered("frame") {
            Some(slot) => Op::FrameAddr(FrameSlot(slot)),
            None => return p.fail("expected a frame slot"),
        },
        "element_addr" => Op::ElementAddr(p.value()?, values(p, "[", "]")?),
        "member_addr" => {
            let (a, i) = value_and_index(p)?;
            Op::MemberAddr(a, i)
        }
        "load" => Op::Load(p.value()?),
        "volatile_load" => Op::VolatileLoad(p.value()?),
        "store" => {
            let (a, v) = pair(p)?;
            Op::Store(a, v)
        }
        "atomic" => {
            let op = atomic_op(p)?;
            let (a, v) = pair(p)?;
            Op::Atomic(op, a, v)
        }
        "atomic_cas" => {
            let (a, e) = pair(p)?;
            p.sign(",")?;
            Op::AtomicCas(a, e, p.value()?)
        }
        "reduce" => {
            let slot = p.int()?;
            p.sign(",")?;
            Op::Reduce(slot, p.value()?)
        }
        "if" => Op::If(p.value()?, NO_BLOCK, NO_BLOCK),
        "for" => for_loop(p)?,
        "loop" => Op::Loop(NO_BLOCK),
        "loop_index" => {
            let (l, axis) = value_and_index(p)?;
            Op::LoopIndex(l, axis)
        }
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
            (_, Some(op)) => {
                let (a, b) = pair(p)?;
                Op::Binary(op, a, b)
            }
            _ => return p.fail(format!("`{other}` is not an operation")),
        },
    })
}

/// `return %1`, but not the number of the next instruction, which cannot follow: a return ends its block.
fn returned(p: &mut Parser) -> Parsed<Option<ValueId>> {
    if matches!(p.peek(), Token::Id('%', _)) { p.value().map(Some) } else { Ok(None) }
}

fn pair(p: &mut Parser) -> Parsed<(ValueId, ValueId)> {
    let a = p.value()?;
    p.sign(",")?;
    Ok((a, p.value()?))
}

fn value_and_index(p: &mut Parser) -> Parsed<(ValueId, u32)> {
    let a = p.value()?;
    p.sign(",")?;
    Ok((a, p.int()?))
}

fn values(p: &mut Parser, open: &str, close: &str) -> Parsed<Vec<ValueId>> {
    p.sign(open)?;
    p.list(close, Parser::value)
}

fn atomic_op(p: &mut Parser) -> Parsed<AtomicOp> {
    let word = p.any_word()?;
    match AtomicOp::from_name(&word) {
        Some(op) => Ok(op),
        None => p.fail(format!("`{word}` is not an atomic operation")),
    }
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
        reductions = p.list(")", |p| Ok(Reduction { op: atomic_op(p)?, target: p.value()? }))?;
    }
    Ok(Op::For(Box::new(ForLoop { dims, body: NO_BLOCK, parallel, reductions })))
}

fn parts(p: &mut Parser) -> Parsed<Vec<TextPart>> {
    p.sign("(")?;
    p.list(")", |p| {
        if matches!(p.peek(), Token::Quoted(_)) {
            return p.quoted().map(TextPart::Text);
        }
        let v = p.value()?;
        let spec = if p.eat(":") { Some(p.quoted()?) } else { None };
        Ok(TextPart::Value(v, spec))
    })
}
