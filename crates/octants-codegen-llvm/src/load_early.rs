//! Loads of an aligned loop that are made an iteration early, as the schedule says.
//!
//! From the end of an iteration the assembler moves such a load up to where the state before is used for the last time,
//! and takes its register; from further up it would be moved from register to register at the end, and waited for
//! there.

use octants_ir::ValueId;
use octants_ir::schedule::{EarlyLoads, EarlyStep};

use crate::emit::V;
use crate::lowering::{Lowering, Val};
use crate::place::Place;

impl Lowering<'_, '_> {
    /// What the loads yield in the iteration that comes, where one does; else what they yielded before, if anything.
    pub fn load_early(&mut self, early: &EarlyLoads, comes: V, before: Option<&[Vec<V>]>) -> Vec<Vec<V>> {
        if early.loads.is_empty() {
            return Vec::new();
        }
        let e = self.e;
        let (load, after) = (self.new_block(c"early"), self.new_block(c"early.end"));
        let from = e.block();
        e.cond_br(comes, load, after);
        e.position(load);
        let loaded: Vec<Vec<V>> = self.places_to_come(early).iter().map(|place| self.load_place(place)).collect();
        let loaded_in = e.block();
        e.br(after);
        e.position(after);
        let mut yielded = Vec::new();
        for (number, leaves) in loaded.into_iter().enumerate() {
            let merged = leaves.into_iter().enumerate().map(|(i, value)| {
                let phi = e.phi(e.type_of(value));
                e.add_incoming(phi, value, loaded_in);
                let other = before.map_or_else(|| e.undef(e.type_of(value)), |before| before[number][i]);
                e.add_incoming(phi, other, from);
                phi
            });
            yielded.push(merged.collect());
        }
        yielded
    }

    /// Lowers instructions of a loop's body, in which the loads yield `values`.
    pub fn with_early(&mut self, instructions: &[ValueId], early: &EarlyLoads, values: &[Vec<V>]) {
        for &v in instructions {
            match early.loads.iter().zip(values).find(|((load, _), _)| *load == v) {
                Some((_, leaves)) => self.values[v.index()] = Some(Val::Leaves(leaves.clone())),
                None => self.inst(v),
            }
        }
    }

    /// The places of the loads in the iteration that comes.
    fn places_to_come(&mut self, early: &EarlyLoads) -> Vec<Place> {
        let take = |step: &EarlyStep| (step.result(), self.values[step.result().index()].take());
        let before: Vec<(ValueId, Option<Val>)> = early.steps.iter().map(take).collect();
        for step in &early.steps {
            match *step {
                EarlyStep::Compute(v) => self.inst(v),
                EarlyStep::Stored(v, stored) => self.values[v.index()] = self.values[stored.index()].clone(),
            }
        }
        let places = early.loads.iter().map(|(_, address)| self.place(*address)).collect();
        for (v, value) in before {
            self.values[v.index()] = value;
        }
        places
    }
}
