//! Nodes back to the ids of the user's files, and the other way.

use std::{fmt, path::Path};

use grappa_formats::{
    FormatError, NodeId,
    dictionary::{IntegerDictionary, StringDictionary, find_integer},
    manifest::{ExternalIds, Manifest, OrderSpec},
    order::Feistel,
    order_table::{ENTRY_BYTES, OrderTable},
};
use grappa_io::{Error, Result, container::MappedPayload, map::Access};

use crate::{Order, files};

/// What the user's files call a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExternalId {
    /// A dense or sparse integer.
    Integer(u64),
    /// Any bytes.
    String(Vec<u8>),
}

/// Strings that are no UTF-8 show their other bytes escaped.
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

/// Node -> rank -> external id, and back.
///
/// Dense ids in random order cost arithmetic alone; tables and dictionaries are mapped, and cost a page each.
#[derive(Debug)]
pub struct StoreIds {
    order: StoredOrder,
    dictionary: Dictionary,
    nodes: u64,
}

#[derive(Debug)]
enum StoredOrder {
    Formula(Order),
    Table(Box<MappedPayload>),
}

#[derive(Debug)]
enum Dictionary {
    Dense,
    Integers(Box<MappedPayload>),
    Strings(Box<MappedPayload>),
}

impl StoreIds {
    /// The ids of a store whose files were checked.
    pub(super) fn open(root: &Path, manifest: &Manifest) -> Result<Self> {
        let mapped = |path: &str| {
            let file = files::open(root, files::entry(manifest, path))?;
            MappedPayload::new(&file, Access::Random).map(Box::new)
        };
        let (nodes, ids) = (manifest.nodes, &manifest.ids);
        let ids = Self {
            order: match ids.order {
                OrderSpec::Identity => StoredOrder::Formula(Order::Identity),
                OrderSpec::Feistel(seed) => StoredOrder::Formula(Order::Feistel(Feistel::new(nodes, seed))),
                OrderSpec::Table => StoredOrder::Table(mapped(files::ORDER)?),
            },
            dictionary: match ids.external {
                ExternalIds::Dense => Dictionary::Dense,
                ExternalIds::Sparse => Dictionary::Integers(mapped(files::DICTIONARY)?),
                ExternalIds::String => Dictionary::Strings(mapped(files::DICTIONARY)?),
            },
            nodes,
        };
        ids.check_counts().map_err(Error::format(root.join("ids")))?;
        Ok(ids)
    }

    /// Tries once what the lookups expect to go well.
    fn check_counts(&self) -> grappa_formats::Result<()> {
        let keys = match &self.dictionary {
            Dictionary::Dense => self.nodes,
            Dictionary::Integers(file) => IntegerDictionary::new(file.header(), file.unchecked())?.len(),
            Dictionary::Strings(file) => StringDictionary::new(file.header(), file.unchecked())?.len(),
        };
        let entries = match &self.order {
            StoredOrder::Formula(_) => self.nodes,
            StoredOrder::Table(file) => OrderTable::new(file.header(), file.unchecked())?.nodes(),
        };
        if (keys, entries) != (self.nodes, self.nodes) {
            return Err(FormatError::invalid(
                64,
                format!("{keys} ids and an order of {entries} nodes for {} nodes", self.nodes),
            ));
        }
        Ok(())
    }

    /// The place of a node among all external ids, sorted.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn rank(&self, node: NodeId) -> Result<u64> {
        assert!(node.0 < self.nodes, "node {node} of {}", self.nodes);
        match &self.order {
            StoredOrder::Formula(order) => order.rank(node.0),
            StoredOrder::Table(file) => {
                check_entry(file, self.nodes + node.0)?;
                order_table(file).inverse(node.0).map_err(Error::format(file.path()))
            }
        }
    }

    /// The node at a place among all external ids, sorted.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn node_at(&self, rank: u64) -> Result<NodeId> {
        assert!(rank < self.nodes, "rank {rank} of {}", self.nodes);
        match &self.order {
            StoredOrder::Formula(order) => Ok(NodeId(order.node(rank))),
            StoredOrder::Table(file) => {
                check_entry(file, rank)?;
                let node = order_table(file).forward(rank).map_err(Error::format(file.path()))?;
                Ok(NodeId(node))
            }
        }
    }

    /// What the user's files call a node.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn external(&self, node: NodeId) -> Result<ExternalId> {
        let rank = self.rank(node)?;
        if let Dictionary::Strings(_) = self.dictionary {
            let mut id = Vec::new();
            self.append_text_at(rank, &mut id)?;
            return Ok(ExternalId::String(id));
        }
        Ok(ExternalId::Integer(self.integer_at(rank)?))
    }

    /// What errors call a node: `node 17`, by the id that the user's files give it. If that can't be read, the number says
    /// that it is the store's own.
    pub fn name(&self, node: NodeId) -> String {
        match self.external(node) {
            Ok(id) => format!("node {id}"),
            Err(_) => format!("the node with the internal number {node}"),
        }
    }

    /// The integer that the user's files call a node.
    ///
    /// # Panics
    /// If there is no such node, or ids are strings.
    #[inline]
    pub fn integer(&self, node: NodeId) -> Result<u64> {
        self.integer_at(self.rank(node)?)
    }

    /// The integer at a place among all external ids, sorted.
    ///
    /// # Panics
    /// If there is no such place, or ids are strings.
    #[inline]
    pub fn integer_at(&self, rank: u64) -> Result<u64> {
        match &self.dictionary {
            Dictionary::Dense => Ok(rank),
            Dictionary::Integers(file) => integer(file, rank),
            Dictionary::Strings(_) => panic!("ids are strings"),
        }
    }

    /// Appends what the user's files call a node: digits, or the bytes of the string.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn append_text(&self, node: NodeId, text: &mut Vec<u8>) -> Result<()> {
        self.append_text_at(self.rank(node)?, text)
    }

    /// Appends what is at a place among all external ids, sorted: digits, or the bytes of the string.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn append_text_at(&self, rank: u64, text: &mut Vec<u8>) -> Result<()> {
        let Dictionary::Strings(file) = &self.dictionary else {
            text.extend_from_slice(itoa::Buffer::new().format(self.integer_at(rank)?).as_bytes());
            return Ok(());
        };
        let mut id = Vec::new();
        strings(file)
            .get_checked(rank, &mut id, |bytes| file.check_bytes(bytes))
            .map_err(Error::format(file.path()))?;
        text.extend_from_slice(&id);
        Ok(())
    }

    /// The node that the user's files call `id`, if there is one.
    pub fn node(&self, id: &ExternalId) -> Result<Option<NodeId>> {
        let rank = match (&self.dictionary, id) {
            (Dictionary::Dense, &ExternalId::Integer(id)) => Some(id).filter(|&id| id < self.nodes),
            (Dictionary::Integers(file), &ExternalId::Integer(id)) => {
                find_integer(self.nodes, id, |rank| integer(file, rank))?
            }
            (Dictionary::Strings(file), ExternalId::String(id)) => strings(file)
                .find_checked(id, |bytes| file.check_bytes(bytes))
                .map_err(Error::format(file.path()))?,
            _ => None,
        };
        rank.map(|rank| self.node_at(rank)).transpose()
    }
}

fn order_table(file: &MappedPayload) -> OrderTable<'_> {
    OrderTable::new(file.header(), file.unchecked()).expect("checked when opened")
}

fn check_entry(file: &MappedPayload, entry: u64) -> Result<()> {
    let start = entry * ENTRY_BYTES as u64;
    file.check(start..start + ENTRY_BYTES as u64)
}

fn integer(file: &MappedPayload, rank: u64) -> Result<u64> {
    file.check(8 * rank..8 * rank + 8)?;
    Ok(integers(file).get(rank))
}

fn integers(file: &MappedPayload) -> IntegerDictionary<'_> {
    IntegerDictionary::new(file.header(), file.unchecked()).expect("checked when opened")
}

fn strings(file: &MappedPayload) -> StringDictionary<'_> {
    StringDictionary::new(file.header(), file.unchecked()).expect("checked when opened")
}
