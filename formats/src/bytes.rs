//! Reading fixed-width fields of metas, and checks of payload lengths.

use crate::{
    FormatError, NODES_MAX, Result,
    container::{HEADER_BYTES, Header},
    error::invalid_if,
};

/// Reads little-endian integers from a meta, one after another. The length of the meta is checked at the start.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    at: u64,
}

impl<'a> Fields<'a> {
    /// The fields of a meta that must be `expected` bytes long.
    pub(crate) fn from_header(header: &'a Header, expected: usize) -> Result<Self> {
        invalid_if!(header.meta.len() != expected, 32, "the meta has {} bytes, not {expected}", header.meta.len());
        Ok(Self { rest: &header.meta, at: HEADER_BYTES as u64 })
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.rest.split_first_chunk().expect("the length was checked");
        self.rest = rest;
        self.at += N as u64;
        *field
    }

    pub(crate) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// The next `u64`, a count that cannot exceed the maximum number of nodes.
    pub(crate) fn node_count(&mut self, quantity: &str) -> Result<u64> {
        let at = self.at;
        match self.u64() {
            count if count <= NODES_MAX => Ok(count),
            count => Err(FormatError::invalid(at, format!("{count} {quantity} are more than 2^40"))),
        }
    }

    /// Skips `N` reserved bytes, which must be zero so that a later version can give them a meaning.
    pub(crate) fn zeros<const N: usize>(&mut self) -> Result<()> {
        let at = self.at;
        match self.array::<N>().iter().position(|&byte| byte != 0) {
            None => Ok(()),
            Some(i) => Err(FormatError::invalid(at + i as u64, "a reserved byte of the meta is not 0")),
        }
    }

    /// Offset of the next field, in bytes from the start of the file.
    pub(crate) fn offset(&self) -> u64 {
        self.at
    }
}

/// Checks that the header states the payload length that follows from the meta. `None` stands for a length above 2^64.
pub(crate) fn check_payload_length(header: &Header, expected: Option<u64>) -> Result<()> {
    let (is_other, expected) = (expected != Some(header.payload_bytes), expected.unwrap_or(u64::MAX));
    invalid_if!(
        is_other,
        24,
        "the meta calls for a payload of {expected} bytes, the header says {}",
        header.payload_bytes
    );
    Ok(())
}

/// Checks that `payload` has the length in the header.
pub(crate) fn check_payload_slice(header: &Header, payload: &[u8]) -> Result<()> {
    FormatError::expect_length("payload", header.payload_bytes, payload.len() as u64)
}

/// Entry `i` of an array of `u64` that starts at byte 0 of `bytes`.
#[inline]
pub(crate) fn u64_entry(bytes: &[u8], i: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes"))
}
