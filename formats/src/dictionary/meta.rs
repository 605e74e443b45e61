//! The meta of the file `ids/dictionary`.

use super::BLOCK_KEYS;
use crate::{
    FormatError, Result,
    bytes::{Fields, check_payload_length},
    container::Header,
    error::invalid_if,
};

/// The kind of a dictionary's keys. The discriminant is its number in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Integers below 2^64.
    Integers,
    /// Byte strings.
    Strings,
}

/// The meta of the file `ids/dictionary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DictionaryMeta {
    /// The kind of the keys.
    pub kind: KeyKind,
    /// Number of keys. It equals the number of nodes.
    pub keys: u64,
    /// Bytes of the keys, without the table of block starts.
    pub key_bytes: u64,
}

impl DictionaryMeta {
    /// Length of an encoded meta.
    pub const BYTES: usize = 24;

    /// The meta of the container file.
    pub fn encode(&self) -> Vec<u8> {
        // The kind takes four bytes, and zeros follow.
        [self.kind as u64, self.keys, self.key_bytes].map(u64::to_le_bytes).concat()
    }

    /// Decodes and checks the meta, and checks the length of the payload against it.
    pub fn decode(header: &Header) -> Result<Self> {
        let mut fields = Fields::from_header(header, Self::BYTES)?;
        let kind = match fields.u32() {
            0 => KeyKind::Integers,
            1 => KeyKind::Strings,
            other => return Err(FormatError::invalid(64, format!("there is no kind of dictionary {other}"))),
        };
        fields.zeros::<4>()?;
        let meta = Self { kind, keys: fields.node_count("keys")?, key_bytes: fields.u64() };
        invalid_if!(
            kind == KeyKind::Integers && meta.key_bytes != 8 * meta.keys,
            80,
            "{} integers do not have {} bytes",
            meta.keys,
            meta.key_bytes
        );
        check_payload_length(header, meta.payload_bytes())?;
        Ok(meta)
    }

    pub(super) fn blocks(&self) -> u64 {
        self.keys.div_ceil(BLOCK_KEYS)
    }

    /// Start of the table of block starts, in bytes from the start of the payload.
    pub fn table_offset(&self) -> u64 {
        self.key_bytes.next_multiple_of(8)
    }

    fn payload_bytes(&self) -> Option<u64> {
        match self.kind {
            KeyKind::Integers => Some(8 * self.keys),
            KeyKind::Strings => self.key_bytes.checked_next_multiple_of(8)?.checked_add(8 * self.blocks()),
        }
    }
}

/// Decodes the meta of a dictionary that must have keys of this kind.
pub(super) fn expect_kind(header: &Header, kind: KeyKind) -> Result<DictionaryMeta> {
    let meta = DictionaryMeta::decode(header)?;
    invalid_if!(meta.kind != kind, 64, "a dictionary of {:?} where one of {kind:?} should be", meta.kind);
    Ok(meta)
}
