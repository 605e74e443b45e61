//! Pre-aggregated features: for each node, the features of its in-neighbors reduced to one feature row.
//!
//! A store may have several kinds of reduction. Each is in a folder `aggregates/<kind>`, which is added to a complete
//! store. The folder has one file of kind [`FileKind::FEATURES`] per chunk, and the index that this module encodes.
//!
//! ```text
//! meta    offset  bytes  content
//!              0      8  digest of the store's manifest
//!              8      4  C: number of chunks
//!             12      1  kind: 0 mean, 1 gcn, 2 sum, 3 weighted-mean, 4 weighted-gcn, 5 weighted-sum
//!             13      3  zeros
//! payload   16*i      8  length of the file of chunk i in bytes
//!       16*i + 8      8  digest of that file
//! ```
//!
//! A slice has no files for chunks that it lacks. Then both numbers are 0.

use std::{fmt, str::FromStr};

use crate::{
    FormatError, Result,
    bytes::{Fields, check_payload_length, u64_entry},
    container::{self, FileKind},
};

const META_BYTES: usize = 16;

/// The reduction of the in-neighbors' feature rows to one.
///
/// ```
/// use grappa_formats::aggregates::AggregateKind;
///
/// assert_eq!("gcn".parse(), Ok(AggregateKind::Gcn));
/// assert!("max".parse::<AggregateKind>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AggregateKind {
    /// The mean, or zeros if there are no in-neighbors. For GraphSAGE with the mean aggregator.
    Mean,
    /// The sum of the rows times 1 / sqrt((d(u) + 1) (d(v) + 1)), where d is the in-degree. For GCN, which adds the
    /// node itself.
    Gcn,
    /// The sum. For GIN.
    Sum,
    /// The mean by the weights of edges, or zeros if they add up to 0. For GraphSAGE with weights.
    WeightedMean,
    /// The sum of the rows times w / sqrt((s(u) + 1) (s(v) + 1)), where w is the weight of the edge, and s the sum of the
    /// weights of in-edges. For GCN with weights.
    WeightedGcn,
    /// The sum of the rows times the weights of edges. For GIN with weights.
    WeightedSum,
}

impl AggregateKind {
    /// All kinds. The index of a kind is its number in files.
    pub const ALL: [Self; 6] =
        [Self::Mean, Self::Gcn, Self::Sum, Self::WeightedMean, Self::WeightedGcn, Self::WeightedSum];

    /// The name of the folder, and the value on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Gcn => "gcn",
            Self::Sum => "sum",
            Self::WeightedMean => "weighted-mean",
            Self::WeightedGcn => "weighted-gcn",
            Self::WeightedSum => "weighted-sum",
        }
    }

    /// Whether it takes the weights of edges.
    pub fn is_weighted(self) -> bool {
        matches!(self, Self::WeightedMean | Self::WeightedGcn | Self::WeightedSum)
    }
}

impl fmt::Display for AggregateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AggregateKind {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let kind = Self::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no aggregation {name:?}; there are {names}")
        })
    }
}

/// The index of the pre-aggregated features of one kind.
///
/// ```
/// use grappa_formats::aggregates::{AggregateFile, AggregateIndex, AggregateKind};
///
/// let files = vec![Some(AggregateFile { bytes: 4242, digest: 7 }), None];
/// let index = AggregateIndex { kind: AggregateKind::Mean, manifest_digest: 99, files };
/// assert_eq!(AggregateIndex::decode(&index.encode(), AggregateKind::Mean, 99, 2)?, index);
/// // Aggregates of another store are refused.
/// assert!(AggregateIndex::decode(&index.encode(), AggregateKind::Mean, 98, 2).is_err());
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregateIndex {
    /// The reduction.
    pub kind: AggregateKind,
    /// The digest of the store's manifest.
    pub manifest_digest: u64,
    /// The file of each chunk; none for chunks that a slice lacks.
    pub files: Vec<Option<AggregateFile>>,
}

/// The file of one chunk, as the index records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregateFile {
    /// Length in bytes.
    pub bytes: u64,
    /// The digest in its header.
    pub digest: u64,
}

impl AggregateIndex {
    /// The bytes of the file `aggregates/<kind>/index`.
    pub fn encode(&self) -> Vec<u8> {
        let mut meta = self.manifest_digest.to_le_bytes().to_vec();
        meta.extend_from_slice(&(self.files.len() as u32).to_le_bytes());
        meta.push(self.kind as u8);
        meta.resize(META_BYTES, 0);
        let numbers = self.files.iter().flat_map(|file| file.map_or([0, 0], |file| [file.bytes, file.digest]));
        let payload: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        container::encode_file(FileKind::AGGREGATES, meta, &payload).0
    }

    /// Decodes and fully checks the file `aggregates/<kind>/index` of a store with this manifest digest and number of
    /// chunks.
    pub fn decode(file: &[u8], kind: AggregateKind, manifest_digest: u64, chunks: u32) -> Result<Self> {
        let (header, payload) = container::decode_file(file, FileKind::AGGREGATES)?;
        let mut fields = Fields::from_header(&header, META_BYTES)?;
        let at = fields.offset();
        let (found_digest, found_chunks, found_kind) = (fields.u64(), fields.u32(), fields.u8());
        fields.zeros::<3>()?;
        if found_digest != manifest_digest || found_chunks != chunks {
            let problem = "the pre-aggregated features are of another store, or of another state of this store; remove the \
                        folder and run `grappa-store preaggregate` again";
            return Err(FormatError::invalid(at, problem));
        }
        if AggregateKind::ALL.get(usize::from(found_kind)) != Some(&kind) {
            let problem = format!("expected the aggregation {kind}, found number {found_kind}; were folders swapped?");
            return Err(FormatError::invalid(at + 12, problem));
        }
        check_payload_length(&header, Some(16 * u64::from(chunks)))?;
        let files = payload
            .as_chunks::<16>()
            .0
            .iter()
            .map(|entry| match (u64_entry(entry, 0), u64_entry(entry, 1)) {
                (0, 0) => None,
                (bytes, digest) => Some(AggregateFile { bytes, digest }),
            })
            .collect();
        Ok(Self { kind, manifest_digest, files })
    }
}
