//! From external ids to nodes, and back, while a store is built.
//!
//! ```text
//! external id --dictionary--> dense id --node permutation--> node
//! ```
//!
//! An external id is the id in the user's files. Its dense id is its index among all external ids, sorted. If external ids
//! are dense, they are their own dense ids. The node is the position in the store. The first step depends only on the kind
//! of external ids, and the second only on how nodes are spread over chunks.
//!
//! Ids that are not dense are looked up in the [dictionary] on disk, one by one, which is slow. For many
//! lookups, [`IdMap::load`] makes a [table] in memory, which does both steps at once. If the table exceeds the memory, edges
//! and long lists are joined with segments of the ids ([`crate::ingest`]).

pub mod dictionary;
pub mod keys;
pub mod table;

use grappa_formats::{DenseId, NodeId, dictionary::KeyKind};
use grappa_input::{Keys, integer_of};
use grappa_io::Result;
use grappa_storage::NodePermutation;

use self::{
    dictionary::Dictionary,
    keys::{Id, integer_key},
    table::{BYTES_PER_KEY, KeyTable},
};

/// Keys that are put into a table at a time.
const LOAD_KEYS: usize = 1 << 12;

/// The strings that are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// Any strings.
    Any,
    /// Strings of the dictionary. With its table, they are found without reading the dictionary, because strings are not compared.
    Known,
}

/// Maps external ids to nodes, and nodes to external ids.
#[derive(Debug)]
pub struct IdMap {
    nodes: u64,
    permutation: NodePermutation,
    /// None if ids are dense.
    listed: Option<ListedIds>,
}

#[derive(Debug)]
struct ListedIds {
    dictionary: Dictionary,
    table: Option<KeyTable>,
}

impl IdMap {
    /// The dense ids `0..nodes`.
    pub fn dense(nodes: u64, permutation: NodePermutation) -> Self {
        Self { nodes, permutation, listed: None }
    }

    /// The ids of a dictionary.
    pub fn listed(dictionary: Dictionary, permutation: NodePermutation) -> Self {
        Self { nodes: dictionary.ids(), permutation, listed: Some(ListedIds { dictionary, table: None }) }
    }

    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    pub fn permutation(&self) -> &NodePermutation {
        &self.permutation
    }

    /// The dictionary, if ids are not dense.
    pub fn dictionary(&self) -> Option<&Dictionary> {
        self.listed.as_ref().map(|listed| &listed.dictionary)
    }

    /// The dictionary, to change how its ids become keys.
    pub fn dictionary_mut(&mut self) -> Option<&mut Dictionary> {
        self.listed.as_mut().map(|listed| &mut listed.dictionary)
    }

    /// Bytes of memory that [`IdMap::load`] takes. 0 if ids are dense.
    pub fn table_memory(&self) -> u64 {
        self.dictionary().map_or(0, |dictionary| dictionary.ids() * BYTES_PER_KEY)
    }

    /// Makes lookups fast, with a table in memory.
    pub fn load(&mut self) -> Result<()> {
        if let Some(ListedIds { dictionary, table }) = &mut self.listed
            && table.is_none()
        {
            // Strings that share a key get keys from another hash, and the table is made again. The new keys may be shared
            // too, so this can take more than two rounds.
            loop {
                let (full, shared) = load_table(dictionary, &self.permutation)?;
                if shared.is_empty() {
                    *table = Some(full);
                    break;
                }
                dictionary.separate(&shared)?;
            }
        }
        Ok(())
    }

    /// Frees the table of [`IdMap::load`].
    pub fn unload(&mut self) {
        if let Some(ListedIds { table, .. }) = &mut self.listed {
            *table = None;
        }
    }

    /// Sets `nodes` to the node of each id. None if no node has the id.
    pub fn nodes_of<'i>(
        &self,
        ids: impl ExactSizeIterator<Item = Id<'i>> + Clone,
        strings: Strings,
        nodes: &mut [Option<NodeId>],
    ) -> Result<()> {
        match &self.listed {
            Some(ListedIds { dictionary, table: Some(table) }) => {
                let keys: Vec<u64> = ids.clone().map(|id| id.key(&dictionary.hash)).collect();
                table.find_each(&keys, nodes);
                if strings == Strings::Known {
                    return Ok(());
                }
                for (id, node) in ids.zip(nodes) {
                    if let Some(found) = *node
                        && !self.has(found, id, strings)?
                    {
                        *node = None;
                    }
                }
            }
            Some(ListedIds { dictionary, table: None }) => {
                for (id, node) in ids.zip(nodes) {
                    *node = dictionary.find(id)?.map(|id| self.permutation.node(id));
                }
            }
            None => {
                for (id, node) in ids.zip(nodes) {
                    *node = match id {
                        Id::Integer(id) if id < self.nodes => Some(self.permutation.node(DenseId(id))),
                        _ => None,
                    };
                }
            }
        }
        Ok(())
    }

    /// Whether a node with the key of an id has the id. A string that no node has may share its key.
    pub fn has(&self, node: NodeId, id: Id<'_>, strings: Strings) -> Result<bool> {
        match (id, strings, self.dictionary()) {
            (Id::String(id), Strings::Any, Some(dictionary)) => {
                Ok(dictionary.string(self.permutation.dense_id(node)?)? == id)
            }
            _ => Ok(true),
        }
    }

    pub fn external(&self, node: NodeId) -> Result<String> {
        let id = self.permutation.dense_id(node)?;
        self.dictionary().map_or_else(|| Ok(id.to_string()), |dictionary| dictionary.external(id))
    }

    /// Replaces integers by their keys. Dense ids stay as they are.
    pub fn keys_of_integers(&self, ids: &mut [u64]) {
        if self.listed.is_some() {
            ids.iter_mut().for_each(|id| *id = integer_key(*id));
        }
    }

    /// Appends the keys of ids of edges that were parsed as text.
    pub fn keys_of_text(&self, ids: &Keys, keys: &mut Vec<u64>) {
        match self.dictionary() {
            None => keys.extend(ids.iter().map(integer_of)),
            Some(dictionary) => match dictionary.kind() {
                KeyKind::Integers => keys.extend(ids.iter().map(|id| integer_key(integer_of(id)))),
                KeyKind::Strings => keys.extend(ids.iter().map(|id| dictionary.hash.key(id))),
            },
        }
    }

    /// Replaces keys by nodes. Dense ids are their own keys. The error is a key that no node has.
    ///
    /// # Panics
    /// If there is a dictionary and it is not loaded.
    pub fn replace_keys(&self, keys: &mut [u64]) -> std::result::Result<(), u64> {
        match &self.listed {
            None => {
                self.permutation.nodes(keys);
                Ok(())
            }
            Some(listed) => listed.loaded().find_all(keys),
        }
    }

    /// Sets `nodes` to the node of each key, if a node has it. Of strings that no node has, one in 2^64 for each node has the key of a node.
    ///
    /// # Panics
    /// If there is a dictionary and it is not loaded.
    pub fn find_nodes(&self, keys: &[u64], nodes: &mut [Option<NodeId>]) {
        match &self.listed {
            None => {
                for (&key, node) in keys.iter().zip(nodes) {
                    *node = (key < self.nodes).then(|| self.permutation.node(DenseId(key)));
                }
            }
            Some(listed) => listed.loaded().find_each(keys, nodes),
        }
    }
}

impl ListedIds {
    fn loaded(&self) -> &KeyTable {
        self.table.as_ref().expect("the dictionary is loaded before edges are mapped")
    }
}

/// Makes a table of all ids. Returns also the dense ids whose key another id has.
fn load_table(dictionary: &Dictionary, permutation: &NodePermutation) -> Result<(KeyTable, Vec<DenseId>)> {
    let (mut table, mut shared) = (KeyTable::with_capacity(dictionary.ids())?, Vec::new());
    let (mut records, mut nodes) = (Vec::with_capacity(LOAD_KEYS), Vec::with_capacity(LOAD_KEYS));
    let mut insert = |records: &mut Vec<[u64; 2]>| {
        nodes.clear();
        nodes.extend(records.iter().map(|&[_, id]| id));
        permutation.nodes(&mut nodes);
        for ([_, node], &internal) in records.iter_mut().zip(&nodes) {
            *node = internal;
        }
        table.insert_all(records, |index, other| shared.extend([other, NodeId(nodes[index])]));
        records.clear();
    };
    dictionary.for_each_key(|key, id| {
        records.push([key, id.0]);
        if records.len() == LOAD_KEYS {
            insert(&mut records);
        }
        Ok(())
    })?;
    insert(&mut records);
    let shared = shared.into_iter().map(|node| permutation.dense_id(node)).collect::<Result<_>>()?;
    Ok((table, shared))
}
