//! Walks structs in the compact protocol of Thrift, in which Parquet files keep their metadata. Only what is needed to check them
//! before the Parquet reader does: it allocates what they claim.
//!
//! Source: <https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md>.

/// Types of fields and elements. `STOP` ends a struct.
pub(super) const STOP: u8 = 0;
pub(super) const TRUE: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const I8: u8 = 3;
pub(super) const I16: u8 = 4;
pub(super) const I32: u8 = 5;
pub(super) const I64: u8 = 6;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;
pub(super) const DOUBLE: u8 = 7;
const SET: u8 = 10;
const MAP: u8 = 11;
const UUID: u8 = 13;
/// Values may be nested this deep.
const DEPTH_MAX: usize = 64;

/// Bytes that are walked. All methods return `None` if the bytes end or are no Thrift.
pub(super) struct Walk<'a> {
    /// Those that are not walked yet.
    rest: &'a [u8],
    /// Whether a method returned `None` because the bytes end.
    pub has_ended: bool,
}

pub(super) struct Field {
    pub id: i64,
    pub kind: u8,
}

pub(super) struct List {
    pub kind: u8,
    pub elements: u64,
}

impl<'a> Walk<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, has_ended: false }
    }

    /// Number of bytes that are not walked yet.
    pub fn left(&self) -> u64 {
        self.rest.len() as u64
    }

    fn byte(&mut self) -> Option<u8> {
        let Some((&byte, rest)) = self.rest.split_first() else {
            self.has_ended = true;
            return None;
        };
        self.rest = rest;
        Some(byte)
    }

    fn skip_bytes(&mut self, bytes: u64) -> Option<()> {
        let rest = usize::try_from(bytes).ok().and_then(|bytes| self.rest.get(bytes..));
        self.has_ended |= rest.is_none();
        self.rest = rest?;
        Some(())
    }

    /// Seven bits per byte, lowest first.
    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The value of a field of one of the types from [`I16`] to [`I64`].
    pub fn integer(&mut self) -> Option<i64> {
        // The sign is in the lowest bit.
        self.unsigned().map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The next field of a struct, after the field with the id `before`, or 0.
    pub fn field(&mut self, before: i64) -> Option<Field> {
        // The high half is the distance to the id before, or 0 if the id follows. The low half is the type.
        let byte = self.byte()?;
        let (distance, kind) = (i64::from(byte >> 4), byte & 15);
        let id = match (distance, kind) {
            (_, STOP) => before,
            (0, _) => self.integer()?,
            _ => before.checked_add(distance)?,
        };
        // The Parquet reader keeps 16 bits, so a larger id would be another one to it.
        i16::try_from(id).ok()?;
        Some(Field { id, kind })
    }

    pub fn list(&mut self) -> Option<List> {
        // The high half is the length, or 15 if it follows.
        let byte = self.byte()?;
        let elements = match byte >> 4 {
            15 => self.unsigned()?,
            few => few.into(),
        };
        Some(List { kind: byte & 15, elements })
    }

    pub fn skip(&mut self, kind: u8) -> Option<()> {
        self.skip_nested(kind, DEPTH_MAX)
    }

    fn skip_nested(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // Booleans are in the type.
            TRUE | FALSE => Some(()),
            I8 => self.skip_bytes(1),
            I16..=I64 => self.unsigned().map(drop),
            DOUBLE => self.skip_bytes(8),
            BINARY => {
                let bytes = self.unsigned()?;
                self.skip_bytes(bytes)
            }
            LIST | SET => {
                let List { kind, elements } = self.list()?;
                (0..elements).try_for_each(|_| self.skip_element(kind, depth))
            }
            MAP => {
                let pairs = self.unsigned()?;
                let kinds = if pairs == 0 { 0 } else { self.byte()? };
                (0..pairs).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 15, depth)
                })
            }
            STRUCT => loop {
                // Ids do not matter here.
                match self.field(0)?.kind {
                    STOP => break Some(()),
                    kind => self.skip_nested(kind, depth)?,
                }
            },
            UUID => self.skip_bytes(16),
            _ => None,
        }
    }

    /// Skips an element of a list, a set or a map. Every element takes a byte, so the walk is not longer than the bytes. Metadata has no
    /// lists of booleans. They are no Thrift here, because the Parquet reader takes no bytes for them: 2^31 of them keep it busy for
    /// seconds.
    fn skip_element(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            TRUE | FALSE => None,
            _ => self.skip_nested(kind, depth),
        }
    }
}
