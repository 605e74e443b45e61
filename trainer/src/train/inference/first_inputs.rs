//! The inputs of the first layer, and memory, kept from one inference to the next.

use std::{
    cell::{OnceCell, RefCell},
    ops::Range,
    path::{Path, PathBuf},
};

use grappa_engine::aggregate::{NodeRows, StateRows, read_each};
use grappa_formats::{features::FeatureLayout, manifest::FeatureDtype};
use grappa_io::progress::{Progress, check_stopped};
use grappa_sampling::NodeSet;
use tch::{Device, Kind, Tensor};

use super::step_size::STEP_NODES;
use crate::{Result, nn::Model, shim, train::tensors::host_values};

/// The inputs of the update of a range of nodes at a layer.
#[derive(Debug)]
pub(super) struct UpdateInputs {
    /// The nodes, as positions among the outputs of the layer.
    pub positions: Range<u64>,
    pub rows: UpdateRows,
}

/// The rows of some nodes that the update of a layer takes.
#[derive(Debug)]
pub(super) enum UpdateRows {
    Apart {
        /// Their states.
        own: Tensor,
        /// The aggregates of their in-neighbors.
        aggregated: Tensor,
        /// Their in-degrees, for GCN.
        degrees: Option<Tensor>,
    },
    /// Features and aggregates, combined as the first layer does before it uses parameters ([`Model::combined`]).
    Combined(Tensor),
}

impl UpdateRows {
    /// The same for the first layer, combined if the model can.
    fn combined(self, model: &Model) -> Self {
        match &self {
            Self::Apart { own, aggregated, degrees } => {
                let combined = model.combined(own, aggregated, degrees.as_ref());
                combined.map_or(self, Self::Combined)
            }
            Self::Combined(_) => self,
        }
    }

    /// The new states of the nodes.
    pub(super) fn updated(&self, model: &Model, layer: usize) -> Tensor {
        match self {
            Self::Apart { own, aggregated, degrees } => model.update(layer, own, aggregated, degrees.as_ref()),
            Self::Combined(rows) => model.update_combined(rows),
        }
    }

    fn bytes(&self) -> u64 {
        let values = match self {
            Self::Apart { own, aggregated, .. } => own.numel() + aggregated.numel(),
            Self::Combined(rows) => rows.numel(),
        };
        4 * values as u64
    }
}

/// Space for the inputs of the first layer's updates: features and their aggregates. If messages have parameters, aggregates do too, and
/// the space is for the features of all inputs of the layer.
///
/// These are the same in each inference of the same nodes. On a small graph, reading them takes longer than all products; on a large one,
/// they are spread over files that are many times larger. The first inference keeps them, if they fit, and later ones take them from here.
///
/// If there is space left, the memory of states and messages is kept too, so that the system need not clear it again.
#[derive(Debug)]
pub struct FirstInputs {
    memory_max: u64,
    folder: PathBuf,
    disk_max: u64,
    stored: OnceCell<StoredInputs>,
    /// Memory of states and messages, which the next inference takes.
    memory: RefCell<Vec<StateRows>>,
}

/// Contents of the space.
#[derive(Debug)]
enum StoredInputs {
    Updates(Kept),
    /// Features as f32, if messages have parameters.
    Features(StateRows),
}

/// Inputs that are kept.
#[derive(Debug)]
pub(super) enum Kept {
    Memory(Vec<UpdateInputs>),
    /// In a scratch file, without in-degrees: the states, and beside them the aggregates.
    File {
        rows: StateRows,
        own_width: usize,
    },
}

impl FirstInputs {
    /// Empty space of at most `memory_max` bytes of memory, or else at most `disk_max` bytes of a scratch file in `folder`.
    pub fn new(memory_max: u64, folder: &Path, disk_max: u64) -> Self {
        Self { memory_max, folder: folder.to_owned(), disk_max, stored: OnceCell::new(), memory: RefCell::default() }
    }

    /// Gives up what is kept, and its space.
    pub fn clear(&mut self) {
        self.stored.take();
        self.memory.take();
    }

    /// Bytes of memory that the inputs take, apart from in-degrees.
    pub fn bytes(&self) -> u64 {
        match self.stored.get() {
            Some(StoredInputs::Updates(Kept::Memory(parts))) => parts.iter().map(|part| part.rows.bytes()).sum(),
            Some(StoredInputs::Features(rows)) => rows.memory(),
            Some(StoredInputs::Updates(Kept::File { .. })) | None => 0,
        }
    }

    /// Bytes of the memory that inferences left for later ones.
    pub fn left_bytes(&self) -> u64 {
        self.memory.borrow().iter().map(StateRows::memory).sum()
    }

    /// Frees the memory that inferences left.
    pub fn free_memory(&self) {
        self.memory.take();
    }

    /// Bytes of a file with the inputs of `rows` updates of these widths; 0 if there is none.
    pub(super) fn file_bytes(&self, rows: u64, widths: [usize; 2]) -> u64 {
        match bytes_of(rows, widths) {
            bytes if bytes > self.memory_max && bytes <= self.disk_max => bytes,
            _ => 0,
        }
    }

    /// The features of `nodes`, in memory as f32. None if there is no space.
    pub(super) fn features(
        &self,
        features: &dyn NodeRows,
        nodes: &NodeSet,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Option<&StateRows>> {
        let (count, width) = (nodes.len(), features.width());
        if self.stored.get().is_none() && bytes_of(count, [width, 0]) <= self.memory_max {
            // Keeping them only saves time.
            let Ok(mut kept) = StateRows::new(count, width) else {
                return Ok(None);
            };
            let mut places = Vec::new();
            let values = kept.values_mut().chunks_mut(STEP_NODES as usize * width);
            for (first, values) in (0..).step_by(STEP_NODES as usize).zip(values) {
                check_stopped(progress)?;
                nodes.nodes_at(first..(first + STEP_NODES).min(count), &mut places);
                let positions: Vec<u64> = places.drain(..).map(|node| node.0).collect();
                read_each(features, &positions, values, threads)?;
            }
            // Both would be of the same nodes.
            let _ = self.stored.set(StoredInputs::Features(kept));
        }
        Ok(match self.stored.get() {
            Some(StoredInputs::Features(rows)) => Some(rows),
            _ => None,
        })
    }

    /// Begins to keep the inputs of `rows` updates: states and aggregates of these widths. None if there is no space, or if a file would
    /// save no reading because features are not `in_files`.
    pub(super) fn begin(&self, rows: u64, widths: [usize; 2], in_files: bool) -> Option<Kept> {
        let [own_width, width] = widths;
        if bytes_of(rows, widths) <= self.memory_max {
            return Some(Kept::Memory(Vec::new()));
        }
        if !in_files || self.file_bytes(rows, widths) == 0 {
            return None;
        }
        // Keeping them only saves time.
        let rows = StateRows::in_file(&self.folder, rows, own_width + width, FeatureDtype::F32).ok()?;
        Some(Kept::File { rows, own_width })
    }

    /// The inputs, if an inference left them.
    pub(super) fn get(&self) -> Option<&Kept> {
        match self.stored.get() {
            Some(StoredInputs::Updates(kept)) => Some(kept),
            _ => None,
        }
    }

    /// Keeps the inputs of all updates. Nothing happens if there are some.
    pub(super) fn set(&self, kept: Kept) {
        // Both would be of the same nodes.
        let _ = self.stored.set(StoredInputs::Updates(kept));
    }

    /// Memory for rows, with any values, if an inference left some for as many of the same layout.
    pub(super) fn take_memory(&self, rows: u64, layout: FeatureLayout) -> Option<StateRows> {
        let mut left = self.memory.borrow_mut();
        let at = left.iter().position(|memory| memory.rows() == rows && memory.layout() == layout)?;
        Some(left.swap_remove(at))
    }

    /// Keeps the memory of rows if there is space.
    pub(super) fn leave_memory(&self, rows: StateRows) {
        let bytes = self.bytes() + self.left_bytes() + rows.memory();
        if rows.memory() > 0 && bytes <= self.memory_max {
            self.memory.borrow_mut().push(rows);
        }
    }
}

fn bytes_of(rows: u64, [own, aggregated]: [usize; 2]) -> u64 {
    StateRows::bytes_of(rows, own + aggregated, FeatureDtype::F32)
}

impl Kept {
    /// Adds inputs.
    pub(super) fn push(&mut self, UpdateInputs { positions, rows: part }: UpdateInputs, model: &Model) -> Result<()> {
        match (self, &part) {
            (Self::Memory(parts), _) => {
                let rows = part.combined(model);
                parts.push(UpdateInputs { positions, rows });
            }
            (Self::File { rows, .. }, UpdateRows::Apart { own, aggregated, .. }) => {
                let beside = Tensor::cat(&[own, aggregated], 1);
                rows.write(positions.start, &host_values(&beside))?;
            }
            (Self::File { .. }, UpdateRows::Combined(_)) => unreachable!("files have states and aggregates"),
        }
        Ok(())
    }

    /// Passes all inputs of `count` updates to `each`. Of a file, `step` rows are read at once. `degrees` has the in-degrees of a range.
    pub(super) fn each(
        &self,
        count: u64,
        step: u64,
        device: Device,
        degrees: impl Fn(Range<u64>) -> Result<Option<Tensor>>,
        mut each: impl FnMut(&UpdateInputs) -> Result<()>,
    ) -> Result<()> {
        let (rows, own_width) = match self {
            Self::Memory(parts) => return parts.iter().try_for_each(each),
            Self::File { rows, own_width } => (rows, *own_width as i64),
        };
        for first in (0..count).step_by(step as usize) {
            let positions = first..(first + step).min(count);
            rows.read_ahead(positions.end..(positions.end + step).min(count));
            let shape = [(positions.end - positions.start) as i64, rows.width() as i64];
            let mut beside = Tensor::empty(shape, (Kind::Float, Device::Cpu));
            rows.read(positions.clone(), shim::values_mut(&mut beside))?;
            let [own, aggregated] = [(0, own_width), (own_width, shape[1] - own_width)]
                .map(|(first, width)| beside.narrow(1, first, width).contiguous().to_device(device));
            let rows = UpdateRows::Apart { own, aggregated, degrees: degrees(positions.clone())? };
            each(&UpdateInputs { positions, rows })?;
        }
        Ok(())
    }
}
