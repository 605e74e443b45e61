//! Mapped payloads.

use std::{ops::Range, path::Path};

use grappa_formats::{FormatError, container::Header};

use super::{checksums::Checksums, file::ContainerFile};
use crate::{
    Error, Result,
    map::{Access, Mapping},
};

/// Ranges longer than this are read ahead before they are verified. Otherwise they would be faulted in page by page.
const READ_AHEAD_BYTES: u64 = 16 << 10;

/// The mapped payload of a container file. Verify a part before reading it: with [`MappedPayload::get`], or with
/// [`MappedPayload::check`] for decoders that hold [`MappedPayload::unchecked`].
#[derive(Debug)]
pub struct MappedPayload {
    mapping: Mapping,
    checksums: Checksums,
}

impl MappedPayload {
    /// Maps the payload of an open file. Reads nothing yet.
    pub fn new(file: &ContainerFile, access: Access) -> Result<Self> {
        let header = file.header();
        let payload = header.payload_offset..header.table_offset();
        Ok(Self {
            mapping: Mapping::part(file.file(), file.path(), payload, access)?,
            checksums: file.new_checksums()?,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.checksums.path()
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        self.checksums.header()
    }

    /// Bytes of the mapping.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// Fails if a block that contains some of these bytes is damaged. A block is verified once. Bytes beyond the end
    /// are ignored.
    #[inline(always)]
    pub fn check(&self, payload: Range<u64>) -> Result<()> {
        self.check_bytes(payload).map_err(|error| self.damage(error))
    }

    /// The error of a block with a wrong checksum: the file changed, or it is damaged.
    #[cold]
    fn damage(&self, error: FormatError) -> Error {
        match self.mapping.check_unchanged() {
            Ok(()) => Error::format(self.path())(error),
            Err(changed) => changed,
        }
    }

    /// As [`MappedPayload::check`], but the error does not name the file.
    #[inline(always)]
    pub fn check_bytes(&self, payload: Range<u64>) -> grappa_formats::Result<()> {
        if self.checksums.are_right(payload.clone()) {
            return Ok(());
        }
        self.check_now(payload)
    }

    #[cold]
    fn check_now(&self, payload: Range<u64>) -> grappa_formats::Result<()> {
        let end = payload.end.min(self.bytes());
        let blocks = self.checksums.blocks_around(payload.start.min(end)..end);
        let place = blocks.start as usize..blocks.end as usize;
        if blocks.end - blocks.start > READ_AHEAD_BYTES {
            self.mapping.read_ahead_part(place.clone());
        }
        self.checksums.check(blocks.start, &self.mapping[place])
    }

    /// These bytes of the payload, verified.
    ///
    /// # Panics
    /// If the range ends beyond the payload.
    #[inline]
    pub fn get(&self, payload: Range<u64>) -> Result<&[u8]> {
        self.check(payload.clone())?;
        Ok(&self.mapping[payload.start as usize..payload.end as usize])
    }

    /// The whole payload, unverified. For decoders whose caller checks each part before it is touched, or has verified
    /// the file.
    #[inline]
    pub fn unchecked(&self) -> &[u8] {
        &self.mapping
    }

    /// Starts reading the payload into the page cache.
    pub fn read_ahead(&self) {
        self.mapping.read_ahead();
    }

    /// Starts reading a part of the payload into the page cache. Bytes beyond its end are ignored.
    pub fn read_ahead_part(&self, payload: Range<u64>) {
        let place = self.within(payload);
        if !place.is_empty() {
            self.mapping.read_ahead_part(place);
        }
    }

    /// Releases the memory of a part of the payload. Bytes beyond its end are ignored.
    pub fn release(&self, payload: Range<u64>) {
        self.mapping.release(self.within(payload));
        self.checksums.release();
    }

    fn within(&self, payload: Range<u64>) -> Range<usize> {
        payload.start.min(self.bytes()) as usize..payload.end.min(self.bytes()) as usize
    }

    /// Releases the memory of the whole payload.
    pub fn release_all(&self) {
        self.release(0..u64::MAX);
    }
}
