//! The ids at both ends of edges.

use std::iter::once;

use grappa_formats::NodeId;
use grappa_input::EdgeEnd;
use grappa_io::Result;
use grappa_storage::writer::EndChunks;

use crate::{
    ids::{IdMap, dictionary::Dictionary},
    ingest::node_ids::GraphIds,
};

/// The ids at both ends of edges: of one type, or of two.
pub struct EdgeEnds<'a> {
    targets: &'a mut GraphIds,
    /// None: sources are of the same type.
    sources: Option<&'a mut GraphIds>,
}

impl<'a> EdgeEnds<'a> {
    /// Both ends are nodes of one type.
    pub fn of_one_type(ids: &'a mut GraphIds) -> Self {
        Self { targets: ids, sources: None }
    }

    pub fn of_two_types(sources: &'a mut GraphIds, targets: &'a mut GraphIds) -> Self {
        Self { targets, sources: Some(sources) }
    }

    pub fn have_one_type(&self) -> bool {
        self.sources.is_none()
    }

    pub fn ids(&self, end: EdgeEnd) -> &GraphIds {
        match (end, &self.sources) {
            (EdgeEnd::Source, Some(sources)) => sources,
            _ => self.targets,
        }
    }

    pub fn map(&self, end: EdgeEnd) -> &IdMap {
        &self.ids(end).map
    }

    /// The dictionary at an end, to change how its ids become keys.
    pub fn dictionary_mut(&mut self, end: EdgeEnd) -> Option<&mut Dictionary> {
        match (end, &mut self.sources) {
            (EdgeEnd::Source, Some(sources)) => sources.map.dictionary_mut(),
            _ => self.targets.map.dictionary_mut(),
        }
    }

    pub fn chunks(&self) -> EndChunks<'_> {
        EndChunks { destinations: &self.targets.chunks, sources: &self.ids(EdgeEnd::Source).chunks }
    }

    /// Bytes of memory of the tables of both ends.
    pub fn table_memory(&self) -> u64 {
        self.targets.map.table_memory() + self.sources.as_ref().map_or(0, |sources| sources.map.table_memory())
    }

    /// Makes tables of the ids at these ends.
    pub fn load(&mut self, is_wanted: impl Fn(EdgeEnd) -> bool) -> Result<()> {
        match &mut self.sources {
            None if is_wanted(EdgeEnd::Target) => self.targets.map.load(),
            None => Ok(()),
            Some(sources) => {
                if is_wanted(EdgeEnd::Source) {
                    sources.map.load()?;
                }
                if is_wanted(EdgeEnd::Target) { self.targets.map.load() } else { Ok(()) }
            }
        }
    }

    /// Frees the tables of [`EdgeEnds::load`].
    pub fn unload(&mut self) {
        let sources = self.sources.as_mut().map(|sources| &mut sources.map);
        once(&mut self.targets.map).chain(sources).for_each(IdMap::unload);
    }

    /// The external ids of the ends of an edge.
    pub fn external(&self, source: NodeId, target: NodeId) -> Result<[String; 2]> {
        Ok([self.map(EdgeEnd::Source).external(source)?, self.map(EdgeEnd::Target).external(target)?])
    }
}
