//! The types of the fields of Parquet's metadata, and a walk that checks them.
//!
//! Source: <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>.

use super::thrift::{BINARY, DOUBLE, FALSE, Field, I8, I16, I32, I64, LIST, STOP, STRUCT, TRUE, Walk};

pub(super) enum FieldType {
    /// A type without parts.
    Plain(u8),
    Bool,
    List(&'static Self),
    /// The types of its fields, whose ids begin with 1.
    Struct(&'static [Self]),
}

use FieldType::{Bool, List, Plain, Struct};

const INT: FieldType = Plain(I32);
const LONG: FieldType = Plain(I64);
const FLOAT: FieldType = Plain(DOUBLE);
const BYTES: FieldType = Plain(BINARY);

const KEY_VALUE: FieldType = Struct(&[BYTES, BYTES]);

const NO_FIELDS: FieldType = Struct(&[]);

/// Whether it is in UTC, and the unit.
const TIME: FieldType = Struct(&[Bool, Struct(&[NO_FIELDS, NO_FIELDS, NO_FIELDS])]);

const LOGICAL_TYPE: FieldType = Struct(&[
    NO_FIELDS,
    NO_FIELDS,
    NO_FIELDS,
    NO_FIELDS,
    // Decimal: scale and precision.
    Struct(&[INT, INT]),
    NO_FIELDS,
    TIME,
    TIME,
    NO_FIELDS,
    // Integer: bits, and whether it is signed.
    Struct(&[Plain(I8), Bool]),
    NO_FIELDS,
    NO_FIELDS,
    NO_FIELDS,
    NO_FIELDS,
    NO_FIELDS,
    // Variant: version.
    Struct(&[Plain(I8)]),
    // Geometry and geography: coordinate system, and algorithm.
    Struct(&[BYTES]),
    Struct(&[BYTES, INT]),
]);

/// An element of the schema: repetition, name, number of children and so on.
pub(super) const SCHEMA_ELEMENT: &[FieldType] = &[INT, INT, INT, BYTES, INT, INT, INT, INT, INT, LOGICAL_TYPE];

/// Minima and maxima, old and new, counts, and whether minimum and maximum are exact.
const STATISTICS: FieldType = Struct(&[BYTES, BYTES, LONG, LONG, BYTES, BYTES, Bool, Bool, LONG]);

const COLUMN_METADATA: FieldType = Struct(&[
    INT,
    List(&INT),
    List(&BYTES),
    INT,
    LONG,
    LONG,
    LONG,
    List(&KEY_VALUE),
    LONG,
    LONG,
    LONG,
    STATISTICS,
    // Encoding statistics.
    List(&Struct(&[INT, INT, INT])),
    LONG,
    INT,
    // Size statistics.
    Struct(&[LONG, List(&LONG), List(&LONG)]),
    // Geospatial statistics: a bounding box, and types.
    Struct(&[Struct(&[FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT]), List(&INT)]),
]);

const COLUMN_CHUNK: FieldType = Struct(&[
    BYTES,
    LONG,
    COLUMN_METADATA,
    LONG,
    INT,
    LONG,
    INT,
    // How it is encrypted.
    Struct(&[Struct(&[]), Struct(&[List(&BYTES), BYTES])]),
    BYTES,
]);

const ROW_GROUP: FieldType = Struct(&[
    List(&COLUMN_CHUNK),
    LONG,
    LONG,
    // Columns by which it is sorted.
    List(&Struct(&[INT, Bool, Bool])),
    LONG,
    LONG,
    Plain(I16),
]);

/// How a file is encrypted, by either of two algorithms.
const ENCRYPTION: FieldType = Struct(&[Struct(&[BYTES, BYTES, Bool]), Struct(&[BYTES, BYTES, Bool])]);

pub(super) const FILE_METADATA: &[FieldType] = &[
    INT,
    List(&Struct(SCHEMA_ELEMENT)),
    LONG,
    List(&ROW_GROUP),
    List(&KEY_VALUE),
    BYTES,
    // Orders of columns.
    List(&Struct(&[Struct(&[]), Struct(&[])])),
    ENCRYPTION,
    BYTES,
];

/// The header of a page: type, sizes, checksum, then one of data, index, dictionary, and data of version 2.
pub(super) const PAGE_HEADER: &[FieldType] = &[
    INT,
    INT,
    INT,
    INT,
    Struct(&[INT, INT, INT, INT, STATISTICS]),
    Struct(&[]),
    Struct(&[INT, INT, Bool]),
    Struct(&[INT, INT, INT, INT, INT, INT, Bool, STATISTICS]),
];

/// Walks a struct with fields of these types. `None` if a field has another type, or the bytes end.
pub(super) fn walk_struct(walk: &mut Walk<'_>, fields: &[FieldType]) -> Option<()> {
    let mut id = 0;
    loop {
        let field = walk.field(id)?;
        if field.kind == STOP {
            return Some(());
        }
        walk_field(walk, &field, fields)?;
        id = field.id;
    }
}

/// Walks the value of a field of such a struct. Fields of other ids may have any type.
pub(super) fn walk_field(walk: &mut Walk<'_>, field: &Field, fields: &[FieldType]) -> Option<()> {
    let known = usize::try_from(field.id - 1).ok().and_then(|index| fields.get(index));
    match (field.kind, known) {
        (TRUE | FALSE, Some(Bool)) => Some(()),
        (found, Some(kind)) if found == kind.of_element()? => walk_element(walk, kind),
        (_, Some(_)) => None,
        (kind, None) => walk.skip(kind),
    }
}

impl FieldType {
    /// The type of an element of a list. None for booleans, which are in no list.
    fn of_element(&self) -> Option<u8> {
        match self {
            Plain(kind) => Some(*kind),
            Bool => None,
            List(_) => Some(LIST),
            Struct(_) => Some(STRUCT),
        }
    }
}

/// Walks a value that is not a boolean.
fn walk_element(walk: &mut Walk<'_>, kind: &FieldType) -> Option<()> {
    match kind {
        Plain(kind) => walk.skip(*kind),
        Bool => None,
        Struct(fields) => walk_struct(walk, fields),
        List(element) => {
            let list = walk.list()?;
            let fits = list.elements == 0 || list.kind == element.of_element()?;
            // Every element takes a byte.
            if !fits || list.elements > walk.left() {
                return None;
            }
            (0..list.elements).try_for_each(|_| walk_element(walk, element))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metadata with one more field: its id and its type, then its bytes.
    fn with(field: &[u8]) -> Option<()> {
        let metadata = [&[0x15, 4, 0x19, 0x0c, 0x16, 0, 0x19, 0x0c][..], field, &[0]].concat();
        walk_struct(&mut Walk::new(&metadata), FILE_METADATA)
    }

    #[test]
    fn lists_claim_no_more_than_follows() {
        with(&[]).unwrap();
        // Two keys with values: field 5, a list of structs.
        let pair = [0x18, 1, b'k', 0x18, 1, b'v', 0];
        with(&[&[0x19, 0x2c][..], &pair, &pair].concat()).unwrap();
        assert!(with(&[&[0x19, 0x3c][..], &pair, &pair].concat()).is_none());
        assert!(with(&[0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 7]).is_none());
    }

    #[test]
    fn fields_have_their_types() {
        // Field 6, who wrote the file, as text and as a number.
        with(&[0x28, 1, b'a']).unwrap();
        assert!(with(&[0x25, 2]).is_none());
        // Keys as lists of numbers.
        assert!(with(&[0x19, 0x25, 2, 2]).is_none());
    }

    #[test]
    fn unknown_fields_have_no_booleans_in_lists() {
        // Field 14: a number, a list of lists of numbers, a map from numbers to text, a boolean.
        for value in [&[0xa6, 2][..], &[0xa9, 0x29, 0x15, 2, 0x05], &[0xab, 1, 0x68, 2, 1, b'a'], &[0xa1]] {
            with(value).unwrap();
        }
        // 2^31 - 1 booleans in a list, and as the keys of a map. The Parquet reader takes no bytes for them.
        for value in [
            &[0xa9, 0xf1, 0xff, 0xff, 0xff, 0xff, 7][..],
            &[0xa9, 0xf2, 0xff, 0xff, 0xff, 0xff, 7],
            &[0xab, 0xff, 0xff, 0xff, 0xff, 7, 0x11],
        ] {
            assert!(with(value).is_none(), "{value:?}");
        }
    }
}
