//! Lookups of ids in a store: external id, dense id, node.

use std::{fmt, path::Path};

use grappa_formats::{
    DenseId, FormatError, NodeId,
    dictionary::{IntegerDictionary, StringDictionary, find_integer},
    manifest::{ExternalIds, Manifest, PermutationSpec},
    permutation::Feistel,
    permutation_table::{ENTRY_BYTES, PermutationTable},
};
use grappa_io::{Error, Result, container::MappedPayload, heap, map::Access};

use crate::{NodePermutation, files};

/// The id of a node in the user's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExternalId {
    /// An integer, dense or sparse.
    Integer(u64),
    /// A string. It may be any bytes.
    String(Vec<u8>),
}

/// Strings that are not UTF-8 are shown with escaped bytes.
impl fmt::Display for ExternalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(id) => id.fmt(f),
            Self::String(id) => match std::str::from_utf8(id) {
                Ok(id) => id.fmt(f),
                Err(_) => id.escape_ascii().fmt(f),
            },
        }
    }
}

/// The mapping from nodes to external ids and back, in two steps: node <-> dense id <-> external id.
///
/// A lookup costs only arithmetic if the permutation is a formula and external ids are dense. Tables and dictionaries are
/// mapped files; a lookup in each touches a page.
#[derive(Debug)]
pub struct StoreIds {
    permutation: StoredPermutation,
    dictionary: Dictionary,
    nodes: u64,
}

#[derive(Debug)]
enum StoredPermutation {
    Formula(NodePermutation),
    Table(Box<MappedPayload>),
}

#[derive(Debug)]
enum Dictionary {
    Dense,
    Integers(Box<MappedPayload>),
    Strings(Box<MappedPayload>),
}

fn mapped(root: &Path, manifest: &Manifest, path: &str) -> Result<Box<MappedPayload>> {
    let file = files::open(root, files::entry(manifest, path))?;
    MappedPayload::new(&file, Access::Random).map(Box::new)
}

impl StoreIds {
    /// The ids of a store whose files were checked.
    pub(super) fn open(root: &Path, manifest: &Manifest) -> Result<Self> {
        let (nodes, ids) = (manifest.nodes, &manifest.ids);
        let ids = Self {
            permutation: match ids.permutation {
                PermutationSpec::Identity => StoredPermutation::Formula(NodePermutation::Identity),
                PermutationSpec::Feistel(seed) => {
                    StoredPermutation::Formula(NodePermutation::Feistel(Feistel::new(nodes, seed)))
                }
                PermutationSpec::Table => StoredPermutation::Table(mapped(root, manifest, files::PERMUTATION)?),
            },
            dictionary: match ids.external {
                ExternalIds::Dense => Dictionary::Dense,
                ExternalIds::Sparse => Dictionary::Integers(mapped(root, manifest, files::DICTIONARY)?),
                ExternalIds::String => Dictionary::Strings(mapped(root, manifest, files::DICTIONARY)?),
            },
            nodes,
        };
        ids.check_counts().map_err(Error::format(root.join("ids")))?;
        Ok(ids)
    }

    /// Decodes every file once, because the lookups expect that to succeed, and checks that all have the same number of
    /// nodes.
    fn check_counts(&self) -> grappa_formats::Result<()> {
        let keys = match &self.dictionary {
            Dictionary::Dense => self.nodes,
            Dictionary::Integers(file) => IntegerDictionary::new(file.header(), file.unchecked())?.keys(),
            Dictionary::Strings(file) => StringDictionary::new(file.header(), file.unchecked())?.keys,
        };
        let entries = match &self.permutation {
            StoredPermutation::Formula(_) => self.nodes,
            StoredPermutation::Table(file) => PermutationTable::new(file.header(), file.unchecked())?.nodes(),
        };
        if (keys, entries) != (self.nodes, self.nodes) {
            return Err(FormatError::invalid(
                64,
                format!("{keys} external ids and a node permutation of {entries} entries for {} nodes", self.nodes),
            ));
        }
        Ok(())
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The kind of external ids.
    pub fn kind(&self) -> ExternalIds {
        match self.dictionary {
            Dictionary::Dense => ExternalIds::Dense,
            Dictionary::Integers(_) => ExternalIds::Sparse,
            Dictionary::Strings(_) => ExternalIds::String,
        }
    }

    /// The dense id of a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn dense_id(&self, node: NodeId) -> Result<DenseId> {
        assert!(node.0 < self.nodes, "node {node} of {}", self.nodes);
        match &self.permutation {
            StoredPermutation::Formula(permutation) => permutation.dense_id(node),
            StoredPermutation::Table(file) => {
                check_entry(file, self.nodes + node.0)?;
                table(file).dense_id(node).map_err(Error::format(file.path()))
            }
        }
    }

    /// The dense id of each node. Faster than one by one.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn dense_ids(&self, nodes: &[NodeId]) -> Result<Vec<u64>> {
        let mut ids: Vec<u64> = Vec::new();
        heap::reserve(&mut ids, nodes.len(), "the ids of nodes")?;
        ids.extend(nodes.iter().map(|node| node.0));
        if let Some(node) = ids.iter().find(|&&node| node >= self.nodes) {
            panic!("node {node} of {}", self.nodes);
        }
        match &self.permutation {
            StoredPermutation::Formula(NodePermutation::Feistel(feistel)) => feistel.inverse_all(&mut ids),
            StoredPermutation::Formula(NodePermutation::Identity) => {}
            StoredPermutation::Formula(NodePermutation::Table(_)) | StoredPermutation::Table(_) => {
                for id in &mut ids {
                    *id = self.dense_id(NodeId(*id))?.0;
                }
            }
        }
        Ok(ids)
    }

    /// The node of a dense id.
    ///
    /// # Panics
    /// If there is no such dense id.
    pub fn node_of(&self, id: DenseId) -> Result<NodeId> {
        assert!(id.0 < self.nodes, "dense id {id} of {}", self.nodes);
        match &self.permutation {
            StoredPermutation::Formula(permutation) => Ok(permutation.node(id)),
            StoredPermutation::Table(file) => {
                check_entry(file, id.0)?;
                table(file).node(id).map_err(Error::format(file.path()))
            }
        }
    }

    /// The external id of a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn external(&self, node: NodeId) -> Result<ExternalId> {
        let dense = self.dense_id(node)?;
        if let Dictionary::Strings(_) = self.dictionary {
            let mut id = Vec::new();
            self.append_text_at(dense, &mut id)?;
            return Ok(ExternalId::String(id));
        }
        Ok(ExternalId::Integer(self.integer_at(dense)?))
    }

    /// The name of a node for errors: `node 17`, with its external id. If that can't be read, the name says that the number
    /// is internal.
    pub fn name(&self, node: NodeId) -> String {
        match self.external(node) {
            Ok(id) => format!("node {id}"),
            Err(_) => format!("the node with the internal number {node}"),
        }
    }

    /// The external id of a node, an integer.
    ///
    /// # Panics
    /// If there is no such node, or ids are strings.
    #[inline]
    pub fn integer(&self, node: NodeId) -> Result<u64> {
        self.integer_at(self.dense_id(node)?)
    }

    /// The external id of a dense id, an integer.
    ///
    /// # Panics
    /// If there is no such dense id, or ids are strings.
    #[inline]
    pub fn integer_at(&self, id: DenseId) -> Result<u64> {
        match &self.dictionary {
            Dictionary::Dense => Ok(id.0),
            Dictionary::Integers(file) => integer(file, id),
            Dictionary::Strings(_) => panic!("ids are strings"),
        }
    }

    /// Appends the external id of a node to `text`: its digits, or the bytes of the string.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn append_text(&self, node: NodeId, text: &mut Vec<u8>) -> Result<()> {
        self.append_text_at(self.dense_id(node)?, text)
    }

    /// Appends the external id of a dense id to `text`: its digits, or the bytes of the string.
    ///
    /// # Panics
    /// If there is no such dense id.
    pub fn append_text_at(&self, id: DenseId, text: &mut Vec<u8>) -> Result<()> {
        let Dictionary::Strings(file) = &self.dictionary else {
            text.extend_from_slice(itoa::Buffer::new().format(self.integer_at(id)?).as_bytes());
            return Ok(());
        };
        let mut key = Vec::new();
        strings(file).get(id, &mut key, |bytes| file.check_bytes(bytes)).map_err(Error::format(file.path()))?;
        text.extend_from_slice(&key);
        Ok(())
    }

    /// The node with the external id `id`, if there is one.
    pub fn node(&self, id: &ExternalId) -> Result<Option<NodeId>> {
        let dense = match (&self.dictionary, id) {
            (Dictionary::Dense, &ExternalId::Integer(id)) => (id < self.nodes).then_some(DenseId(id)),
            (Dictionary::Integers(file), &ExternalId::Integer(id)) => {
                find_integer(self.nodes, id, |id| integer(file, id))?
            }
            (Dictionary::Strings(file), ExternalId::String(id)) => {
                strings(file).find(id, |bytes| file.check_bytes(bytes)).map_err(Error::format(file.path()))?
            }
            _ => None,
        };
        dense.map(|id| self.node_of(id)).transpose()
    }
}

fn table(file: &MappedPayload) -> PermutationTable<'_> {
    PermutationTable::new(file.header(), file.unchecked()).expect("checked when opened")
}

fn check_entry(file: &MappedPayload, entry: u64) -> Result<()> {
    let start = entry * ENTRY_BYTES as u64;
    file.check(start..start + ENTRY_BYTES as u64)
}

fn integer(file: &MappedPayload, id: DenseId) -> Result<u64> {
    file.check(8 * id.0..8 * id.0 + 8)?;
    Ok(integers(file).get(id))
}

fn integers(file: &MappedPayload) -> IntegerDictionary<'_> {
    IntegerDictionary::new(file.header(), file.unchecked()).expect("checked when opened")
}

fn strings(file: &MappedPayload) -> StringDictionary<'_> {
    StringDictionary::new(file.header(), file.unchecked()).expect("checked when opened")
}
