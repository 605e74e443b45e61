//! Features and embeddings as the rows that exact inference reads.

use std::ops::Range;

use grappa_engine::aggregate::{NodeRows, RowValues, store_features};
use grappa_storage::Store;

use super::tables::{NodeTable, NodeTables};

/// The inputs of the nodes of a type: features, embeddings, or the embedding after the features.
///
/// # Errors
/// If files cannot be opened.
pub(crate) fn input_rows<'a>(
    store: &'a Store,
    tables: Option<&'a NodeTables>,
    node_type: usize,
) -> grappa_io::Result<Box<dyn NodeRows + 'a>> {
    let Some(table) = tables.and_then(|tables| tables.table(node_type)) else {
        return store_features(store);
    };
    let features = store.manifest().features.as_ref().map(|_| store_features(store)).transpose()?;
    Ok(Box::new(InputRows { features, table }))
}

struct InputRows<'a> {
    features: Option<Box<dyn NodeRows + 'a>>,
    table: &'a NodeTable,
}

impl NodeRows for InputRows<'_> {
    fn width(&self) -> usize {
        self.features.as_ref().map_or(0, |features| features.width()) + self.table.rows.dim()
    }

    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> grappa_io::Result<()> {
        let values = self.table.rows.dim();
        let Some(features) = &self.features else {
            let rows = &self.table.rows.values()[positions.start as usize * values..positions.end as usize * values];
            out.copy_from_slice(rows);
            self.table.touched(size_of_val(rows) as u64);
            return Ok(());
        };
        let stored = features.width();
        let mut read = vec![0.0; (positions.end - positions.start) as usize * stored];
        features.read(positions.clone(), &mut read)?;
        let rows = out.chunks_exact_mut(stored + values).zip(read.chunks_exact(stored)).zip(positions);
        for ((out, features), position) in rows {
            let (own, embedding) = out.split_at_mut(stored);
            own.copy_from_slice(features);
            embedding.copy_from_slice(self.table.rows.row(position as usize));
        }
        self.table.touched((read.len() / stored.max(1) * values * size_of::<f32>()) as u64);
        Ok(())
    }

    fn read_ahead(&self, positions: Range<u64>) {
        self.table.rows.read_ahead_range(positions.start as usize..positions.end as usize);
        self.features.iter().for_each(|features| features.read_ahead(positions.clone()));
    }

    fn file_bytes(&self) -> u64 {
        self.features.as_ref().map_or(0, |features| features.file_bytes())
    }

    fn file_end(&self, position: u64) -> u64 {
        self.features.as_ref().map_or(u64::MAX, |features| features.file_end(position))
    }

    fn in_memory(&self) -> Option<RowValues<'_>> {
        let all = || RowValues { values: self.table.rows.values(), stride: self.table.rows.dim() };
        (self.features.is_none() && !self.table.rows.is_on_disk()).then(all)
    }
}
