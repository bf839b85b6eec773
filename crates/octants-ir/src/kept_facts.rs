//! [`KeptFacts`]: results of analyses, cached in a body until it changes.
//!
//! There are no version numbers: borrowing the code of a body mutably drops the facts. A copy of a body shares them,
//! so variants of a task are analyzed once.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Facts about code, of the one type that analyses use. Two bodies with the same code are equal whatever is known of
/// them.
#[derive(Clone, Default)]
pub struct KeptFacts(OnceLock<Arc<dyn Any + Send + Sync>>);

impl KeptFacts {
    /// The facts; they begin empty.
    pub fn get<F: Any + Send + Sync + Default>(&self) -> Arc<F> {
        let kept = self.0.get_or_init(|| Arc::new(F::default()));
        Arc::clone(kept).downcast().expect("compiler bug: facts of two types are kept in one body")
    }

    /// Forgets them.
    pub fn drop_all(&mut self) {
        self.0.take();
    }
}

impl fmt::Debug for KeptFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptFacts")
    }
}
