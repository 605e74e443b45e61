//! Labels as a column: read, counted and encoded.

use grappa_formats::manifest::{LabelKind, LabelSpec};
use grappa_input::{LabelBatch, LabelSource};
use grappa_io::{Error, Position, Result};

use crate::ingest::columns::ColumnInput;

/// Labels per read while classes are counted.
const SCAN_ROWS: usize = 1 << 16;

/// The labels of the input.
pub struct LabelInput {
    source: LabelSource,
    spec: LabelSpec,
    nodes: u64,
}

impl LabelInput {
    /// The labels of `source`, one for each of `nodes` nodes. The number of classes decides the width of a stored label. If
    /// the shape of the input does not give it, all labels are read to find the largest class.
    pub fn new(mut source: LabelSource, nodes: u64) -> Result<Self> {
        source.expect_rows(nodes)?;
        let classes = match source.classes() {
            Some(classes) => classes,
            None => count_classes(&source, nodes)?,
        };
        let spec = LabelSpec {
            classes,
            kind: source.kind(),
        };
        Ok(Self { source, spec, nodes })
    }

    /// The manifest's entry.
    pub fn spec(&self) -> LabelSpec {
        self.spec
    }
}

fn count_classes(source: &LabelSource, nodes: u64) -> Result<u32> {
    let (mut batch, mut first, mut classes) = (LabelBatch::default(), 0, 0);
    while first < nodes {
        let read = source.read_rows(first, SCAN_ROWS, &mut batch)?;
        classes = classes.max(batch.class_max().map_or(0, |class| class + 1));
        first += read as u64;
        if read == 0 {
            return Err(too_few(source, nodes, first));
        }
    }
    if classes == 0 {
        let what = "no node has a label: all are negative, NaN or empty; omit --labels";
        return Err(Error::input(source.path(), Position::Whole, what));
    }
    Ok(classes)
}

fn too_few(source: &LabelSource, nodes: u64, found: u64) -> Error {
    Error::input(
        source.path(),
        Position::Whole,
        format!("expected {nodes} labels, one per node, found {found}"),
    )
}

impl ColumnInput for LabelInput {
    fn rows(&self) -> u64 {
        self.nodes
    }

    fn row_bytes(&self) -> usize {
        self.spec.row_bytes() as usize
    }

    fn is_sequential(&self) -> bool {
        self.source.is_sequential()
    }

    fn read(&self, first: u64, count: usize, rows: &mut Vec<u8>) -> Result<()> {
        let mut batch = LabelBatch::default();
        let read = self.source.read_rows(first, count, &mut batch)?;
        if read != count {
            return Err(too_few(&self.source, self.nodes, first + read as u64));
        }
        for index in 0..count {
            let classes = batch.get(index);
            match self.spec.kind {
                LabelKind::Single => self.spec.encode_single(classes.map(|classes| classes[0]), rows),
                LabelKind::Multi => self.spec.encode_multi(classes, rows),
            }
        }
        Ok(())
    }

    fn is_sound(&self) -> bool {
        true
    }

    fn finish(&self) -> Result<()> {
        self.source.check()
    }
}
