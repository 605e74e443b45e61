//! The update of embeddings by the gradients of a step.
//!
//! The owner of a row updates it by the sum of the gradients of all partitions. A process sums up the gradients of a row that its own
//! partitions computed, and sends the sum to the process of the owner:
//!
//! ```text
//! for each node type: number of rows u32, the rows u32 each, their gradients f32 each
//! ```

use grappa_knowledge::{
    matrix::Matrix,
    rows::{GradientOf, RowOptimizer, Rows},
};

use super::{
    batch::BatchEmbeddings,
    tables::{NodeTable, NodeTables},
};
use crate::{Result, distributed::ProcessGroup};

/// The processes that own rows.
pub(crate) struct RowOwners<'a> {
    pub group: &'a ProcessGroup,
    /// The rank that owns each row of a node type.
    pub rank_of: &'a dyn Fn(usize, u32) -> u32,
}

/// Gradients of the rows of a type, each by its row.
#[derive(Debug, Default)]
struct RowGradients {
    rows: Vec<u32>,
    values: Vec<f32>,
}

impl NodeTables {
    /// Updates embeddings by the gradients of a batch, divided by `denominator`, and those that other processes send. Returns the bytes that
    /// were sent to other processes. All ranks must call it, also without a batch.
    ///
    /// # Errors
    /// If a rank has left or cannot be reached.
    pub fn update(
        &mut self,
        batch: Option<&BatchEmbeddings>,
        (rate, denominator): (f64, f64),
        owners: Option<RowOwners<'_>>,
    ) -> Result<u64> {
        let (factor, optimizer) = ((1.0 / denominator) as f32, self.optimizer);
        let gathered = batch.into_iter().flat_map(|batch| &batch.types);
        let Some(owners) = owners else {
            for gathered in gathered {
                let Some(table) = &mut self.types[gathered.node_type] else { continue };
                if let Some((rows, matrix)) = gathered.scaled_gradients(table.rows.dim(), factor) {
                    table.update(optimizer, rate as f32, rows, &matrix);
                }
            }
            return Ok(0);
        };
        let ranks = owners.group.place().ranks as usize;
        // By rank and node type.
        let mut gradients: Vec<Vec<RowGradients>> = Vec::with_capacity(ranks);
        gradients.resize_with(ranks, || self.types.iter().map(|_| RowGradients::default()).collect());
        for gathered in gathered {
            let Some(table) = &self.types[gathered.node_type] else { continue };
            let dim = table.rows.dim();
            let Some((rows, matrix)) = gathered.scaled_gradients(dim, factor) else { continue };
            for of_row in rows.chunk_by(|one, next| one.row == next.row) {
                let rank = (owners.rank_of)(gathered.node_type, of_row[0].row) as usize;
                gradients[rank][gathered.node_type].add(of_row, &matrix, dim);
            }
        }
        let rank = owners.group.place().rank as usize;
        let own = std::mem::take(&mut gradients[rank]);
        let messages: Vec<Vec<u8>> = gradients.iter().map(|types| self.encode(types)).collect();
        let sent: usize = messages.iter().map(Vec::len).sum();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        let received = owners.group.all_to_all(&messages, None)?;
        let mut by_rank: Vec<Vec<RowGradients>> = received.iter().map(|message| self.decode(message)).collect();
        by_rank[rank] = own;
        for (node_type, table) in self.types.iter_mut().enumerate() {
            let Some(table) = table else { continue };
            let of_type = by_rank.iter().filter_map(|types| types.get(node_type));
            let (rows, matrix) = merged(of_type, table.rows.dim());
            table.update(optimizer, rate as f32, &rows, &matrix);
        }
        Ok(sent as u64)
    }

    fn encode(&self, types: &[RowGradients]) -> Vec<u8> {
        let mut message = Vec::new();
        for (gradients, _) in types.iter().zip(&self.types).filter(|(_, table)| table.is_some()) {
            message.extend((gradients.rows.len() as u32).to_le_bytes());
            message.extend(gradients.rows.iter().flat_map(|row| row.to_le_bytes()));
            message.extend(gradients.values.iter().flat_map(|value| value.to_le_bytes()));
        }
        message
    }

    /// The gradients in a message of [`NodeTables::encode`], which is empty from this process to itself.
    fn decode(&self, message: &[u8]) -> Vec<RowGradients> {
        let mut words = message.chunks_exact(4).map(|bytes| <[u8; 4]>::try_from(bytes).expect("four bytes"));
        let of_type = |table: &Option<NodeTable>| {
            let Some(table) = table else { return RowGradients::default() };
            let rows = words.next().map_or(0, u32::from_le_bytes) as usize;
            RowGradients {
                rows: words.by_ref().take(rows).map(u32::from_le_bytes).collect(),
                values: words.by_ref().take(rows * table.rows.dim()).map(f32::from_le_bytes).collect(),
            }
        };
        self.types.iter().map(of_type).collect()
    }
}

impl RowGradients {
    /// Adds the sum of the gradients of a row, which `gradients` lists.
    fn add(&mut self, gradients: &[GradientOf], matrix: &Matrix, dim: usize) {
        let start = self.values.len();
        self.rows.push(gradients[0].row);
        self.values.resize(start + dim, 0.0);
        for gradient in gradients {
            let values = &matrix.row(gradient.gradient as usize)[..dim];
            self.values[start..].iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
}

/// The gradients of several processes, sorted by row and then by process.
fn merged<'a>(gradients: impl Iterator<Item = &'a RowGradients> + Clone, dim: usize) -> (Vec<GradientOf>, Matrix) {
    let rows = gradients.clone().flat_map(|gradients| &gradients.rows);
    let mut rows: Vec<GradientOf> = rows.zip(0..).map(|(&row, gradient)| GradientOf { row, gradient }).collect();
    let values: Vec<&[f32]> = gradients.flat_map(|gradients| gradients.values.chunks_exact(dim)).collect();
    let mut matrix = Matrix::default();
    matrix.resize(rows.len(), dim);
    matrix.fill_rows(|row, out| {
        out[..dim].copy_from_slice(values[row]);
        out[dim..].fill(0.0);
    });
    rows.sort_unstable();
    (rows, matrix)
}

impl NodeTable {
    /// Updates rows by their gradients, which `gradients` lists, sorted.
    fn update(&mut self, optimizer: RowOptimizer, rate: f32, gradients: &[GradientOf], matrix: &Matrix) {
        let touched_bytes = Rows::touched_bytes(self.rows.dim(), optimizer);
        for rows in parts_of_rows(gradients, self.rows_at_once(touched_bytes)) {
            self.rows.read_ahead(rows.iter().map(|gradient| gradient.row as usize), true);
            self.rows.update(optimizer, rate, rows, 0, matrix);
            self.touched(rows.len() as u64 * touched_bytes);
        }
    }
}

/// Splits gradients, which are sorted by rows, into parts of about so many gradients. A row is in one part.
fn parts_of_rows(gradients: &[GradientOf], at_once: usize) -> impl Iterator<Item = &[GradientOf]> {
    let mut left = gradients;
    std::iter::from_fn(move || {
        let last = left.get(at_once.min(left.len()).checked_sub(1)?)?;
        let (part, others) = left.split_at(left.partition_point(|gradient| gradient.row <= last.row));
        left = others;
        Some(part)
    })
}
