//! [`FactsCache`]: facts that several passes of a pipeline ask for, computed once per version of the code.
//!
//! A version is the hash of the content, so that a pass which changes the code needs to report nothing, and one that
//! changes nothing keeps the facts. Hashing visits each instruction once. The facts visit them several times.

use std::cell::{Cell, RefCell};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use octants_ir::Function;

use crate::effects::{Effects, function_effects};

/// Facts of a kernel or a program, with the version that they hold for.
#[derive(Debug, Clone, Default)]
pub struct FactsCache {
    effects: RefCell<Option<(u64, Rc<[Effects]>)>>,
    computations: Cell<usize>,
}

impl FactsCache {
    /// The effects of each function, by `FuncId`.
    pub fn function_effects(&self, functions: &[Function]) -> Rc<[Effects]> {
        let version = version(functions);
        if let Some((known, effects)) = &*self.effects.borrow()
            && *known == version
        {
            return Rc::clone(effects);
        }
        self.computations.set(self.computations.get() + 1);
        let effects: Rc<[Effects]> = function_effects(functions).into();
        *self.effects.borrow_mut() = Some((version, Rc::clone(&effects)));
        effects
    }

    /// How often facts were computed.
    pub fn computations(&self) -> usize {
        self.computations.get()
    }
}

/// The version of functions. Names and types of parameters do not matter: facts follow from the bodies.
fn version(functions: &[Function]) -> u64 {
    let mut hasher = DefaultHasher::new();
    functions.len().hash(&mut hasher);
    functions.iter().for_each(|f| f.body.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use octants_ir::{Builder, Op, Type};

    use super::*;

    fn function(draws: usize) -> Function {
        let mut b = Builder::new();
        (0..draws).for_each(|_| _ = b.push(Op::Random, Type::I32));
        Function { name: "f".into(), params: Vec::new(), ret: Type::Unit, body: b.body }
    }

    #[test]
    fn facts_are_computed_once_per_version() {
        let cache = FactsCache::default();
        let mut functions = vec![function(0)];
        assert!(cache.function_effects(&functions)[0].is_silent());
        functions[0].name = "g".into();
        assert!(cache.function_effects(&functions)[0].is_silent());
        assert_eq!(cache.computations(), 1);
        functions[0] = function(1);
        assert!(!cache.function_effects(&functions)[0].is_silent());
        assert_eq!(cache.computations(), 2);
    }
}
