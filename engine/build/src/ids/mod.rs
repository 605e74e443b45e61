//! The mapping from external ids to nodes and back during ingest: external id <-> dense id <-> node.
//!
//! The kind of external ids determines only the first step, and the node permutation only the second.
//!
//! Ids that are not dense are looked up in a dictionary on disk: one by one, slowly, or through a table in memory, which
//! takes both steps at once, when it is [loaded](IdMap::load).

pub mod dictionary;
pub mod keys;
pub mod table;

use grappa_formats::{DenseId, NodeId, dictionary::KeyKind};
use grappa_input::{EdgeBatch, RawBlock, TextBatch};
use grappa_io::Result;
use grappa_storage::NodePermutation;

use self::{
    dictionary::Dictionary,
    keys::integer_key,
    table::{BYTES_PER_KEY, KeyTable},
};

/// Both steps.
#[derive(Debug)]
pub struct IdMap {
    nodes: u64,
    permutation: NodePermutation,
    /// None if ids are dense.
    listed: Option<Listed>,
}

#[derive(Debug)]
struct Listed {
    dictionary: Dictionary,
    table: Option<KeyTable>,
}

impl IdMap {
    /// The mapping of dense external ids, `0..nodes`.
    pub fn dense(nodes: u64, permutation: NodePermutation) -> Self {
        Self {
            nodes,
            permutation,
            listed: None,
        }
    }

    /// The mapping of the external ids in a dictionary.
    pub fn listed(dictionary: Dictionary, permutation: NodePermutation) -> Self {
        Self {
            nodes: dictionary.ids(),
            permutation,
            listed: Some(Listed {
                dictionary,
                table: None,
            }),
        }
    }

    /// The second step: from dense ids to nodes.
    pub fn permutation(&self) -> &NodePermutation {
        &self.permutation
    }

    /// The dictionary, if ids are not dense.
    pub fn dictionary(&self) -> Option<&Dictionary> {
        self.listed.as_ref().map(|listed| &listed.dictionary)
    }

    /// The same, to change how its ids become keys.
    pub fn dictionary_mut(&mut self) -> Option<&mut Dictionary> {
        self.listed.as_mut().map(|listed| &mut listed.dictionary)
    }

    /// Bytes of memory that looking ids up takes once [`IdMap::load`] was called.
    pub fn table_memory(&self) -> u64 {
        self.dictionary()
            .map_or(0, |dictionary| dictionary.ids() * BYTES_PER_KEY)
    }

    /// Makes lookups fast, by a table in memory.
    pub fn load(&mut self) -> Result<()> {
        if let Some(Listed { dictionary, table }) = &mut self.listed
            && table.is_none()
        {
            loop {
                let (full, alike) = load_table(dictionary, &self.permutation)?;
                if alike.is_empty() {
                    *table = Some(full);
                    break;
                }
                dictionary.separate(&alike)?;
            }
        }
        Ok(())
    }

    /// Gives back the memory that [`IdMap::load`] took.
    pub fn unload(&mut self) {
        if let Some(Listed { table, .. }) = &mut self.listed {
            *table = None;
        }
    }

    /// The node of an integer; none if no node has this id, or if ids are strings.
    pub fn node_of_int(&self, external: u64) -> Result<Option<NodeId>> {
        let dense = match &self.listed {
            None => (external < self.nodes).then_some(DenseId(external)),
            Some(Listed { dictionary, table }) => match (dictionary.kind(), table) {
                (KeyKind::Strings, _) => None,
                (KeyKind::Integers, Some(table)) => return Ok(table.find(integer_key(external)).map(NodeId)),
                (KeyKind::Integers, None) => dictionary.find_integer(external)?,
            },
        };
        Ok(dense.map(|id| self.permutation.node(id)))
    }

    /// The node of a string; none if no node has this id, or if ids are integers.
    pub fn node_of_text(&self, external: &[u8]) -> Result<Option<NodeId>> {
        let dense = match &self.listed {
            None => None,
            Some(Listed { dictionary, table }) => match (dictionary.kind(), table) {
                (KeyKind::Integers, _) => None,
                (KeyKind::Strings, Some(table)) => match table.find(dictionary.hash.key(external)).map(NodeId) {
                    // Strings that are not in the dictionary may have the key of one that is.
                    Some(node) if dictionary.string(self.permutation.dense_id(node)?)? == external => {
                        return Ok(Some(node));
                    }
                    _ => None,
                },
                (KeyKind::Strings, None) => dictionary.find_string(external)?,
            },
        };
        Ok(dense.map(|id| self.permutation.node(id)))
    }

    /// The external id of a node, as a user would write it.
    pub fn external(&self, node: NodeId) -> Result<String> {
        let id = self.permutation.dense_id(node)?;
        let Some(Listed { dictionary, .. }) = &self.listed else {
            return Ok(id.to_string());
        };
        Ok(match dictionary.kind() {
            KeyKind::Integers => dictionary.integer(id)?.to_string(),
            KeyKind::Strings => String::from_utf8_lossy(&dictionary.string(id)?).into_owned(),
        })
    }

    /// Parses a block of edges and replaces its external ids by their keys; dense ids stay. `text` is used where ids are
    /// strings.
    pub fn parse_keys(&self, block: &RawBlock, batch: &mut EdgeBatch, text: &mut TextBatch) -> Result<()> {
        let Some(Listed { dictionary, .. }) = &self.listed else {
            return block.parse(batch);
        };
        match dictionary.kind() {
            KeyKind::Integers => {
                block.parse(batch)?;
                for id in batch.sources.iter_mut().chain(&mut batch.targets) {
                    *id = integer_key(*id);
                }
            }
            KeyKind::Strings => {
                block.parse_text(text)?;
                for (ids, keys) in [(&text.sources, &mut batch.sources), (&text.targets, &mut batch.targets)] {
                    keys.clear();
                    keys.reserve_exact(ids.len());
                    keys.extend(ids.iter().map(|id| dictionary.hash.key(id)));
                }
                std::mem::swap(&mut batch.weights, &mut text.weights);
                std::mem::swap(&mut batch.rejected, &mut text.rejected);
            }
        }
        Ok(())
    }

    /// Parses a block of edges and replaces its external ids by nodes. `text` is used where ids are strings.
    ///
    /// # Panics
    /// If there is a dictionary and it is not loaded.
    pub fn parse(&self, block: &RawBlock, batch: &mut EdgeBatch, text: &mut TextBatch) -> Result<()> {
        self.parse_keys(block, batch, text)?;
        let Some(Listed { table, .. }) = &self.listed else {
            self.permutation.nodes(&mut batch.sources);
            self.permutation.nodes(&mut batch.targets);
            return Ok(());
        };
        let table = table
            .as_ref()
            .expect("the dictionary is loaded before edges are mapped");
        for keys in [&mut batch.sources, &mut batch.targets] {
            table.find_all(keys).map_err(|_| block.changed())?;
        }
        Ok(())
    }
}

/// A table of all external ids, and the dense ids of those that share a key with another one.
fn load_table(dictionary: &Dictionary, permutation: &NodePermutation) -> Result<(KeyTable, Vec<DenseId>)> {
    let (mut table, mut alike) = (KeyTable::with_capacity(dictionary.ids())?, Vec::new());
    dictionary.for_each_key(|key, id| {
        if let Some(other) = table.insert(key, permutation.node(id).0) {
            alike.extend([permutation.dense_id(NodeId(other))?, id]);
        }
        Ok(())
    })?;
    Ok((table, alike))
}
