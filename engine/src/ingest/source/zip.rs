//! The members of a `.npz` archive, which is a zip file of `.npy` files.
//!
//! Only the central directory is read, so that opening an archive of a hundred gigabytes costs nothing, and stored
//! members are then read in place. Zip64 is understood: members may exceed 4 GiB. Written from PKWARE's APPNOTE.TXT,
//! sections 4.3 and 4.5. The members' CRCs are not checked.

use std::{path::Path, sync::Arc};

use super::{
    file::{Compression, Extent, InputFile},
    npy::NpyArray,
};
use crate::{Error, Position, Result};

pub(super) const MAGIC: &[u8] = b"PK\x03\x04";

/// End of central directory: 22 bytes and a comment of at most 65,535.
const END_BYTES: usize = 22;
const TAIL_BYTES_MAX: u64 = 22 + 65_535;
/// A directory beyond this is not that of an archive of arrays.
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;

/// An open archive of arrays.
pub(super) struct Npz {
    file: Arc<InputFile>,
    members: Vec<Member>,
}

struct Member {
    /// Without `.npy`.
    name: String,
    method: u16,
    encrypted: bool,
    packed_bytes: u64,
    bytes: u64,
    /// Of its local header.
    offset: u64,
}

impl Npz {
    pub fn open(file: &Arc<InputFile>) -> Result<Self> {
        let (offset, bytes) = directory(file)?;
        let mut directory = vec![0; bytes as usize];
        file.read_exact_at(&mut directory, offset)?;
        let mut members = Vec::new();
        let mut rest = directory.as_slice();
        while !rest.is_empty() {
            let at = offset + bytes - rest.len() as u64;
            members.push(Member::parse(&mut rest).ok_or_else(|| damaged(file.path(), at))?);
        }
        Ok(Self {
            file: file.clone(),
            members,
        })
    }

    /// The names of all arrays.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.name.as_str())
    }

    pub fn contains(&self, name: &str) -> bool {
        self.names().any(|other| other == name)
    }

    /// The first of these arrays that is there; else the only array, if there is but one.
    pub fn first_of(&self, names: &[&str], what: &str) -> Result<NpyArray> {
        let name = names.iter().copied().find(|name| self.contains(name));
        match (name, &self.members[..]) {
            (Some(name), _) => self.array(name),
            (None, [only]) => self.array(&only.name),
            (None, _) => Err(Error::input(
                self.file.path(),
                Position::Whole,
                format!(
                    "expected an array of {what} named {}, found {}; rename it, or save it as a .npy file of its own",
                    names.join(" or "),
                    self.names().collect::<Vec<_>>().join(", ")
                ),
            )),
        }
    }

    /// An error about the archive as a whole.
    pub fn error(&self, what: &str) -> Error {
        Error::input(self.file.path(), Position::Whole, what)
    }

    /// The array `name`, which must be there.
    pub fn array(&self, name: &str) -> Result<NpyArray> {
        let (extent, bytes) = self.extent(name)?;
        NpyArray::in_extent(extent, bytes)
    }

    /// Where a member is, and how many bytes it unpacks to.
    pub fn extent(&self, name: &str) -> Result<(Extent, u64)> {
        let path = self.file.path();
        let Some(member) = self.members.iter().find(|member| member.name == name) else {
            return Err(Error::input(
                path,
                Position::Whole,
                format!(
                    "expected an array named {name}, found {}",
                    self.names().collect::<Vec<_>>().join(", ")
                ),
            ));
        };
        let mut local = [0; 30];
        self.file.read_exact_at(&mut local, member.offset)?;
        if !local.starts_with(MAGIC) {
            return Err(damaged(path, member.offset));
        }
        let names = u64::from(u16::from_le_bytes([local[26], local[27]]))
            + u64::from(u16::from_le_bytes([local[28], local[29]]));
        let extent = Extent {
            file: self.file.clone(),
            offset: member.offset + 30 + names,
            bytes: member.packed_bytes,
            compression: if member.method == 0 {
                Compression::None
            } else {
                Compression::Deflate
            },
            member: Some(name.into()),
        };
        if member.encrypted || !matches!(member.method, 0 | 8) {
            return Err(extent.error(format!(
                "it is {}; write the archive with numpy.savez or numpy.savez_compressed",
                if member.encrypted {
                    "encrypted".to_owned()
                } else {
                    format!("packed by method {}, which is not read", member.method)
                }
            )));
        }
        let end = extent.offset.checked_add(extent.bytes);
        // Deflate packs 1032 to 1 at best; what claims more would only have us reserve memory for nothing.
        let plausible = match member.method {
            0 => member.bytes == member.packed_bytes,
            _ => member.bytes / 1032 <= member.packed_bytes,
        };
        if end.is_none_or(|end| end > self.file.bytes()) || !plausible {
            return Err(damaged(path, member.offset));
        }
        Ok((extent, member.bytes))
    }
}

fn damaged(path: &Path, offset: u64) -> Error {
    Error::input(
        path,
        Position::Offset(offset),
        "this .npz archive is truncated or damaged; write it again with numpy.savez",
    )
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?).into())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?).into())
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Finds the central directory: its offset and size, both within the file.
fn directory(file: &InputFile) -> Result<(u64, u64)> {
    let tail_bytes = file.bytes().min(TAIL_BYTES_MAX);
    let tail_offset = file.bytes() - tail_bytes;
    let mut tail = vec![0; tail_bytes as usize];
    file.read_exact_at(&mut tail, tail_offset)?;
    let end = memchr::memmem::rfind_iter(&tail, b"PK\x05\x06")
        .find(|&at| at + END_BYTES <= tail.len())
        .ok_or_else(|| damaged(file.path(), file.bytes()))?;
    let failed = || damaged(file.path(), tail_offset + end as u64);
    let mut bytes = u32_at(&tail, end + 12).ok_or_else(failed)?;
    let mut offset = u32_at(&tail, end + 16).ok_or_else(failed)?;
    // With zip64, a locator of 20 bytes stands before the end record and says where the long one is.
    if let Some(locator) = end.checked_sub(20)
        && tail[locator..].starts_with(b"PK\x06\x07")
    {
        let at = u64_at(&tail, locator + 8).ok_or_else(failed)?;
        if at.checked_add(56).is_none_or(|end| end > file.bytes()) {
            return Err(failed());
        }
        let mut long = [0; 56];
        file.read_exact_at(&mut long, at)?;
        if !long.starts_with(b"PK\x06\x06") {
            return Err(failed());
        }
        bytes = u64_at(&long, 40).ok_or_else(failed)?;
        offset = u64_at(&long, 48).ok_or_else(failed)?;
    }
    let fits = offset.checked_add(bytes).is_some_and(|end| end <= file.bytes());
    if !fits || bytes > DIRECTORY_BYTES_MAX {
        return Err(failed());
    }
    Ok((offset, bytes))
}

impl Member {
    /// Takes one entry off the directory; none if it is damaged.
    fn parse(rest: &mut &[u8]) -> Option<Self> {
        let entry = *rest;
        if !entry.starts_with(b"PK\x01\x02") {
            return None;
        }
        let (name, extra, comment) = (u16_at(entry, 28)?, u16_at(entry, 30)?, u16_at(entry, 32)?);
        let name_end = 46 + name as usize;
        let extra_end = name_end + extra as usize;
        let name = String::from_utf8_lossy(entry.get(46..name_end)?);
        let mut member = Self {
            name: name.strip_suffix(".npy").unwrap_or(&name).to_owned(),
            method: u16_at(entry, 10)? as u16,
            encrypted: u16_at(entry, 8)? & 1 != 0,
            packed_bytes: u32_at(entry, 20)?,
            bytes: u32_at(entry, 24)?,
            offset: u32_at(entry, 42)?,
        };
        member.parse_extra(entry.get(name_end..extra_end)?)?;
        *rest = entry.get(extra_end + comment as usize..)?;
        // What would overflow later is beyond any file.
        (member.offset < 1 << 62).then_some(member)
    }

    /// Takes the long sizes from the zip64 field: in this order, those whose short form is all ones.
    fn parse_extra(&mut self, mut extra: &[u8]) -> Option<()> {
        while extra.len() >= 4 {
            let (id, length) = (u16_at(extra, 0)?, u16_at(extra, 2)? as usize);
            let field = extra.get(4..4 + length)?;
            extra = &extra[4 + length..];
            if id != 1 {
                continue;
            }
            let mut at = 0;
            for size in [&mut self.bytes, &mut self.packed_bytes, &mut self.offset] {
                if *size == u64::from(u32::MAX) {
                    *size = u64_at(field, at)?;
                    at += 8;
                }
            }
        }
        Some(())
    }
}
