//! `.npz` archives as `numpy.savez` writes them: zip files with uncompressed members.

use std::{fs, path::Path};

use crate::npy::Npy;

/// Writes arrays as the members of an archive.
pub fn write_npz(path: &Path, arrays: &[(&str, Npy)]) {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, array) in arrays {
        let (name, bytes) = (format!("{name}.npy"), array.encode());
        let mut crc = flate2::Crc::new();
        crc.update(&bytes);
        let at = file.len() as u32;
        // Version, flags, method (0: stored), time, date; then checksum, both lengths, lengths of name and extra field.
        let mut common = Vec::new();
        common.extend([20u16, 0, 0, 0, 33].into_iter().flat_map(u16::to_le_bytes));
        common.extend(
            [crc.sum(), bytes.len() as u32, bytes.len() as u32]
                .into_iter()
                .flat_map(u32::to_le_bytes),
        );
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
    let (at, count) = (file.len() as u32, arrays.len() as u16);
    file.extend(&directory);
    file.extend(b"PK\x05\x06");
    file.extend([0, 0, count, count].into_iter().flat_map(u16::to_le_bytes));
    file.extend([directory.len() as u32, at].into_iter().flat_map(u32::to_le_bytes));
    file.extend(0u16.to_le_bytes());
    fs::write(path, file).unwrap();
}
