//! Edges as columns of a table.
//!
//! Threads make blocks of records, and one thread divides them into columns:
//!
//! ```text
//! integers: source u64, target u64, [weight f32], [features f32 each]
//! strings:  length u32, source, length u32, target, [weight f32], [features f32 each]
//! ```

use grappa_formats::{NodeId, manifest::ExternalIds};
use grappa_io::Result;
use grappa_storage::Store;

use crate::export::{
    node_table::id_scalar,
    table::{Cells, Column, GroupSink, Scalar, Shape, Values, group_rows},
};

/// Bytes of memory for each byte of a group's records: columns, and their pages.
const MEMORY_OF_BYTE: u64 = 4;

/// Rows of a group of the edges of `store`, whose ids have `id_bytes` bytes as text, and bytes of memory for it.
pub(super) fn group_of(store: &Store, id_bytes: u64) -> (u64, u64) {
    let features = store.edge_features().map_or(0, |layout| u64::from(layout.dim));
    let row_bytes = 2 * (id_bytes.max(4) + 4) + 4 + 4 * features;
    let rows = group_rows(row_bytes as usize, store.manifest().edges);
    (rows, rows.saturating_mul(row_bytes).saturating_mul(MEMORY_OF_BYTE))
}

/// The names of the values of an edge: `weight`, and the names of its features. Features without names have numbers.
pub(super) fn value_names(store: &Store) -> Result<Vec<String>> {
    let weight = store.manifest().weighted.then(|| "weight".to_owned());
    let features = match store.edge_features() {
        None => Vec::new(),
        Some(layout) => match store.schema()?.edge_feature_names() {
            names if names.is_empty() => (1..=layout.dim).map(|number| format!("feature{number}")).collect(),
            names => names,
        },
    };
    Ok(weight.into_iter().chain(features).collect())
}

/// Appends the external id of a node to a record. `text` is a buffer.
pub(super) fn append_id(store: &Store, node: NodeId, text: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<()> {
    if store.manifest().ids.external != ExternalIds::String {
        out.extend_from_slice(&store.ids().integer(node)?.to_le_bytes());
        return Ok(());
    }
    text.clear();
    store.ids().append_text(node, text)?;
    let length = u32::try_from(text.len()).expect("an id has at most 65535 bytes");
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(text);
    Ok(())
}

/// The columns of edges that are not written yet.
pub(super) struct EdgeColumns {
    ids: Scalar,
    ends: [Values; 2],
    /// The names of the values of an edge, and a column for each.
    names: Vec<String>,
    values: Vec<Vec<f32>>,
    rows: u64,
    rows_max: u64,
}

impl EdgeColumns {
    /// Columns in groups of `rows_max` rows.
    pub(super) fn new(store: &Store, rows_max: u64) -> Result<Self> {
        let (ids, names) = (id_scalar(store)?, value_names(store)?);
        Ok(Self {
            ids,
            ends: [no_ids(ids), no_ids(ids)],
            values: vec![Vec::new(); names.len()],
            names,
            rows: 0,
            rows_max,
        })
    }

    pub(super) fn described(&self) -> Vec<Column> {
        // Edges come by target, so targets repeat.
        let mut columns = vec![
            Column::new("source", self.ids, Shape::One),
            Column { repeats: true, ..Column::new("target", self.ids, Shape::One) },
        ];
        let values = self.names.iter();
        columns.extend(values.map(|name| Column::new(name.as_str(), Scalar::Float, Shape::One)));
        columns
    }

    /// Adds a block of records, and writes the groups that are full.
    pub(super) fn add(&mut self, mut block: &[u8], sink: &mut dyn GroupSink) -> Result<()> {
        while !block.is_empty() {
            for end in &mut self.ends {
                match end {
                    Values::Texts(texts) => {
                        let length = u32::from_le_bytes(taken(&mut block));
                        texts.push(block.split_off(..length as usize).expect("records are whole").to_vec());
                    }
                    Values::Integers(integers) => integers.push(i64::from_le_bytes(taken(&mut block))),
                    Values::Floats(_) => unreachable!("ids are integers or strings"),
                }
            }
            for values in &mut self.values {
                values.push(f32::from_le_bytes(taken(&mut block)));
            }
            self.rows += 1;
            if self.rows >= self.rows_max {
                self.flush(sink)?;
            }
        }
        Ok(())
    }

    /// Writes the rows that are left.
    pub(super) fn flush(&mut self, sink: &mut dyn GroupSink) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let ends = std::mem::replace(&mut self.ends, [no_ids(self.ids), no_ids(self.ids)]);
        let mut cells: Vec<Cells> = ends.into_iter().map(Cells::from).collect();
        let values = self.values.iter_mut().map(std::mem::take);
        cells.extend(values.map(|values| Cells::from(Values::Floats(values))));
        self.rows = 0;
        sink.write(&cells)
    }
}

/// Takes the next bytes of a record.
fn taken<const N: usize>(block: &mut &[u8]) -> [u8; N] {
    let (bytes, rest) = block.split_first_chunk().expect("records are whole");
    *block = rest;
    *bytes
}

fn no_ids(ids: Scalar) -> Values {
    match ids {
        Scalar::Text => Values::Texts(Vec::new()),
        _ => Values::Integers(Vec::new()),
    }
}
