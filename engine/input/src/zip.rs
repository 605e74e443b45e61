//! The members of a `.npz` archive, which is a zip file of `.npy` files.
//!
//! Opening reads only the central directory, so its cost does not depend on the size of the archive. Many threads read a
//! stored member in place; a deflated member is unpacked front to back. In both cases a [`MemberCrc`] sees every byte, and
//! a member without the CRC-32 that the directory records is an error.
//!
//! The `zip` crate reads the directory. It is not used to read members, because it reads a member only front to back with
//! one thread.

use std::{
    fs::File,
    io::BufReader,
    sync::{Arc, Mutex, PoisonError},
};

use ::zip::{
    CompressionMethod, ZipArchive,
    read::{ArchiveOffset, Config},
};
use grappa_io::{Error, Result};

use crate::{
    conversions::Conversion,
    crc::MemberCrc,
    extent::{Compression, Extent},
    file::InputFile,
    kinds::Kind,
    npy::NpyArray,
};

pub(crate) struct Npz {
    pub file: Arc<InputFile>,
    /// Locked while it reads a member's local header.
    archive: Mutex<ZipArchive<BufReader<File>>>,
    /// Names of the arrays, without `.npy`, in the order of the directory.
    pub names: Vec<String>,
}

impl Npz {
    pub fn open(file: &Arc<InputFile>) -> Result<Self> {
        let reader = BufReader::new(file.try_clone()?);
        // The search for an archive that starts later in the file would read the whole file.
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let archive = ZipArchive::with_config(config, reader).map_err(|error| damaged(file, error))?;
        let members: Vec<String> =
            archive.file_names_raw().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        if let Some(kind) = Kind::of_archive(members.iter().map(String::as_str)) {
            return Err(kind.error(file.path()));
        }
        let names =
            members.into_iter().map(|name| name.strip_suffix(".npy").map(str::to_owned).unwrap_or(name)).collect();
        Ok(Self { file: file.clone(), archive: Mutex::new(archive), names })
    }

    pub fn contains(&self, name: &str) -> bool {
        self.names.iter().any(|other| other == name)
    }

    /// The first of these arrays that exists, else the only array.
    pub fn first_of(&self, names: &[&str], content: &str) -> Result<NpyArray> {
        let name = names.iter().copied().find(|name| self.contains(name));
        match (name, &self.names[..]) {
            (Some(name), _) => self.array(name),
            (None, [only]) => self.array(only),
            (None, all) => {
                let first = all.first().map_or("NAME", String::as_str);
                Err(self.file.error(format!(
                    "expected an array of {content} named {}, found {}; save the right one as a file of its own: {}",
                    names.join(" or "),
                    all.join(", "),
                    Conversion::NamedArray.command_for(self.file.path(), first)
                )))
            }
        }
    }

    /// The array `name`. Fails if it does not exist.
    pub fn array(&self, name: &str) -> Result<NpyArray> {
        let (extent, bytes) = self.extent(name)?;
        NpyArray::in_extent(extent, bytes)
    }

    /// The place of a member, and its unpacked size in bytes.
    pub fn extent(&self, name: &str) -> Result<(Extent, u64)> {
        let Some(index) = self.names.iter().position(|other| other == name) else {
            return Err(self.file.error(format!("expected an array named {name}, found {}", self.names.join(", "))));
        };
        let mut archive = self.archive.lock().unwrap_or_else(PoisonError::into_inner);
        let member = archive.by_index_raw(index).map_err(|error| damaged(&self.file, error))?;
        let (method, packed, bytes) = (member.compression(), member.compressed_size(), member.size());
        let start = member.data_start();
        let extent = Extent {
            file: self.file.clone(),
            offset: start.unwrap_or(0),
            bytes: packed,
            compression: if method == CompressionMethod::STORE { Compression::None } else { Compression::Deflate },
            member: Some(name.into()),
            crc: Some(Arc::new(MemberCrc::new(member.crc32(), bytes))),
        };
        let unread = match method {
            _ if member.encrypted() => Some("encrypted".to_owned()),
            CompressionMethod::STORE | CompressionMethod::DEFLATE => None,
            _ => Some(format!("packed with method {method:?}, which this program does not read")),
        };
        if let Some(why) = unread {
            return Err(extent.error(format!("it is {why}; write the archive with NumPy's savez or savez_compressed")));
        }
        let end = start.and_then(|start| start.checked_add(packed));
        // Deflate compresses 1032 to 1 at best. A larger claim is false, and would reserve memory for nothing.
        let plausible = match extent.compression {
            Compression::None => bytes == packed,
            _ => bytes / 1032 <= packed,
        };
        if end.is_none_or(|end| end > self.file.bytes()) || !plausible {
            return Err(damaged(&self.file, format!("the size of its member {name} is impossible")));
        }
        drop(member);
        Ok((extent, bytes))
    }
}

fn damaged(file: &InputFile, why: impl ToString) -> Error {
    file.error(format!(
        "this .npz archive is truncated or damaged ({}); fetch it again, or write it again with NumPy's savez",
        why.to_string()
    ))
}
