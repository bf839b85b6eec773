//! [`Races`]: the receivers of a program's race reports.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::error::{ErrorKind, Result};
use crate::race::Race;
use crate::report::{Failure, lock};

/// Receives a race after which the program continues.
pub type RaceSink = Arc<dyn Fn(&Race) + Send + Sync>;

/// The receivers of a program's races. Each race is reported once.
#[derive(Default)]
pub struct Races {
    sink: Mutex<Option<RaceSink>>,
    told: Mutex<HashSet<Race>>,
}

impl Races {
    /// From now on, races go to `sink` and are not errors.
    pub fn collect(&self, sink: RaceSink) {
        *lock(&self.sink) = Some(sink);
    }

    /// Reports races, those that differ only in elements or iterations as one.
    ///
    /// # Errors
    /// [`ErrorKind::Races`] with all of them, unless they are collected. The sink receives only new ones.
    pub fn report(&self, mut found: Vec<Race>) -> Result<()> {
        if found.is_empty() {
            return Ok(());
        }
        let mut known = HashSet::new();
        found.retain(|race| known.insert(race.without_numbers()));
        let sink = lock(&self.sink).clone();
        let Some(sink) = sink else { return Err(ErrorKind::Races(found).into()) };
        let mut told = lock(&self.told);
        found.iter().filter(|race| told.insert(race.without_numbers())).for_each(|race| sink(race));
        Ok(())
    }
}

impl Races {
    /// Reports a failure in a kernel.
    ///
    /// # Errors
    /// [`ErrorKind::Assertion`], or the error of [`Races::report`] for a race.
    pub(crate) fn report_failure(&self, failure: Failure) -> Result<()> {
        match failure.race {
            Some(race) => self.report(vec![*race]),
            None => Err(ErrorKind::Assertion(failure).into()),
        }
    }
}

impl fmt::Debug for Races {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Races").field("told", &lock(&self.told).len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::{RaceAccess, RaceKind, Touch};

    fn race(index: i64) -> Race {
        let access =
            |touch, at: &str| RaceAccess { touch, at: at.into(), by: format!("iteration {index}"), launched_at: None };
        Race {
            kind: RaceKind::Iterations,
            buffer: "x".into(),
            index: Some(vec![index]),
            first: access(Touch::Write, "a.py:3"),
            second: access(Touch::Read, "a.py:4"),
            fix: "serialize".into(),
        }
    }

    #[test]
    fn a_race_is_an_error_unless_it_is_collected() {
        let races = Races::default();
        let error = races.report(vec![race(3)]).expect_err("nobody collects");
        assert_eq!(*error.kind(), ErrorKind::Races(vec![race(3)]));
        assert_eq!(races.report(Vec::new()), Ok(()));
    }

    #[test]
    fn an_error_has_each_race_once() {
        let error = Races::default().report(vec![race(3), race(4)]).expect_err("nobody collects");
        assert_eq!(*error.kind(), ErrorKind::Races(vec![race(3)]));
    }

    #[test]
    fn a_race_is_collected_once_for_all_its_elements() {
        let (races, seen) = (Races::default(), Arc::new(Mutex::new(Vec::new())));
        let sink = seen.clone();
        races.collect(Arc::new(move |race: &Race| lock(&sink).push(race.clone())));
        assert_eq!(races.report(vec![race(3), race(4)]), Ok(()));
        assert_eq!(races.report(vec![race(5)]), Ok(()));
        assert_eq!(*lock(&seen), [race(3)]);
    }
}
