//! [`BodyFacts`]: facts about a body, computed on first use, and cached in the body until it changes.

use std::sync::{Arc, OnceLock};

use octants_ir::Body;
use octants_ir::schedule::LocalUses;

use crate::behavior::OwnBehavior;
use crate::effects::OwnEffects;
use crate::local_uses::find_local_uses;

/// Facts that follow from a body only.
#[derive(Debug, Default)]
pub struct BodyFacts {
    local_uses: OnceLock<Arc<LocalUses>>,
    behavior: OnceLock<Arc<OwnBehavior>>,
    effects: OnceLock<Arc<OwnEffects>>,
}

/// The uses of the locals of a body.
pub fn local_uses(body: &Body) -> Arc<LocalUses> {
    let facts = body.facts().get::<BodyFacts>();
    Arc::clone(facts.local_uses.get_or_init(|| Arc::new(find_local_uses(body))))
}

/// The behavior of a body without its callees.
pub fn own_behavior(body: &Body) -> Arc<OwnBehavior> {
    let facts = body.facts().get::<BodyFacts>();
    Arc::clone(facts.behavior.get_or_init(|| Arc::new(OwnBehavior::of(body))))
}

/// The memory that a body touches without the functions that it calls.
pub(crate) fn own_effects(body: &Body) -> Arc<OwnEffects> {
    let facts = body.facts().get::<BodyFacts>();
    Arc::clone(facts.effects.get_or_init(|| Arc::new(OwnEffects::of(body))))
}

#[cfg(test)]
mod tests {
    use octants_ir::{Builder, Op, Scalar, Type};

    use super::*;

    #[test]
    fn facts_are_found_once_and_dropped_with_a_change() {
        let mut b = Builder::new();
        b.push(Op::Random, Type::I32);
        let mut body = b.body;
        let first = own_behavior(&body);
        assert!(first.behavior.draws);
        // A copy has the facts of the original.
        let copy = body.clone();
        assert!(Arc::ptr_eq(&first, &own_behavior(&body)) && Arc::ptr_eq(&first, &own_behavior(&copy)));
        body.blocks[0].clear();
        assert!(!own_behavior(&body).behavior.draws);
        assert!(own_behavior(&copy).behavior.draws);
        body.add_local("a", Scalar::I32.into());
        assert_eq!((local_uses(&body).locals.len(), local_uses(&copy).locals.len()), (1, 0));
    }
}
