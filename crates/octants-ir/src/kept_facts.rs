//! [`KeptFacts`]: results of analyses, cached in a body until it changes.
//!
//! There are no version numbers: borrowing the code of a body mutably drops the facts. A copy of a body shares them,
//! so variants of a task are analyzed once.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// A cache for results of analyses, of one type. It does not take part in the equality of bodies.
#[derive(Clone, Default)]
pub struct KeptFacts(OnceLock<Arc<dyn Any + Send + Sync>>);

impl KeptFacts {
    /// The facts, initially empty.
    pub fn get<F: Any + Send + Sync + Default>(&self) -> Arc<F> {
        let kept = self.0.get_or_init(|| Arc::new(F::default()));
        Arc::clone(kept).downcast().expect("compiler bug: facts of two types are kept in one body")
    }

    /// Drops the facts.
    pub fn drop_all(&mut self) {
        self.0.take();
    }
}

impl fmt::Debug for KeptFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptFacts")
    }
}
