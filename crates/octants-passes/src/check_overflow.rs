//! Reports integer overflow at run time: after each integer addition, subtraction, multiplication and left shift, a
//! test prints the operation and the user's line, once per launch. The wrapped result is still used. Integer division
//! by zero has no result, so it is preceded by an assertion.
//!
//! Instructions without a span come from the compiler and are not checked.

use octants_diag::{Sources, Span};
use octants_ir::{BinaryOp, Builder, Const, Kernel, Op, ReduceOp, Scalar, TextPart, Type, UnaryOp, ValueId};

use octants_ir::insert_code::{bodies, constant, push_if, rebuild_blocks};

/// Reports integer overflow in the kernel and its functions.
pub fn check_overflow(kernel: &mut Kernel, sources: Option<&Sources>) {
    for body in bodies(kernel) {
        rebuild_blocks(body, |b, v| {
            assert_divisor(b, v);
            b.place(v);
            let inst = b.body.inst(v).clone();
            let Op::Binary(op, x, y) = inst.op else { return };
            let Some(s) = inst.ty.scalar().filter(|s| s.is_int() && *s != Scalar::U1) else { return };
            let what = match op {
                BinaryOp::Add => "Addition",
                BinaryOp::Sub => "Subtraction",
                BinaryOp::Mul => "Multiplication",
                BinaryOp::Shl => "Shift left",
                _ => return,
            };
            if inst.span.start == inst.span.end {
                return;
            }
            let mut overflow = overflows(b, op, x, y, v, s);
            if inst.ty.is_tensor() {
                overflow = b.push(Op::Fold(ReduceOp::Or, overflow), Type::U1);
            }
            let text = format!("{what} overflow detected{}\n", place(sources, inst.span));
            push_if(b, overflow, |b| {
                b.push(Op::Print(vec![TextPart::Once, TextPart::Text(text)]), Type::Unit);
            });
        });
    }
}

/// Where `v` divides integers: asserts that the divisor is not zero.
fn assert_divisor(b: &mut Builder, v: ValueId) {
    use BinaryOp::{Div, FloorDiv, Mod, Rem};
    let inst = b.body.inst(v).clone();
    let Op::Binary(op @ (Div | FloorDiv | Mod | Rem), _, y) = inst.op else { return };
    let is_int = b.ty(y).scalar().is_some_and(|s| s.is_int() && s != Scalar::U1);
    if !is_int || inst.span.start == inst.span.end || matches!(b.body.as_const(y), Some(Const::Int(n)) if n != 0) {
        return;
    }
    let ty = b.ty(y).clone();
    let zero = constant(b, 0, &ty);
    let mut divides = b.binary(BinaryOp::Ne, y, zero);
    if ty.is_tensor() {
        divides = b.push(Op::Fold(ReduceOp::And, divides), Type::U1);
    }
    let what = if matches!(op, Mod | Rem) { "Integer modulo by zero" } else { "Integer division by zero" };
    let span = std::mem::replace(&mut b.span, inst.span);
    b.push(Op::Assert(divides, vec![TextPart::Text(what.into())]), Type::Unit);
    b.span = span;
}

/// ` in FILE:LINE`, the line, and for inlined code the kernel's call.
fn place(sources: Option<&Sources>, span: Span) -> String {
    let Some((sources, file, p)) = sources.and_then(|s| Some((s, s.get(span.file)?, s.position(span)?))) else {
        return String::new();
    };
    let line = file.text.split('\n').nth((p.line - file.first_line) as usize).unwrap_or_default();
    let call = span.outermost_call().map(|call| format!("\n  called at {}", sources.location(call)));
    format!(" in {}:\n  {}{}", sources.location(span), line.trim(), call.unwrap_or_default())
}

/// `u1`, of the operands' shape: the result `r` of `x op y` is not the true one.
fn overflows(b: &mut Builder, op: BinaryOp, x: ValueId, y: ValueId, r: ValueId, s: Scalar) -> ValueId {
    use BinaryOp::*;
    let ty = b.ty(x).clone();
    let signed = s.is_signed();
    match op {
        // The sign of the result differs from the sign of both operands.
        Add if signed => {
            let (p, q) = (b.binary(Xor, x, r), b.binary(Xor, y, r));
            negative(b, p, q, &ty)
        }
        Add => b.binary(Lt, r, x),
        // The operands' signs differ, and the result's is not the first one's.
        Sub if signed => {
            let (p, q) = (b.binary(Xor, x, y), b.binary(Xor, x, r));
            negative(b, p, q, &ty)
        }
        Sub => b.binary(Lt, x, y),
        Mul if s.bits() < 64 => {
            let wide = if signed { Scalar::I64 } else { Scalar::U64 };
            let (p, q) = (b.cast(x, wide), b.cast(y, wide));
            let exact = b.binary(Mul, p, q);
            let seen = b.cast(r, wide);
            b.binary(Ne, exact, seen)
        }
        // The result divided by one operand is not the other. The divisor is never 0 nor, if signed, -1.
        Mul => {
            let (zero, one) = (constant(b, 0, &ty), constant(b, 1, &ty));
            let is_zero = b.binary(Eq, x, zero);
            let mut plain = is_zero;
            let mut at_minus_one = None;
            if signed {
                let minus_one = constant(b, -1, &ty);
                let negates = b.binary(Eq, x, minus_one);
                let least = constant(b, i64::MIN, &ty);
                let overflow = b.binary(Eq, y, least);
                at_minus_one = Some(b.binary(And, negates, overflow));
                plain = b.binary(Or, plain, negates);
            }
            let divisor = b.push(Op::Select(plain, one, x), ty.clone());
            let quotient = b.binary(Div, r, divisor);
            let differs = b.binary(Ne, quotient, y);
            let checked = b.unary(UnaryOp::LogicNot, plain);
            let overflow = b.binary(And, checked, differs);
            at_minus_one.map_or(overflow, |o| b.binary(Or, overflow, o))
        }
        // Shifting back does not give the operand again.
        _ => {
            let back = b.binary(Shr, r, y);
            b.binary(Ne, back, x)
        }
    }
}

/// Both are negative.
fn negative(b: &mut Builder, p: ValueId, q: ValueId, ty: &Type) -> ValueId {
    let both = b.binary(BinaryOp::And, p, q);
    let zero = constant(b, 0, ty);
    b.binary(BinaryOp::Lt, both, zero)
}
