//! Software pipelining of a converged loop: its loads are issued one iteration early, as the schedule says.
//!
//! The assembler moves such a load from the end of an iteration up to the last use of the state before, and reuses its
//! register. From further up it would need a copy at the end, and would wait for the load there.

use octants_ir::ValueId;
use octants_ir::schedule::{AddressStep, PipelinedLoads};

use crate::emit::V;
use crate::lowering::{Lowering, Val};
use crate::place::Place;

impl Lowering<'_, '_> {
    /// The results of the loads for the next iteration, if there is one; else the results `before`.
    pub fn load_ahead(&mut self, pipelined: &PipelinedLoads, comes: V, before: Option<&[Vec<V>]>) -> Vec<Vec<V>> {
        if pipelined.loads.is_empty() {
            return Vec::new();
        }
        let e = self.e;
        let (load, after) = (self.new_block(c"early"), self.new_block(c"early.end"));
        let from = e.block();
        e.cond_br(comes, load, after);
        e.position(load);
        let loaded: Vec<Vec<V>> = self.addresses_ahead(pipelined).iter().map(|place| self.load_place(place)).collect();
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
    pub fn with_loaded(&mut self, instructions: &[ValueId], pipelined: &PipelinedLoads, values: &[Vec<V>]) {
        for &v in instructions {
            match pipelined.loads.iter().zip(values).find(|((load, _), _)| *load == v) {
                Some((_, leaves)) => self.values[v.index()] = Some(Val::Leaves(leaves.clone())),
                None => self.inst(v),
            }
        }
    }

    /// The addresses of the loads in the next iteration.
    fn addresses_ahead(&mut self, pipelined: &PipelinedLoads) -> Vec<Place> {
        let take = |step: &AddressStep| (step.result(), self.values[step.result().index()].take());
        let before: Vec<(ValueId, Option<Val>)> = pipelined.steps.iter().map(take).collect();
        for step in &pipelined.steps {
            match *step {
                AddressStep::Compute(v) => self.inst(v),
                AddressStep::Stored(v, stored) => self.values[v.index()] = self.values[stored.index()].clone(),
            }
        }
        let places = pipelined.loads.iter().map(|(_, address)| self.place(*address)).collect();
        for (v, value) in before {
            self.values[v.index()] = value;
        }
        places
    }
}
