//! Limits the size that a page claims. The Parquet reader allocates that size, up to 2 GiB, before it decompresses the page.

use parquet::errors::{ParquetError, Result as ParquetResult};

/// The most bytes that one compressed byte can hold. A zstd block of equal bytes holds 128 KiB in 4 bytes. Other codecs are
/// less dense.
const COMPRESSION_MAX: u64 = (128 << 10) / 4;
/// A page may claim this much whatever its compressed size is.
const PAGE_BYTES: u64 = 1 << 20;

/// Refuses a page that claims more bytes than any codec can make of its compressed bytes.
///
/// A page header is a struct in the compact protocol of Thrift. It begins with three integer fields: 1 type, 2 size,
/// 3 compressed size.
pub(super) fn check_page_header(header: &[u8]) -> ParquetResult<()> {
    let is_strange = || ParquetError::General("a page header has no sizes".to_owned());
    let mut bytes = header.iter().copied();
    let (mut id, mut sizes) = (0, [None; 2]);
    while sizes.contains(&None) {
        // The high half is the distance to the previous field's id, or 0 if the id follows. The low half is the type.
        let field = bytes.next().ok_or_else(is_strange)?;
        id = match field >> 4 {
            0 => varint(&mut bytes).ok_or_else(is_strange)?,
            distance => id + i64::from(distance),
        };
        // i16, i32 and i64. The sizes come before everything else.
        if !matches!(field & 15, 4..=6) {
            return Err(is_strange());
        }
        let value = varint(&mut bytes).ok_or_else(is_strange)?;
        if let 2 | 3 = id {
            sizes[id as usize - 2] = Some(value);
        }
    }
    let [page, compressed] = sizes.map(|size| size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0));
    if page > PAGE_BYTES.saturating_add(compressed.saturating_mul(COMPRESSION_MAX)) {
        return Err(ParquetError::General(format!(
            "a page claims {page} bytes, more than {compressed} compressed ones can hold"
        )));
    }
    Ok(())
}

/// Reads an integer of the compact protocol: seven bits per byte, lowest first, with the sign in the lowest bit.
fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: &mut Vec<u8>, value: i64) {
        let mut value = ((value << 1) ^ (value >> 63)) as u64;
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }

    /// A page header up to its sizes, with ids as distances, or written out.
    fn header(page: i64, compressed: i64, ids: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (id, value) in [(1, 0), (2, page), (3, compressed)] {
            match ids {
                true => {
                    bytes.push(5);
                    put(&mut bytes, id);
                }
                false => bytes.push(0x15),
            }
            put(&mut bytes, value);
        }
        bytes
    }

    #[test]
    fn a_page_may_not_claim_more_bytes_than_its_compressed_ones_can_hold() {
        for ids in [false, true] {
            for (page, compressed) in [
                (0, 0),
                (1 << 20, 10),
                (1 << 30, 40 << 10),
                (i64::from(i32::MAX), 1 << 20),
            ] {
                check_page_header(&header(page, compressed, ids)).unwrap();
            }
            for (page, compressed) in [(i64::from(i32::MAX), 4096), (64 << 20, 100), (1 << 21, -1)] {
                let error = check_page_header(&header(page, compressed, ids))
                    .unwrap_err()
                    .to_string();
                assert!(error.contains(&format!("a page claims {page} bytes")), "{error}");
            }
        }
    }

    #[test]
    fn a_page_header_without_sizes_is_refused() {
        let whole = header(1000, 100, false);
        for end in 0..whole.len() {
            check_page_header(&whole[..end]).unwrap_err();
        }
        // A struct before the sizes, and a number that does not end.
        check_page_header(&[0x15, 0, 0x1c, 0x15, 0]).unwrap_err();
        check_page_header(&[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).unwrap_err();
    }
}
