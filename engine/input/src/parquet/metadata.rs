//! The types of the fields of Parquet's metadata, and a walk that checks them.
//!
//! Source: <https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift>.

use super::thrift::{BINARY, DOUBLE, FALSE, I16, I32, I64, LIST, STOP, STRUCT, TRUE, Walk};

/// The type of a field or an element.
pub(super) enum Kind {
    /// A type without parts.
    Plain(u8),
    Bool,
    List(&'static Self),
    /// The types of its fields, whose ids begin with 1.
    Struct(&'static [Self]),
    /// A struct whose fields are checked elsewhere, or not read.
    Other,
}

use Kind::{Bool, List, Other, Plain, Struct};

const KEY_VALUE: Kind = Struct(&[Plain(BINARY), Plain(BINARY)]);

/// Repetition, name, number of children and so on. The schema has checks of its own, which know logical types.
const SCHEMA_ELEMENT: Kind = Struct(&[
    Plain(I32),
    Plain(I32),
    Plain(I32),
    Plain(BINARY),
    Plain(I32),
    Plain(I32),
    Plain(I32),
    Plain(I32),
    Plain(I32),
    Other,
]);

/// Minima and maxima, old and new, counts, and whether minimum and maximum are exact.
const STATISTICS: Kind = Struct(&[
    Plain(BINARY),
    Plain(BINARY),
    Plain(I64),
    Plain(I64),
    Plain(BINARY),
    Plain(BINARY),
    Bool,
    Bool,
    Plain(I64),
]);

const COLUMN_METADATA: Kind = Struct(&[
    Plain(I32),
    List(&Plain(I32)),
    List(&Plain(BINARY)),
    Plain(I32),
    Plain(I64),
    Plain(I64),
    Plain(I64),
    List(&KEY_VALUE),
    Plain(I64),
    Plain(I64),
    Plain(I64),
    STATISTICS,
    // Encoding statistics.
    List(&Struct(&[Plain(I32), Plain(I32), Plain(I32)])),
    Plain(I64),
    Plain(I32),
    // Size statistics.
    Struct(&[Plain(I64), List(&Plain(I64)), List(&Plain(I64))]),
    // Geospatial statistics: a bounding box, and types.
    Struct(&[
        Struct(&[
            Plain(DOUBLE),
            Plain(DOUBLE),
            Plain(DOUBLE),
            Plain(DOUBLE),
            Plain(DOUBLE),
            Plain(DOUBLE),
            Plain(DOUBLE),
            Plain(DOUBLE),
        ]),
        List(&Plain(I32)),
    ]),
]);

const COLUMN_CHUNK: Kind = Struct(&[
    Plain(BINARY),
    Plain(I64),
    COLUMN_METADATA,
    Plain(I64),
    Plain(I32),
    Plain(I64),
    Plain(I32),
    // How it is encrypted.
    Struct(&[Struct(&[]), Struct(&[List(&Plain(BINARY)), Plain(BINARY)])]),
    Plain(BINARY),
]);

const ROW_GROUP: Kind = Struct(&[
    List(&COLUMN_CHUNK),
    Plain(I64),
    Plain(I64),
    // Columns by which it is sorted.
    List(&Struct(&[Plain(I32), Bool, Bool])),
    Plain(I64),
    Plain(I64),
    Plain(I16),
]);

/// How a file is encrypted, by either of two algorithms.
const ENCRYPTION: Kind = Struct(&[
    Struct(&[Plain(BINARY), Plain(BINARY), Bool]),
    Struct(&[Plain(BINARY), Plain(BINARY), Bool]),
]);

/// The metadata of a file.
pub(super) const FILE_METADATA: &[Kind] = &[
    Plain(I32),
    List(&SCHEMA_ELEMENT),
    Plain(I64),
    List(&ROW_GROUP),
    List(&KEY_VALUE),
    Plain(BINARY),
    // Orders of columns.
    List(&Struct(&[Struct(&[]), Struct(&[])])),
    ENCRYPTION,
    Plain(BINARY),
];

/// The header of a page: type, sizes, checksum, then one of data, index, dictionary, and data of version 2.
pub(super) const PAGE_HEADER: &[Kind] = &[
    Plain(I32),
    Plain(I32),
    Plain(I32),
    Plain(I32),
    Struct(&[Plain(I32), Plain(I32), Plain(I32), Plain(I32), STATISTICS]),
    Struct(&[]),
    Struct(&[Plain(I32), Plain(I32), Bool]),
    Struct(&[
        Plain(I32),
        Plain(I32),
        Plain(I32),
        Plain(I32),
        Plain(I32),
        Plain(I32),
        Bool,
        STATISTICS,
    ]),
];

/// Walks a struct with fields of these types. Fields of other ids may have any type. `None` if a field has another type, or the bytes end.
pub(super) fn walk_struct(walk: &mut Walk<'_>, fields: &[Kind]) -> Option<()> {
    let mut id = 0;
    loop {
        let field = walk.field(id)?;
        id = field.id;
        let known = usize::try_from(id - 1).ok().and_then(|index| fields.get(index));
        match (field.kind, known) {
            (STOP, _) => return Some(()),
            (TRUE | FALSE, Some(Bool)) => {}
            (found, Some(kind)) if found == kind.of_element()? => walk_element(walk, kind)?,
            (_, Some(_)) => return None,
            (kind, None) => walk.skip(kind)?,
        }
    }
}

impl Kind {
    /// The type of an element of a list. None for booleans, which are in no list.
    fn of_element(&self) -> Option<u8> {
        match self {
            Plain(kind) => Some(*kind),
            Bool => None,
            List(_) => Some(LIST),
            Struct(_) | Other => Some(STRUCT),
        }
    }
}

/// Walks a value that is not a boolean.
fn walk_element(walk: &mut Walk<'_>, kind: &Kind) -> Option<()> {
    match kind {
        Plain(kind) => walk.skip(*kind),
        Bool => None,
        Other => walk.skip(STRUCT),
        Struct(fields) => walk_struct(walk, fields),
        List(of) => {
            let list = walk.list()?;
            let fits = list.elements == 0 || list.kind == of.of_element()?;
            // Every element takes a byte.
            if !fits || list.elements > walk.left() {
                return None;
            }
            (0..list.elements).try_for_each(|_| walk_element(walk, of))
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
        for value in [
            &[0xa6, 2][..],
            &[0xa9, 0x29, 0x15, 2, 0x05],
            &[0xab, 1, 0x68, 2, 1, b'a'],
            &[0xa1],
        ] {
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
