//! Chains of choices (`if`, `elif`, ..., `else`) as one switch.
//!
//! A chain whose conditions compare one integer with 0, 1, and so on is a switch over that integer. In any other chain,
//! the code that computes a condition runs if the conditions before it do not hold, and no task runs in between. So one
//! serial task can run all of that code. `number_choices` makes it store the number of the first condition that holds,
//! which turns the chain into a switch over that number.

use octants_ir::{
    BinaryOp, BlockId, Body, Const, Effect, Op, Scalar, Type, ValueId, holds_tasks, task_blocks, task_branches,
};

/// Consecutive choices, each alone in the `else` branch of the one before it.
pub(super) struct Chain {
    /// The integer.
    pub(super) selector: ValueId,
    /// The number and the branch of each, outer before inner.
    pub(super) cases: Vec<(usize, BlockId)>,
    /// The `else` branches, outer before inner. The last is that of the chain.
    pub(super) others: Vec<BlockId>,
}

/// A choice of a chain.
#[derive(Clone, Copy)]
struct Link {
    choice: ValueId,
    condition: ValueId,
    then: BlockId,
    otherwise: BlockId,
}

/// The chain that begins with a choice, after these statements of its block, if it is a switch.
pub(super) fn chain_of(body: &Body, before: &[ValueId], first: ValueId) -> Option<Chain> {
    let links = links_of(body, first);
    let compared: Vec<(ValueId, usize)> =
        links.iter().map(|link| compared(body, link.condition)).collect::<Option<_>>()?;
    let &(selector, _) = compared.first()?;
    let mut numbers: Vec<usize> = compared.iter().map(|(_, number)| *number).collect();
    let cases = numbers.iter().copied().zip(links.iter().map(|link| link.then)).collect();
    numbers.sort_unstable();
    let is_dense = numbers.iter().copied().eq(0..links.len());
    let changes = |v: &ValueId| !matches!(body.inst(*v).op.effect(), Effect::Pure | Effect::Read(_));
    let is_current = before.iter().position(|v| *v == selector).is_some_and(|at| !before[at..].iter().any(changes));
    let is_one = compared.iter().all(|(of, _)| *of == selector || is_current && are_of_one_place(body, selector, *of));
    let changes_nothing = |link: &Link| {
        let code = body.block(link.otherwise).split_last().map_or(&[][..], |(_, code)| code);
        code.iter().all(|v| body.inst(*v).op.is_pure() || matches!(body.inst(*v).op, Op::Load(_)))
    };
    let is_sound = is_dense && is_one && links[..links.len() - 1].iter().all(changes_nothing);
    let others = links.iter().map(|link| link.otherwise).collect();
    (links.len() > 1 && is_sound).then_some(Chain { selector, cases, others })
}

/// The choices of a chain. Code between them is used only there.
fn links_of(body: &Body, first: ValueId) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::new();
    let mut next = Some(first);
    while let Some(choice) = next
        && let Op::If(condition, then, otherwise) = body.inst(choice).op
    {
        if let Some(before) = links.last() {
            let (_, code) = body.block(before.otherwise).split_last().expect("the choice is in it");
            let mut is_used = false;
            for inner in [then, otherwise] {
                body.visit(inner, &mut |_, inst| inst.op.for_each_operand(|u| is_used |= code.contains(&u)));
            }
            if is_used || code.iter().any(|v| holds_task(body, *v)) {
                break;
            }
        }
        if !holds_tasks(body, then) && !holds_tasks(body, otherwise) {
            break;
        }
        links.push(Link { choice, condition, then, otherwise });
        next = body.block(otherwise).last().copied();
    }
    links
}

fn holds_task(body: &Body, v: ValueId) -> bool {
    match &body.inst(v).op {
        Op::For(l) => l.parallel.is_some(),
        Op::Checkpoint(..) | Op::Section(_) => true,
        Op::Loop(inner) => holds_tasks(body, *inner),
        Op::If(_, yes, no) => holds_tasks(body, *yes) || holds_tasks(body, *no),
        _ => false,
    }
}

/// The integer that a condition compares with a number, and the number.
fn compared(body: &Body, condition: ValueId) -> Option<(ValueId, usize)> {
    let Op::Binary(BinaryOp::Eq, integer, number) = body.inst(condition).op else { return None };
    let is_integer = matches!(body.ty(integer), Type::Scalar(s) if !s.is_float() && *s != Scalar::U1);
    match body.as_const(number) {
        Some(Const::Int(number)) if is_integer => Some((integer, usize::try_from(number).ok()?)),
        _ => None,
    }
}

/// Two integers are loaded from one 0-dimensional buffer.
fn are_of_one_place(body: &Body, a: ValueId, b: ValueId) -> bool {
    let place = |v: ValueId| match body.inst(v).op {
        Op::Load(address) => match &body.inst(address).op {
            Op::BufferAddr(buffer, indices) if indices.is_empty() => Some(*buffer),
            _ => None,
        },
        _ => None,
    };
    place(a).is_some_and(|of_a| place(b) == Some(of_a))
}

/// Turns all chains of at least two conditions into switches.
pub(super) fn number_choices(body: &mut Body) {
    let branches = task_branches(body);
    let mut inner: Vec<ValueId> = Vec::new();
    for block in task_blocks(body) {
        for first in body.block(block).to_vec() {
            let is_choice = matches!(body.inst(first).op, Op::If(_, yes, _) if branches.contains(&yes));
            if !is_choice || inner.contains(&first) {
                continue;
            }
            let links = links_of(body, first);
            inner.extend(links.iter().skip(1).map(|link| link.choice));
            let statements = body.block(block);
            let place = statements.iter().position(|v| *v == first).unwrap_or(0);
            if links.len() > 1 && chain_of(body, &statements[..place], first).is_none() {
                number(body, block, &links);
            }
        }
    }
}

/// Turns a chain in a block into a switch.
fn number(body: &mut Body, block: BlockId, links: &[Link]) {
    let span = body.inst(links[0].choice).span;
    let number_type = Type::Scalar(Scalar::I32);
    let local = body.add_local("case", number_type.clone());
    let push = |body: &mut Body, to: &mut Vec<ValueId>, op, ty| {
        let v = body.add_inst(op, ty, span);
        to.push(v);
        v
    };
    let address = |body: &mut Body, to: &mut Vec<ValueId>| {
        push(body, to, Op::LocalAddr(local), Type::Ref(Box::new(number_type.clone())))
    };
    let store = |body: &mut Body, to: &mut Vec<ValueId>, number: usize| {
        let at = address(body, to);
        let number = push(body, to, Op::Const(Const::Int(number as i64)), number_type.clone());
        push(body, to, Op::Store(at, number), Type::Unit);
    };
    // The code of the conditions, from the last to the first.
    let mut code: Vec<ValueId> = Vec::new();
    for (number, link) in links.iter().enumerate().rev() {
        let (then, otherwise) = (body.add_block(), body.add_block());
        let mut stores = Vec::new();
        store(body, &mut stores, number);
        body.blocks[then.index()] = stores;
        body.blocks[otherwise.index()] = std::mem::take(&mut code);
        if number > 0 {
            let around = links[number - 1].otherwise.index();
            code = std::mem::take(&mut body.blocks[around]);
            code.pop();
        }
        push(body, &mut code, Op::If(link.condition, then, otherwise), Type::Unit);
    }
    let mut before = Vec::new();
    store(body, &mut before, links.len());
    before.append(&mut code);
    let at = address(body, &mut before);
    let selector = push(body, &mut before, Op::Load(at), number_type.clone());
    let truth = Type::Scalar(Scalar::U1);
    for (number, link) in links.iter().enumerate() {
        let mut inside = Vec::new();
        let constant = push(body, &mut inside, Op::Const(Const::Int(number as i64)), number_type.clone());
        let equals = push(body, &mut inside, Op::Binary(BinaryOp::Eq, selector, constant), truth.clone());
        if let Op::If(condition, ..) = &mut body.inst_mut(link.choice).op {
            *condition = equals;
        }
        if number == 0 {
            before.append(&mut inside);
        } else {
            inside.push(link.choice);
            body.blocks[links[number - 1].otherwise.index()] = inside;
        }
    }
    let place = body.block(block).iter().position(|v| *v == links[0].choice).expect("the chain is in the block");
    body.blocks[block.index()].splice(place..place, before);
}
