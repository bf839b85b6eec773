//! Scalar replacement of struct locals: one local per member, unless the address escapes. Members then cross regions
//! individually.

use std::collections::HashMap;

use octants_ir::insert_code::rebuild_blocks;
use octants_ir::{Body, LocalId, Op, Type, ValueId};

/// Splits the structs of a body, and the structs in them.
pub(super) fn split_structs(body: &mut Body) {
    loop {
        let members = find_members(body);
        if members.is_empty() {
            return;
        }
        split(body, &members);
    }
}

/// Adds the locals for the members of each struct that can be split.
fn find_members(body: &mut Body) -> HashMap<LocalId, Vec<LocalId>> {
    let mut is_whole: Vec<bool> = body.locals.iter().map(|l| !matches!(l.ty, Type::Struct(_))).collect();
    let mut is_used = vec![false; body.locals.len()];
    body.visit(body.root, &mut |_, inst| {
        let mut whole = |v: ValueId| {
            if let Op::LocalAddr(l) = body.inst(v).op {
                is_whole[l.index()] = true;
            }
        };
        match &inst.op {
            Op::LocalAddr(l) => is_used[l.index()] = true,
            Op::Load(_) | Op::MemberAddr(..) => {}
            Op::Store(_, x) => whole(*x),
            op => op.for_each_operand(whole),
        }
    });
    let mut members = HashMap::new();
    for i in 0..is_whole.len() {
        let local = body.locals[i].clone();
        if let (false, true, Type::Struct(s)) = (is_whole[i], is_used[i], &local.ty) {
            let parts = s.members.iter().map(|(name, ty)| body.add_local(format!("{}.{name}", local.name), ty.clone()));
            members.insert(LocalId(i as u32), parts.collect());
        }
    }
    members
}

fn split(body: &mut Body, members: &HashMap<LocalId, Vec<LocalId>>) {
    rebuild_blocks(body, |b, v| {
        let op = b.body.inst(v).op.clone();
        let parts = match op {
            Op::MemberAddr(a, _) | Op::Load(a) | Op::Store(a, _) => match b.body.inst(a).op {
                Op::LocalAddr(l) => members.get(&l),
                _ => None,
            },
            // Nothing uses it any more.
            Op::LocalAddr(l) if members.contains_key(&l) => return,
            _ => None,
        };
        match (op, parts) {
            (Op::MemberAddr(_, i), Some(parts)) => b.body.inst_mut(v).op = Op::LocalAddr(parts[i as usize]),
            (Op::Load(_), Some(parts)) => {
                let loads = parts.iter().map(|part| b.load_local(*part)).collect();
                b.body.inst_mut(v).op = Op::MakeStruct(loads);
            }
            (Op::Store(_, x), Some(parts)) => {
                for (i, part) in parts.iter().enumerate() {
                    let member = b.extract(x, i as u32);
                    b.store_local(*part, member);
                }
                return;
            }
            _ => {}
        }
        b.place(v);
    });
}
