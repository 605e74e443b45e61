//! Splits: named sets of nodes, such as the training set.
//!
//! ```text
//! meta    offset  bytes  content
//!              0      8  name, ASCII, then zeros
//!              8      8  number of nodes of the graph
//!             16      8  number of nodes in the set
//! payload                the set as a 64-bit roaring bitmap in the portable serialization
//! ```
//!
//! A set is decoded as a whole. It takes at most a bit per node, and far less if it is sparse or has long runs.

use roaring::RoaringTreemap;

use crate::{
    FormatError, NODES_MAX, Result,
    bytes::Fields,
    container::{self, FileKind},
    error::invalid_if,
};

/// Length of the meta.
pub const META_BYTES: usize = 24;
const NAME_BYTES: usize = 8;

/// Encodes the file `splits/<name>.roaring` of a graph with `nodes` nodes. Returns its bytes and its digest.
///
/// # Panics
/// If the name is not 1 to 8 ASCII characters, or a node of the set is not below `nodes`.
pub fn encode(name: &str, nodes: u64, set: &RoaringTreemap) -> (Vec<u8>, u64) {
    assert!(nodes <= NODES_MAX, "{nodes} nodes");
    assert!(set.max().is_none_or(|max| max < nodes), "a node beyond {nodes}");
    let mut meta = padded_name(name).to_vec();
    meta.extend_from_slice(&nodes.to_le_bytes());
    meta.extend_from_slice(&set.len().to_le_bytes());
    let mut payload = Vec::with_capacity(set.serialized_size());
    set.serialize_into(&mut payload).expect("memory takes all bytes");
    container::encode_file(FileKind::SPLIT, meta, &payload)
}

/// Decodes and fully checks the file `splits/<name>.roaring` of a graph with `nodes` nodes.
///
/// ```
/// use grappa_formats::splits::{decode, encode};
///
/// let set = (0..10).collect();
/// let (file, _) = encode("train", 100, &set);
/// assert_eq!(decode(&file, "train", 100)?, set);
/// assert!(decode(&file, "val", 100).is_err()); // it is another split
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
pub fn decode(file: &[u8], name: &str, nodes: u64) -> Result<RoaringTreemap> {
    let (header, payload) = container::decode_file(file, FileKind::SPLIT)?;
    let mut fields = Fields::from_header(&header, META_BYTES)?;
    let found_name = fields.array::<NAME_BYTES>();
    invalid_if!(
        found_name != padded_name(name),
        64,
        "the file is of the split \"{}\", expected {name:?}; were files swapped?",
        found_name.escape_ascii()
    );
    let (universe, count) = (fields.u64(), fields.u64());
    invalid_if!(universe != nodes, 72, "the split is of a graph of {universe} nodes, but the store has {nodes}");
    let at = header.payload_offset;
    let set = RoaringTreemap::deserialize_from(payload)
        .map_err(|e| FormatError::invalid(at, format!("the split is not a valid roaring bitmap: {e}")))?;
    invalid_if!(
        set.serialized_size() != payload.len(),
        at,
        "the split's roaring bitmap repeats a key or is followed by other bytes"
    );
    let found = set.len();
    invalid_if!(found != count, at, "the split has {found} nodes, but its meta says {count}");
    if let Some(max) = set.max() {
        invalid_if!(max >= nodes, at, "the split contains node {max}, but the graph has {nodes} nodes");
    }
    Ok(set)
}

fn padded_name(name: &str) -> [u8; NAME_BYTES] {
    assert!((1..=NAME_BYTES).contains(&name.len()) && name.is_ascii(), "a split named {name:?}");
    let mut padded = [0; NAME_BYTES];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    padded
}
