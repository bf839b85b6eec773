//! [`TripCountRecord`]: the trip counts of a launch's loops whose bounds come from memory. A separate kernel computes
//! it.

use pyo3::prelude::*;

use crate::errors;

/// A record of a launch, made after it and again before its gradient.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TripCountRecord {
    /// For each loop or read: whether it is a read, its line, its number of iterations, and a hash of its executions.
    places: Vec<[i64; 4]>,
}

impl TripCountRecord {
    /// From the result of the recording kernel.
    pub fn of(result: Py<PyAny>, py: Python<'_>) -> PyResult<TripCountRecord> {
        let words: Vec<u64> = result.extract::<Option<_>>(py)?.unwrap_or_default();
        let places = words.chunks_exact(4).map(|place| std::array::from_fn(|i| place[i] as i64)).collect();
        Ok(TripCountRecord { places })
    }

    /// No loop's trip count comes from memory.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Raises if a loop's trip count, or a value that is read, differs from the launch.
    pub fn check(&self, now: &TripCountRecord, kernel: &str, py: Python<'_>) -> PyResult<()> {
        let changed = || self.places.iter().zip(&now.places).filter(|(was, is)| was != is);
        // Report loops first: reads also differ because a loop runs more often.
        let Some((was, is)) = changed().find(|(was, _)| was[0] == 0).or_else(|| changed().next()) else {
            return Ok(());
        };
        let ([is_read, line, old, _], [_, _, new, _]) = (was, is);
        if *is_read != 0 {
            let text = format!(
                "the gradient of kernel `{kernel}` would be wrong: what line {line} read from memory was overwritten \
                 after the launch, and the gradient reads it again. Write to other memory, or save the value and use \
                 `@qd.ad.grad_replaced`"
            );
            return Err(errors::exception(py, "OctantsAssertionError", text));
        }
        let times = |n: i64| if n == 1 { String::from("1 time") } else { format!("{n} times") };
        let change = if old == new {
            format!("ran {} in total, and would again, but distributed differently", times(*old))
        } else {
            format!("ran {} in total, but would run {} now", times(*old), times(*new))
        };
        let text = format!(
            "the gradient of kernel `{kernel}` cannot be computed: the loop at line {line} {change}. The memory that \
             determines its length was overwritten after the kernel read it: use separate memory for each launch, or \
             compute the gradient before it changes"
        );
        Err(errors::runtime_error(py, text))
    }
}
