//! Limits what a file claims. The Parquet reader allocates the size of a page, up to 2 GiB, before it decompresses it, and room for
//! the children of a group of the schema, up to 16 GiB, before it reads them. And it skips a list of 2^31 booleans one by one, though
//! they take no bytes.

use parquet::errors::{ParquetError, Result as ParquetResult};

use super::{
    metadata::{FILE_METADATA, PAGE_HEADER, SCHEMA_ELEMENT, walk_field, walk_struct},
    thrift::{I16, I32, I64, LIST, List, STOP, STRUCT, Walk},
};

/// The most bytes that one compressed byte can hold. A zstd block of equal bytes holds 128 KiB in 4 bytes. Other codecs are
/// less dense.
const COMPRESSION_MAX: u64 = (128 << 10) / 4;
/// A page may claim this much whatever its compressed size is.
const PAGE_BYTES: u64 = 1 << 20;

/// Pages of data, dictionaries, and data of version 2. The reader passes over index pages (1), which nobody writes, when it reads, and not
/// when it skips rows.
const PAGE_TYPES: [i64; 3] = [0, 2, 3];

/// Refuses a page of another type, one that claims more compressed bytes than `left`, the bytes from its header to the end of the file, and
/// one that claims more bytes than any codec can make of its compressed ones.
///
/// A page header is a struct. It begins with three integer fields: 1 type, 2 size, 3 compressed size.
pub(super) fn check_page_header(header: &[u8], left: u64) -> ParquetResult<()> {
    let mut walk = Walk::new(header);
    let (mut id, mut sizes) = (0, [None; 2]);
    while sizes.contains(&None) {
        let field = walk.field(id).ok_or_else(no_sizes)?;
        id = field.id;
        // The sizes come before everything else.
        if !matches!(field.kind, I16..=I64) {
            return Err(no_sizes());
        }
        let value = walk.integer().ok_or_else(no_sizes)?;
        // The reader keeps 32 bits of a longer number.
        i32::try_from(value).map_err(|_| no_sizes())?;
        match id {
            1 if !PAGE_TYPES.contains(&value) => {
                return Err(ParquetError::General(format!("a page has the type {value}, which is not read")));
            }
            2 | 3 => sizes[id as usize - 2] = Some(value),
            _ => {}
        }
    }
    let [page, compressed] = sizes.map(|size| size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0));
    if compressed > left {
        return Err(ParquetError::General(format!(
            "a page claims {compressed} compressed bytes, and the file ends after {left}"
        )));
    }
    if page > PAGE_BYTES.saturating_add(compressed.saturating_mul(COMPRESSION_MAX)) {
        return Err(ParquetError::General(format!(
            "a page claims {page} bytes, more than {compressed} compressed ones can hold"
        )));
    }
    // The reader makes room for all values of a dictionary before it reads them. Each has a byte at least.
    if let Some(values) = dictionary_values(header)
        && u64::try_from(values).is_ok_and(|values| values > page)
    {
        return Err(ParquetError::General(format!("a dictionary of {values} values has {page} bytes")));
    }
    let mut walk = Walk::new(header);
    // Statistics with long values exceed the buffer.
    match walk_struct(&mut walk, PAGE_HEADER) {
        Some(()) => Ok(()),
        None if walk.has_ended && (header.len() as u64) < left => Ok(()),
        None => Err(ParquetError::General("a page header cannot be read".to_owned())),
    }
}

/// The field of a page header that describes a dictionary. Its first field has the number of values.
const DICTIONARY: i64 = 7;

/// The number of values that the page of a dictionary claims. None if the header is of another page, or has no such field.
fn dictionary_values(header: &[u8]) -> Option<i64> {
    let mut walk = Walk::new(header);
    let mut id = 0;
    loop {
        let field = walk.field(id)?;
        id = field.id;
        match (id, field.kind) {
            (_, STOP) => return None,
            (DICTIONARY, STRUCT) => break,
            (_, kind) => walk.skip(kind)?,
        }
    }
    let count = walk.field(0)?;
    if count.id == 1 && matches!(count.kind, I16..=I64) { walk.integer() } else { None }
}

fn no_sizes() -> ParquetError {
    ParquetError::General("a page header has no sizes".to_owned())
}

fn strange_schema(problem: &str) -> ParquetError {
    ParquetError::General(format!("its schema {problem}"))
}

/// The field of an element of a schema that has its number of children.
const CHILDREN: i64 = 5;
/// Groups of a schema may be nested this deep.
const DEPTH_MAX: usize = 64;

/// Refuses the metadata of a file if its fields have other types than the reader takes them to have, or lists claim more than follows.
///
/// With other types, the reader would go on elsewhere than this walk, and skip what it takes for a list there.
pub(super) fn check_metadata(metadata: &[u8]) -> ParquetResult<()> {
    check_schema(metadata)?;
    walk_struct(&mut Walk::new(metadata), FILE_METADATA)
        .ok_or_else(|| ParquetError::General("its metadata cannot be read".to_owned()))
}

/// Refuses the metadata of a file if a group of its schema claims more children than follow, or if groups are nested too deeply.
/// The Parquet reader makes room for the children before it looks, and calls itself for each level.
fn check_schema(metadata: &[u8]) -> ParquetResult<()> {
    let mut walk = Walk::new(metadata);
    let Some(list) = schema(&mut walk).ok_or_else(|| strange_schema("cannot be read"))? else {
        // The reader tells that it is missing.
        return Ok(());
    };
    // From the root to the element before: how many children each still lacks.
    let mut lacking: Vec<u64> = Vec::new();
    for element in 0..list.elements {
        while lacking.last() == Some(&0) {
            lacking.pop();
        }
        if let Some(children) = lacking.last_mut() {
            *children -= 1;
        }
        let children = children(&mut walk).ok_or_else(|| strange_schema("cannot be read"))?;
        if children > list.elements - element - 1 {
            return Err(strange_schema(&format!("has a group of {children} and {} elements", list.elements)));
        }
        lacking.push(children);
        if lacking.len() > DEPTH_MAX {
            return Err(strange_schema(&format!("has groups in more than {DEPTH_MAX} levels")));
        }
    }
    Ok(())
}

/// Walks to the elements of the schema: field 2 of the metadata, after the version. `Some(None)` if there is none. Nothing else may precede
/// it: the reader takes known fields to be of the types that they should be, and would then be elsewhere.
fn schema(walk: &mut Walk<'_>) -> Option<Option<List>> {
    let mut id = 0;
    loop {
        let field = walk.field(id)?;
        id = field.id;
        match (id, field.kind) {
            (_, STOP) => return Some(None),
            (1, I32) => _ = walk.integer()?,
            (2, LIST) => break,
            _ => return None,
        }
    }
    let list = walk.list()?;
    (list.kind == STRUCT || list.elements == 0).then_some(Some(list))
}

/// Walks an element of the schema, and returns the number of its children.
fn children(walk: &mut Walk<'_>) -> Option<u64> {
    let (mut id, mut children) = (0, 0);
    loop {
        let field = walk.field(id)?;
        id = field.id;
        match field.kind {
            STOP => return Some(children),
            I32 if id == CHILDREN => children = u64::try_from(walk.integer()?).ok()?,
            _ => walk_field(walk, &field, SCHEMA_ELEMENT)?,
        }
    }
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
            for (page, compressed) in [(0, 0), (1 << 20, 10), (1 << 30, 40 << 10), (i64::from(i32::MAX), 1 << 20)] {
                check_page_header(&header(page, compressed, ids), 1 << 20).unwrap();
            }
            for (page, compressed) in [(i64::from(i32::MAX), 4096), (64 << 20, 100), (1 << 21, -1)] {
                let error = check_page_header(&header(page, compressed, ids), 4096).unwrap_err().to_string();
                assert!(error.contains(&format!("a page claims {page} bytes")), "{error}");
            }
        }
    }

    #[test]
    fn a_dictionary_may_not_claim_more_values_than_its_page_has_bytes() {
        // Field 7 after field 3: a struct with the number of values.
        let dictionary = |values: i64| {
            let mut header = header(1000, 100, false);
            header.extend([0x4c, 0x15]);
            put(&mut header, values);
            header.extend([0x15, 0, 0, 0]);
            check_page_header(&header, 1000)
        };
        dictionary(1000).unwrap();
        for values in [1001, i64::from(i32::MAX)] {
            let error = dictionary(values).unwrap_err().to_string();
            assert!(error.contains(&format!("a dictionary of {values} values has 1000 bytes")), "{error}");
        }
    }

    #[test]
    fn a_page_has_a_type_that_is_read() {
        let of_type = |page: i64| {
            let mut header = header(8, 8, false);
            header[1] = (page << 1) as u8;
            check_page_header(&header, 100)
        };
        for page in PAGE_TYPES {
            of_type(page).unwrap();
        }
        for page in [1, 4] {
            let error = of_type(page).unwrap_err().to_string();
            assert!(error.contains(&format!("a page has the type {page}")), "{error}");
        }
    }

    #[test]
    fn a_page_may_not_claim_more_compressed_bytes_than_the_file_has() {
        check_page_header(&header(32 << 20, 1024, false), 1024).unwrap();
        let error = check_page_header(&header(32 << 20, 1025, false), 1024).unwrap_err();
        assert!(error.to_string().contains("a page claims 1025 compressed bytes"), "{error}");
    }

    /// Metadata with a version and a schema whose elements have these numbers of children.
    fn metadata(children: &[i64]) -> Vec<u8> {
        let mut bytes = vec![0x15, 4, 0x19, 0xfc];
        bytes.extend([children.len() as u8 | 0x80, (children.len() >> 7) as u8]);
        for &children in children {
            // Fields 4, the name, and 5.
            bytes.extend([0x48, 1, b'a', 0x15]);
            put(&mut bytes, children);
            // Field 10, a logical type: a struct with a struct.
            bytes.extend([0x5c, 0x1c, 0, 0, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_group_may_not_claim_more_children_than_follow() {
        check_schema(&metadata(&[2, 0, 0])).unwrap();
        check_schema(&metadata(&[3, 2, 0, 0, 0, 1, 0])).unwrap();
        check_schema(&metadata(&[])).unwrap();
        for children in [&[3, 0, 0][..], &[1, 2, 0], &[1, i64::from(i32::MAX)]] {
            let error = check_schema(&metadata(children)).unwrap_err().to_string();
            assert!(error.contains("has a group of"), "{error}");
        }
        check_schema(&metadata(&[1, -1])).unwrap_err();
    }

    #[test]
    fn groups_may_not_be_nested_deeply() {
        let nested = |levels: usize| {
            let mut children = vec![1; levels];
            children[levels - 1] = 0;
            metadata(&children)
        };
        check_schema(&nested(DEPTH_MAX)).unwrap();
        let error = check_schema(&nested(DEPTH_MAX + 1)).unwrap_err().to_string();
        assert!(error.contains("levels"), "{error}");
        // As many groups beside each other.
        let mut beside = vec![1000];
        beside.extend([1, 0].repeat(1000));
        check_schema(&metadata(&beside)).unwrap();
    }

    #[test]
    fn metadata_that_ends_early_or_has_other_types_is_refused() {
        let whole = metadata(&[1, 0]);
        // The last byte ends the struct, after the schema.
        for end in 0..whole.len() - 1 {
            check_schema(&whole[..end]).unwrap_err();
        }
        // A name that is a number, and a schema that is a set.
        let at = whole.windows(2).position(|bytes| bytes == [0x48, 1]).unwrap();
        let mut other = whole.clone();
        other[at] = 0x45;
        check_schema(&other).unwrap_err();
        check_schema(&[0x2a, 0x0c, 0]).unwrap_err();
        // A version that is a UUID, and a field before the schema.
        check_schema(&[&[0x1d][..], &whole[1..]].concat()).unwrap_err();
        check_schema(&[&[0x55, 0, 0x09, 4][..], &whole[3..]].concat()).unwrap_err();
        // Field 11 of an element, which nobody knows: lists of lists and so on, whose depth is limited.
        let nested = |depth: usize| {
            let element = [&[0x48, 1, b'a', 0x79][..], &vec![0x19; depth], &[0x13, 0, 0]].concat();
            check_schema(&[&[0x15, 4, 0x19, 0x1c][..], &element, &[0]].concat())
        };
        nested(40).unwrap();
        nested(1 << 20).unwrap_err();
        // Field 2^16 + 5, which the reader would take for field 5.
        check_schema(&[0x15, 4, 0x19, 0x1c, 0x48, 1, b'a', 0x05, 0x8a, 0x80, 0x08, 4, 0, 0]).unwrap_err();
        // Logical types: a decimal, a time in microseconds and an integer, then with fields of other types.
        let with = |logical_type: &[u8]| {
            let element = [&[0x48, 1, b'a', 0x6c][..], logical_type, &[0, 0]].concat();
            check_schema(&[&[0x15, 4, 0x19, 0x1c][..], &element, &[0]].concat())
        };
        for (right, wrong) in grappa_skip::cases![
            &[0x5c, 0x15, 4, 0x15, 20, 0][..], &[0x5c, 0x18, 1, b'a', 0x15, 20, 0][..];
            &[0x7c, 0x11, 0x1c, 0x2c, 0, 0, 0], &[0x7c, 0x11, 0x1c, 0x27, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            &[0xac, 0x13, 32, 0x12, 0], &[0xac, 0x15, 32, 0x12, 0];
        ] {
            with(right).unwrap();
            with(wrong).unwrap_err();
        }
        // No schema is for the reader to refuse.
        check_schema(&[0x15, 4, 0]).unwrap();
    }

    #[test]
    fn a_page_header_without_sizes_is_refused() {
        let whole = header(1000, 100, false);
        for end in 0..whole.len() {
            check_page_header(&whole[..end], 1000).unwrap_err();
        }
        // A size of more than 32 bits, which the reader would take for another.
        for beyond in [1 << 31, -1 << 40] {
            check_page_header(&header(beyond, 100, false), 1000).unwrap_err();
        }
        // A struct before the sizes, and a number that does not end.
        check_page_header(&[0x15, 0, 0x1c, 0x15, 0], 1000).unwrap_err();
        check_page_header(&[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 1000).unwrap_err();
    }
}
