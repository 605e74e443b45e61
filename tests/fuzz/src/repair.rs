//! Repairs checksums of mutants. Without that, a decoder would reject every mutant at its checksum.

use flate2::Crc;
use grappa_formats::container::{BLOCK_BYTES, FileKind, HEADER_BYTES, MAGIC, PAGE_BYTES};
use xxhash_rust::xxh3::xxh3_64;

/// The length of short checksum blocks, as encoded in a header.
const PAGE: [u8; 4] = (PAGE_BYTES as u32).to_le_bytes();

/// Repairs a container file: the length of its payload and all checksums. A file whose header has contradictory lengths
/// stays as it is; readers must detect that.
///
/// The layout is specified in `formats/spec/container.md`.
pub fn container(file: &mut [u8]) {
    let Some(fixed) = file.first_chunk::<HEADER_BYTES>() else {
        return;
    };
    let u32_at = |at: usize| u32::from_le_bytes(fixed[at..at + 4].try_into().expect("inside the header"));
    let u64_at = |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("inside the header"));
    let (payload_at, block) = (u64_at(16) as usize, u32_at(36) as usize);
    let Some(rest) = file.len().checked_sub(payload_at) else {
        return seal(file);
    };
    if payload_at < HEADER_BYTES || block == 0 {
        return seal(file);
    }
    // Each block takes its bytes and eight more in the table.
    let blocks = rest.div_ceil(block + 8);
    let Some(payload) = rest.checked_sub(8 * blocks) else {
        return seal(file);
    };
    file[24..32].copy_from_slice(&(payload as u64).to_le_bytes());
    let table_at = payload_at + payload;
    let sums: Vec<u8> =
        file[payload_at..table_at].chunks(block).flat_map(|bytes| xxh3_64(bytes).to_le_bytes()).collect();
    // A last block of no bytes has an entry too many, which a reader is to find.
    let held = sums.len().min(file.len() - table_at);
    file[table_at..table_at + held].copy_from_slice(&sums[..held]);
    let table = xxh3_64(&file[table_at..]);
    file[48..56].copy_from_slice(&table.to_le_bytes());
    let meta = xxh3_64(&file[HEADER_BYTES..payload_at]);
    file[40..48].copy_from_slice(&meta.to_le_bytes());
    seal(file);
}

/// Repairs the checksum of the header.
fn seal(file: &mut [u8]) {
    let digest = xxh3_64(&file[..56]);
    file[56..64].copy_from_slice(&digest.to_le_bytes());
}

/// Repairs the CRCs of a zip archive's members, in both headers.
pub fn zip(file: &mut [u8]) {
    let u16_at = |file: &[u8], at: usize| Some(u16::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let u32_at = |file: &[u8], at: usize| Some(u32::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let entries: Vec<usize> =
        file.windows(4).enumerate().filter(|(_, bytes)| *bytes == b"PK\x01\x02").map(|(at, _)| at).collect();
    for entry in entries {
        let repaired = (|| {
            let (method, packed) = (u16_at(file, entry + 10)?, u32_at(file, entry + 20)? as usize);
            let local = u32_at(file, entry + 42)? as usize;
            let (name, extra) = (u16_at(file, local + 26)?, u16_at(file, local + 28)?);
            let data = local + 30 + usize::from(name) + usize::from(extra);
            let packed = file.get(data..data.checked_add(packed)?)?;
            let mut crc = Crc::new();
            match method {
                0 => crc.update(packed),
                _ => crc.update(&inflated(packed)),
            }
            Some((local, crc.sum()))
        })();
        if let Some((local, crc)) = repaired {
            for at in [entry + 16, local + 14] {
                if let Some(bytes) = file.get_mut(at..at + 4) {
                    bytes.copy_from_slice(&crc.to_le_bytes());
                }
            }
        }
    }
}

/// The decompressed bytes of a deflated member, up to its end, its first error, or 1 MiB.
fn inflated(packed: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let decoder = flate2::read::DeflateDecoder::new(packed);
    let _ = decoder.take(1 << 20).read_to_end(&mut bytes);
    bytes
}

/// Like [`container`], and sets this kind and the usual block length. Mutants then differ in the bytes that the kind's
/// decoder sees.
pub fn container_of(kind: FileKind, file: &mut [u8]) {
    if file.len() >= HEADER_BYTES {
        file[0..8].copy_from_slice(&MAGIC);
        file[8..12].copy_from_slice(&kind.0);
        let meta_bytes = u32::from_le_bytes(file[32..36].try_into().expect("four bytes")) as usize;
        let version = kind.version(file[HEADER_BYTES..].get(..meta_bytes).unwrap_or_default());
        file[12..16].copy_from_slice(&version.to_le_bytes());
        // Either is read, whatever is written today.
        if file[36..40] != PAGE {
            file[36..40].copy_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        }
    }
    container(file);
}

/// Like [`zip`], for an input whose first byte selects options.
pub fn zip_after_choice(input: &mut [u8]) {
    if let Some((_, file)) = input.split_first_mut() {
        zip(file);
    }
}

#[cfg(test)]
mod tests {
    use grappa_formats::container::{decode_file, encode_file};

    use super::*;

    #[test]
    fn a_container_of_any_length_is_whole_again() {
        for payload in [1, 300, 70_000, 200_000] {
            let (file, _) = encode_file(FileKind::ROWS, vec![1, 2, 3], &vec![7; payload]);
            let mut repaired = file.clone();
            container(&mut repaired);
            assert_eq!(repaired, file);

            let mut changed = file.clone();
            changed[64] ^= 1;
            changed[128] ^= 1;
            changed.splice(128..128, *b"more");
            decode_file(&changed, FileKind::ROWS).unwrap_err();
            container(&mut changed);
            let (header, found) = decode_file(&changed, FileKind::ROWS).unwrap();
            assert_eq!((header.meta[0], found.len()), (0, payload + 4));

            changed[8..40].fill(0);
            changed[16] = 128;
            container_of(FileKind::LABELS, &mut changed);
            decode_file(&changed, FileKind::LABELS).unwrap();
        }
    }
}
