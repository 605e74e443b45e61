//! Detects unsupported file formats by their first bytes, and suggests a conversion command.

use std::{path::Path, sync::Arc};

use grappa_io::{Error, Position, Result};

use crate::{
    conversions::Conversion,
    extent::{Compression, Extent},
    file::InputFile,
};

/// The first bytes of arrays, of archives and of Parquet, which are read.
pub(crate) const NPY: &[u8] = b"\x93NUMPY";
pub(crate) const ZIP: &[u8] = b"PK\x03\x04";
pub(crate) const PARQUET: &[u8] = b"PAR1";

/// The first bytes that are enough to know a kind.
const HEAD_BYTES: usize = 512;

/// A kind of files that is not read: what it is called, and the command that converts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(&'static str, Option<Conversion>);

const FEATHER: Kind = Kind("a Feather file (Arrow IPC)", Some(Conversion::FeatherToParquet));
const PYTORCH: Kind = Kind(
    "a PyTorch file, which may run any code when Python reads it; convert it if you trust it, and give the arrays, such as --edges \
     NEW-edge_index.npy --features NEW-x.npy --labels NEW-y.npy --train NEW-train_mask.npy",
    Some(Conversion::PyTorchToArrays),
);
const UTF16: Kind = Kind("text in UTF-16", Some(Conversion::Utf16ToUtf8));
const EXCEL: Kind = Kind("an Excel file", Some(Conversion::ExcelToText));
const XZ: Kind = Kind("compressed with xz", Some(Conversion::UnpackXz));

const KINDS: [(&[u8], Kind); 20] = [
    (b"Obj\x01", Kind("an Avro file", Some(Conversion::AvroToParquet))),
    (b"BZh", Kind("compressed with bzip2", Some(Conversion::UnpackBzip2))),
    (b"\x1f\x9d", Kind("compressed with compress", Some(Conversion::UnpackGzip))),
    // The number that DGL writes first, little-endian.
    (b"\x3f\xa1\xb4\x46\xf0\x4f\x2e\xdd", Kind("a file of DGL graphs", Some(Conversion::DglToArrays))),
    (b"ARROW1", FEATHER),
    (b"FEA1", FEATHER),
    (b"\x89HDF\r\n\x1a\n", Kind("an HDF5 file", Some(Conversion::Hdf5ToArrays))),
    (LFS, Kind("a pointer of Git LFS to a file that was not fetched", Some(Conversion::FetchLfs))),
    (b"\x04\x22\x4d\x18", Kind("compressed with LZ4", Some(Conversion::UnpackLz4))),
    (b"MATLAB 5.0 MAT-file", Kind("a MATLAB file", Some(Conversion::MatlabToArrays))),
    (b"MATLAB 7.3 MAT-file", Kind("a MATLAB file", Some(Conversion::Matlab73ToArrays))),
    (b"ORC", Kind("an ORC file", Some(Conversion::OrcToParquet))),
    // The number of PyTorch before it wrote archives.
    (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19", PYTORCH),
    (b"PARE", Kind("an encrypted Parquet file; write it again without encryption", None)),
    (b"SQLite format 3\0", Kind("a SQLite database", Some(Conversion::SqliteToText))),
    (b"\xff\xfe", UTF16),
    (b"\xfe\xff", UTF16),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", EXCEL),
    (b"\xfd7zXZ\0", XZ),
    (b"\x5d\0\0\x80\0", XZ),
];
const LFS: &[u8] = b"version https://git-lfs";

/// Fails if a file is of a kind that is not read. Compressed files are looked into: text in them is read.
pub(crate) fn refuse_other_kinds(file: &Arc<InputFile>) -> Result<()> {
    let head = file.head(HEAD_BYTES)?;
    let compression = Compression::from_head(&head);
    let kind = match compression {
        Compression::None => Kind::from_head(&head),
        _ => {
            let mut unpacked = vec![0; HEAD_BYTES];
            let mut stream = Extent::whole(file, compression).stream()?;
            // A damaged file is an error of the reader, which says where the damage is.
            let read = stream.read_full(&mut unpacked).unwrap_or(0);
            let unpacked = &unpacked[..read];
            let is_binary = [NPY, ZIP, PARQUET].iter().any(|magic| unpacked.starts_with(magic));
            let is_packed = Compression::from_head(unpacked) != Compression::None;
            (is_binary || is_packed || Kind::from_head(unpacked).is_some()).then_some(match compression {
                Compression::Zstd => Kind(
                    "compressed with Zstandard, and only text is read from such files",
                    Some(Conversion::UnpackZstd),
                ),
                _ => Kind("compressed with gzip, and only text is read from such files", Some(Conversion::UnpackGzip)),
            })
        }
    };
    kind.map_or(Ok(()), |kind| Err(kind.error(file.path())))
}

/// Whether a text begins with `name`, in any case.
fn begins(text: &[u8], name: &[u8]) -> bool {
    text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

impl Kind {
    /// The kind of a file that begins with these bytes.
    fn from_head(head: &[u8]) -> Option<Self> {
        // Names of columns begin with such letters too: ORCID, FEA1.
        let is_text = head.iter().all(|&byte| byte >= b'\t');
        let known = KINDS.iter().find(|(magic, _)| {
            let may_be_text = *magic != LFS && magic.iter().all(u8::is_ascii_graphic);
            head.starts_with(magic) && !(is_text && may_be_text)
        });
        let text = head.trim_ascii_start();
        match known {
            Some(&(_, kind)) => Some(kind),
            None if head.get(257..262) == Some(b"ustar") => Some(Self("a tar archive", Some(Conversion::UnpackTar))),
            // Protocol 2 and later; an older pickle is text.
            None if matches!(head, [0x80, 2..=5, ..]) => Some(Self(
                "a pickle, which may run any code when Python reads it, so convert it only if you trust it",
                Some(Conversion::PickleToText),
            )),
            None if begins(text, b"<!doctype html") || begins(text, b"<html") => {
                Some(Self("a web page (HTML), perhaps of a failed download; fetch the file again", None))
            }
            None => None,
        }
    }

    /// The kind of an archive with members of these names, if it is no archive of arrays.
    pub fn of_archive<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        for (end, kind) in [("data.pkl", PYTORCH), ("xl/workbook.xml", EXCEL)] {
            // The member may be in a folder.
            let mut rests = names.clone().filter_map(|name| name.strip_suffix(end));
            if rests.any(|folder| folder.is_empty() || folder.ends_with('/')) {
                return Some(kind);
            }
        }
        let has_array = names.clone().any(|name| name.ends_with(".npy"));
        (!has_array).then_some(Self("a zip archive", Some(Conversion::UnpackZip)))
    }

    pub fn error(self, path: &Path) -> Error {
        let Self(name, conversion) = self;
        let command = conversion.map_or_else(String::new, |conversion| {
            let verb = match conversion {
                Conversion::FetchLfs => "fetch",
                Conversion::UnpackBzip2
                | Conversion::UnpackGzip
                | Conversion::UnpackLz4
                | Conversion::UnpackTar
                | Conversion::UnpackXz
                | Conversion::UnpackZip
                | Conversion::UnpackZstd => "unpack",
                _ => "convert",
            };
            format!("; {verb} it: {}", conversion.command(path))
        });
        Error::input(path, Position::Whole, format!("this is {name}{command}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_begins_as_another_kind_is_text() {
        for text in ["ORCID,name\n", "FEA1,FEA2\n", "BZh,x\n", "ARROW1 x\n", "0 1\n", "ann bob\n"] {
            assert_eq!(Kind::from_head(text.as_bytes()), None, "{text}");
        }
        for (head, name) in [
            (b"ORC\0\0\x01".as_slice(), "an ORC file"),
            (b"BZh91AY&SY\x01\x02", "compressed with bzip2"),
            (b"ARROW1\0\0", "a Feather file (Arrow IPC)"),
            (b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS to a file that was not fetched"),
            (b"\n<!DOCTYPE html>\n", "a web page (HTML), perhaps of a failed download; fetch the file again"),
            (
                b"\x80\x04\x95",
                "a pickle, which may run any code when Python reads it, so convert it only if you trust it",
            ),
        ] {
            assert_eq!(Kind::from_head(head).unwrap().0, name);
        }
    }
}
