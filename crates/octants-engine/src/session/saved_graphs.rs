//! Captured graphs on disk, for other processes with the same compiler and device.

use std::collections::HashMap;

use octants_artifact::{Key, SavedGraph, UnreadableGraph};
use octants_runtime::{Buffer, Caller, CapturedGraph, NamedMemory};

use super::Session;
use crate::artifact_cache::made_for;
use crate::error::Error;

impl Session {
    /// A graph as bytes. Its steps use memory that is `named`, or the graph's own.
    pub fn save_graph(
        &self,
        graph: &CapturedGraph,
        named: &[NamedMemory],
        caller: &dyn Caller,
    ) -> Result<Vec<u8>, Error> {
        let code = |key: &Key| self.cache.as_ref()?.get_again(key);
        let saved = graph.save(named, &code, caller)?;
        saved.to_bytes(&self.made_for()?).map_err(Error::Device)
    }

    /// Decodes a graph, which lists the memory that it needs.
    pub fn read_graph(&self, bytes: &[u8]) -> Result<SavedGraph, Error> {
        SavedGraph::from_bytes(bytes, &self.made_for()?).map_err(|e| {
            Error::Device(match e {
                UnreadableGraph::Foreign => {
                    "the graph was saved by another version of Octants or for another device: capture it here".into()
                }
                UnreadableGraph::Damaged => "the file contains no graph, or is damaged".into(),
            })
        })
    }

    /// The graph that was saved, with the memory that it names.
    pub fn load_graph(&self, saved: &SavedGraph, named: &HashMap<String, Buffer>) -> Result<CapturedGraph, Error> {
        Ok(CapturedGraph::load(&self.device, saved, named)?)
    }

    fn made_for(&self) -> Result<Key, Error> {
        let unknown =
            || Error::Device("graphs cannot be saved or loaded: the compiler cannot identify its own version".into());
        made_for(&self.machine).ok_or_else(unknown)
    }
}
