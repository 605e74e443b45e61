//! The header of `.npy` files (NumPy format 1.0). It has a fixed length, so that an array can be written before its
//! length is known.

/// Bytes of each header. The values follow it.
pub const HEADER_BYTES: usize = 128;

/// The header of an array in C order. `descr` is NumPy's name of the type, such as `<i8`.
///
/// # Panics
/// If there are more than two dimensions: their lengths might not fit.
pub fn header(descr: &str, shape: &[u64]) -> [u8; HEADER_BYTES] {
    assert!(shape.len() <= 2, "{} dimensions", shape.len());
    let shape: String = shape.iter().map(|length| format!("{length}, ")).collect();
    let dictionary = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The magic bytes, version 1.0, the length of the rest of the header; then the dictionary, padded to end with a
    // newline.
    let mut header = [b' '; HEADER_BYTES];
    header[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
    header[8..10].copy_from_slice(&(HEADER_BYTES as u16 - 10).to_le_bytes());
    header[10..10 + dictionary.len()].copy_from_slice(dictionary.as_bytes());
    header[HEADER_BYTES - 1] = b'\n';
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_header_fits() {
        let header = header("<f4", &[u64::MAX, u64::MAX]);
        assert!(header.ends_with(b" \n"));
        assert!(header[10..].starts_with(
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 18446744073709551615, ), } "
        ));
    }
}
