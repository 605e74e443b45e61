//! Packed text, and `.npz` archives as `numpy.savez` writes them: zip files with uncompressed members.

use std::{fs, io::Write, path::Path};

use flate2::{Compression, write::GzEncoder};

use crate::npy::Npy;

/// The bytes as gzip packs them.
pub fn gzip(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes.as_ref()).unwrap();
    encoder.finish().unwrap()
}

/// Writes arrays as the members of an archive.
pub fn write_npz(path: &Path, arrays: &[(&str, Npy)]) {
    let members = arrays.iter().map(|(name, array)| (format!("{name}.npy"), array.encode()));
    fs::write(path, zip(members)).unwrap();
}

/// A zip archive of these names and contents.
pub fn zip(members: impl ExactSizeIterator<Item = (String, Vec<u8>)>) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    let count = members.len() as u16;
    for (name, bytes) in members {
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        let at = file.len() as u32;
        // Version, flags, method (0: stored), time, date; then checksum, both lengths, lengths of name and extra field.
        let mut common = Vec::new();
        common.extend([20u16, 0, 0, 0, 33].into_iter().flat_map(u16::to_le_bytes));
        common.extend([crc.sum(), bytes.len() as u32, bytes.len() as u32].into_iter().flat_map(u32::to_le_bytes));
        common.extend([name.len() as u16, 0].into_iter().flat_map(u16::to_le_bytes));

        file.extend(b"PK\x03\x04");
        file.extend(&common);
        file.extend(name.as_bytes());
        file.extend(&bytes);

        directory.extend(b"PK\x01\x02");
        directory.extend(20u16.to_le_bytes());
        directory.extend(&common);
        // Comment length, disk, internal attributes, external attributes.
        directory.extend([0u8; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let at = file.len() as u32;
    file.extend(&directory);
    file.extend(b"PK\x05\x06");
    file.extend([0, 0, count, count].into_iter().flat_map(u16::to_le_bytes));
    file.extend([directory.len() as u32, at].into_iter().flat_map(u32::to_le_bytes));
    file.extend(0u16.to_le_bytes());
    file
}
