//! Labels: one class per node, a set of classes per node, or numbers.
//!
//! ```text
//! meta    offset  bytes  content
//!              0     24  span of the chunk
//!             24      4  number of classes, or of targets
//!             28      1  kind: 0 single, 1 multi, 2 partial, 3 targets
//!             29      3  zeros
//! payload    r*w      w  entry r, the label of node first node + r
//! entry                  single: the class, or all ones if the node has no label;
//!                                w = 1 up to 255 classes, 2 up to 65,535, else 4
//!                        multi:  a bitmap; bit c (bit c % 8 of byte c / 8) is class c, and bit `classes` is set if the
//!                                node has a label; if it is not set, no bit is; w = classes / 8 + 1
//!                        partial: a bitmap; bit classes + c is set if it is known whether the node is in class c, and bit c if
//!                                it is; w = 2 * classes / 8, rounded up
//!                        targets: an f32 for each target, NaN for none; w = 4 * targets
//! ```
//!
//! Reading the label of any node costs one load.

use rkyv::{Archive, Deserialize, Serialize};

use crate::{
    FormatError, Result,
    bytes::{Fields, check_payload_length, check_payload_slice},
    container::Header,
    error::invalid_if,
    span::ChunkSpan,
};

/// The maximum number of classes: all values of 32 bits except the one for nodes without a label.
pub const CLASSES_MAX: u32 = u32::MAX;
/// The maximum number of targets.
pub const TARGETS_MAX: u32 = 1 << 24;

/// The labels of a store's nodes: the number of classes and the kind of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct LabelSpec {
    /// Number of classes, or of targets.
    pub classes: u32,
    /// Whether a node has one class, a set of classes, or numbers.
    pub kind: LabelKind,
}

/// Whether a node has one class, a set of classes, or numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum LabelKind {
    /// Each node has one class, or no label.
    Single,
    /// Each node has a set of classes, possibly empty, or no label.
    Multi,
    /// Each node has a set of classes, and some classes may be unknown: for each class, the node is in it, or not, or it is unknown.
    Partial,
    /// Each node has a number for each target, or none.
    Targets,
}

impl LabelKind {
    /// All kinds. The index of a kind is its number in files.
    const ALL: [Self; 4] = [Self::Single, Self::Multi, Self::Partial, Self::Targets];

    /// Whether the label of a node is a value for each class or target, and any of them may be missing.
    pub fn has_values(self) -> bool {
        matches!(self, Self::Partial | Self::Targets)
    }
}

impl LabelSpec {
    /// Labels of a kind, with `classes` classes or targets.
    pub const fn new(kind: LabelKind, classes: u32) -> Self {
        Self { kind, classes }
    }

    /// Bytes per entry.
    #[inline]
    pub fn row_bytes(&self) -> u32 {
        match (self.kind, self.classes) {
            (LabelKind::Single, 0..=0xff) => 1,
            (LabelKind::Single, 0x100..=0xffff) => 2,
            (LabelKind::Single, _) => 4,
            (LabelKind::Multi, classes) => classes / 8 + 1,
            (LabelKind::Partial, classes) => (2 * u64::from(classes)).div_ceil(8) as u32,
            (LabelKind::Targets, targets) => 4 * targets,
        }
    }

    /// Appends the entry of a node to a payload: its class, or `None` for no label.
    ///
    /// # Panics
    /// If the kind is not [`LabelKind::Single`], or the class is not below the number of classes.
    pub fn encode_single(&self, class: Option<u32>, payload: &mut Vec<u8>) {
        assert_eq!(self.kind, LabelKind::Single);
        assert!(class.is_none_or(|c| c < self.classes), "class {class:?} of {}", self.classes);
        let bytes = class.unwrap_or(u32::MAX).to_le_bytes();
        payload.extend_from_slice(&bytes[..self.row_bytes() as usize]);
    }

    /// Appends the entry of a node to a payload: its classes, or `None` for no label. An empty set is a label.
    ///
    /// # Panics
    /// If the kind is not [`LabelKind::Multi`], or a class is not below the number of classes.
    pub fn encode_multi(&self, classes: Option<&[u32]>, payload: &mut Vec<u8>) {
        assert_eq!(self.kind, LabelKind::Multi);
        let start = payload.len();
        payload.resize(start + self.row_bytes() as usize, 0);
        let Some(classes) = classes else { return };
        let row = &mut payload[start..];
        for &class in classes {
            assert!(class < self.classes, "class {class} of {}", self.classes);
        }
        // The bit after the classes says that there is a label.
        for &at in classes.iter().chain([&self.classes]) {
            set_bit(row, at as usize);
        }
    }

    /// Appends the entry of a node to a payload: a value for each class or target, NaN for one that is missing.
    ///
    /// # Panics
    /// If the kind has no values, their number differs, a target is infinite, or a class is neither 0, 1 nor NaN.
    pub fn encode_values(&self, values: &[f32], payload: &mut Vec<u8>) {
        assert_eq!(values.len(), self.classes as usize, "a value for each");
        let start = payload.len();
        match self.kind {
            LabelKind::Targets => {
                assert!(!values.iter().any(|value| value.is_infinite()), "{values:?}");
                // All NaN are the same, so that files do not depend on the payload of a NaN.
                let one = |value: &f32| if value.is_nan() { f32::NAN } else { *value };
                payload.extend(values.iter().flat_map(|value| one(value).to_le_bytes()));
            }
            LabelKind::Partial => {
                payload.resize(start + self.row_bytes() as usize, 0);
                let row = &mut payload[start..];
                for (class, &value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
                    assert!(value == 0.0 || value == 1.0, "{value} in class {class}");
                    set_bit(row, values.len() + class);
                    if value == 1.0 {
                        set_bit(row, class);
                    }
                }
            }
            kind => panic!("labels of kind {kind:?} have no values"),
        }
    }
}

/// The meta of a file `chunk-<i>/labels`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LabelsMeta {
    /// The nodes of the file.
    pub span: ChunkSpan,
    /// Number of classes and kind of label.
    pub spec: LabelSpec,
}

impl LabelsMeta {
    /// Length of an encoded meta.
    pub const BYTES: usize = ChunkSpan::BYTES + 8;

    /// The meta of the container file.
    pub fn encode(&self) -> Vec<u8> {
        let mut meta = Vec::with_capacity(Self::BYTES);
        self.span.encode_into(&mut meta);
        meta.extend_from_slice(&self.spec.classes.to_le_bytes());
        meta.push(self.spec.kind as u8);
        meta.resize(Self::BYTES, 0);
        meta
    }

    /// Decodes and checks the meta, and checks the length of the payload against it.
    pub fn decode(header: &Header) -> Result<Self> {
        let mut fields = Fields::from_header(header, Self::BYTES)?;
        let span = ChunkSpan::decode(&mut fields)?;
        let at = fields.offset();
        let classes = fields.u32();
        let number = fields.u8();
        let Some(&kind) = LabelKind::ALL.get(usize::from(number)) else {
            return Err(FormatError::invalid(at + 4, format!("there is no label kind {number}")));
        };
        fields.zeros::<3>()?;
        invalid_if!(classes == 0, at, "labels of 0 classes");
        invalid_if!(
            kind == LabelKind::Targets && classes > TARGETS_MAX,
            at,
            "{classes} targets; at most {TARGETS_MAX}"
        );
        let spec = LabelSpec { classes, kind };
        check_payload_length(header, span.rows.checked_mul(u64::from(spec.row_bytes())))?;
        Ok(Self { span, spec })
    }
}

/// Reader of the labels of a chunk.
///
/// ```
/// use grappa_formats::{
///     ChunkId, ChunkSpan,
///     chunks::ChunkMap,
///     container::{FileKind, decode_file, encode_file},
///     labels::{LabelKind, LabelSpec, Labels, LabelsMeta},
/// };
///
/// let spec = LabelSpec { classes: 7, kind: LabelKind::Single };
/// let mut payload = Vec::new();
/// spec.encode_single(Some(6), &mut payload);
/// spec.encode_single(None, &mut payload);
/// let meta = LabelsMeta { span: ChunkSpan::for_chunk(&ChunkMap::uniform(2, 1), ChunkId(0)), spec };
/// let (file, _) = encode_file(FileKind::LABELS, meta.encode(), &payload);
///
/// let (header, payload) = decode_file(&file, FileKind::LABELS)?;
/// let labels = Labels::new(&header, payload)?;
/// assert_eq!((labels.single(0)?, labels.single(1)?), (Some(6), None));
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Labels<'a> {
    /// The meta of the file.
    pub meta: LabelsMeta,
    payload: &'a [u8],
    payload_offset: u64,
}

impl<'a> Labels<'a> {
    /// Reads `payload`, the payload of the file with this header. Checks the meta, not the labels.
    pub fn new(header: &Header, payload: &'a [u8]) -> Result<Self> {
        check_payload_slice(header, payload)?;
        Ok(Self::with_meta(LabelsMeta::decode(header)?, header.payload_offset, payload))
    }

    /// As [`Labels::new`], with a meta that was decoded before. `payload_offset` is the place of the payload in the file, for errors.
    #[inline]
    pub fn with_meta(meta: LabelsMeta, payload_offset: u64, payload: &'a [u8]) -> Self {
        Self { meta, payload, payload_offset }
    }

    /// The class of node `row` of the chunk, or `None` if it has no label.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] if there is no such class.
    ///
    /// # Panics
    /// If there is no such node, or the kind is not [`LabelKind::Single`].
    #[inline]
    pub fn single(&self, row: u64) -> Result<Option<u32>> {
        assert_eq!(self.meta.spec.kind, LabelKind::Single);
        let bytes = self.row(row);
        let (class, unlabelled) = match *bytes {
            [a] => (u32::from(a), 0xff),
            [a, b] => (u32::from(u16::from_le_bytes([a, b])), 0xffff),
            [a, b, c, d] => (u32::from_le_bytes([a, b, c, d]), u32::MAX),
            _ => unreachable!("a class has 1, 2 or 4 bytes"),
        };
        if class < self.meta.spec.classes {
            Ok(Some(class))
        } else if class == unlabelled {
            Ok(None)
        } else {
            Err(self.invalid(row, format!("class {class} of {} classes", self.meta.spec.classes)))
        }
    }

    /// The classes of node `row` of the chunk, or `None` if it has no label.
    ///
    /// # Panics
    /// If there is no such node, or the kind is not [`LabelKind::Multi`].
    #[inline]
    pub fn multi(&self, row: u64) -> Option<ClassSet<'a>> {
        assert_eq!(self.meta.spec.kind, LabelKind::Multi);
        let set = ClassSet { bits: self.row(row), classes: self.meta.spec.classes };
        bit(set.bits, set.classes as usize).then_some(set)
    }

    /// The value of each class or target of node `row` of the chunk, NaN for one that is missing. Values of classes are 0 and 1.
    ///
    /// # Panics
    /// If there is no such node, or the kind is [`LabelKind::Single`] or [`LabelKind::Multi`].
    pub fn values(&self, row: u64) -> impl Iterator<Item = f32> + Clone + use<'a> {
        let LabelSpec { classes, kind } = self.meta.spec;
        assert!(kind.has_values(), "labels of kind {kind:?} have no values");
        let bytes = self.row(row);
        let classes = classes as usize;
        (0..classes).map(move |class| match kind {
            LabelKind::Targets => f32::from_le_bytes(bytes.as_chunks().0[class]),
            _ if bit(bytes, classes + class) => f32::from(u8::from(bit(bytes, class))),
            _ => f32::NAN,
        })
    }

    /// Checks every entry: classes exist, unused bits are 0, and targets are not infinite.
    pub fn check(&self) -> Result<()> {
        let mut rows = 0..self.meta.span.rows;
        match self.meta.spec.kind {
            LabelKind::Single => rows.try_for_each(|row| self.single(row).map(drop)),
            LabelKind::Multi => rows.try_for_each(|row| self.check_multi(row)),
            LabelKind::Partial | LabelKind::Targets => rows.try_for_each(|row| self.check_values(row)),
        }
    }

    /// Checks the entry of node `row`, which has values.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] if a target is infinite, or bits contradict each other.
    ///
    /// # Panics
    /// As [`Self::values`].
    pub fn check_values(&self, row: u64) -> Result<()> {
        match self.values(row).find(|value| value.is_infinite()) {
            Some(value) => Err(self.invalid(row, format!("a target is {value}"))),
            None if self.meta.spec.kind == LabelKind::Partial => self.check_partial(row),
            None => Ok(()),
        }
    }

    fn check_partial(&self, row: u64) -> Result<()> {
        let bytes = self.row(row);
        let classes = self.meta.spec.classes as usize;
        if (2 * classes..8 * bytes.len()).any(|at| bit(bytes, at)) {
            return Err(self.invalid(row, "a bit beyond the last class is set".into()));
        }
        match (0..classes).find(|&class| bit(bytes, class) && !bit(bytes, classes + class)) {
            Some(class) => Err(self.invalid(row, format!("the node is in class {class}, which is unknown"))),
            None => Ok(()),
        }
    }

    fn check_multi(&self, row: u64) -> Result<()> {
        let bytes = self.row(row);
        let (&last, before) = bytes.split_last().expect("a set has at least one byte");
        // The last byte starts with bit `classes / 8 * 8`. Bit `classes` is the last one with a meaning. Two shifts,
        // because a shift by 8 would overflow.
        let beyond = last >> (self.meta.spec.classes % 8) >> 1;
        if beyond != 0 {
            return Err(self.invalid(row, "a bit beyond the last class is set".into()));
        }
        if self.multi(row).is_none() && (last != 0 || before.iter().any(|&byte| byte != 0)) {
            return Err(self.invalid(row, "an unlabelled node has classes".into()));
        }
        Ok(())
    }

    #[inline]
    fn row(&self, row: u64) -> &'a [u8] {
        let width = self.meta.spec.row_bytes() as usize;
        &self.payload[row as usize * width..][..width]
    }

    #[cold]
    fn invalid(&self, row: u64, problem: String) -> FormatError {
        let at = self.payload_offset + row * u64::from(self.meta.spec.row_bytes());
        FormatError::invalid(at, format!("label of row {row}: {problem}"))
    }
}

/// The classes of one node.
///
/// ```
/// use grappa_formats::{
///     ChunkId, ChunkSpan,
///     chunks::ChunkMap,
///     container::{FileKind, decode_file, encode_file},
///     labels::{LabelKind, LabelSpec, Labels, LabelsMeta},
/// };
///
/// let spec = LabelSpec { classes: 100, kind: LabelKind::Multi };
/// let mut payload = Vec::new();
/// spec.encode_multi(Some(&[3, 99]), &mut payload);
/// let meta = LabelsMeta { span: ChunkSpan::for_chunk(&ChunkMap::uniform(1, 1), ChunkId(0)), spec };
/// let (file, _) = encode_file(FileKind::LABELS, meta.encode(), &payload);
///
/// let (header, payload) = decode_file(&file, FileKind::LABELS)?;
/// let classes = Labels::new(&header, payload)?.multi(0).expect("the node has labels");
/// assert_eq!(classes.iter().collect::<Vec<_>>(), [3, 99]);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ClassSet<'a> {
    bits: &'a [u8],
    classes: u32,
}

impl<'a> ClassSet<'a> {
    /// Whether the node has this class.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn contains(&self, class: u32) -> bool {
        assert!(class < self.classes, "class {class} of {}", self.classes);
        bit(self.bits, class as usize)
    }

    /// The classes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let set = *self;
        (0..self.classes).filter(move |&class| bit(set.bits, class as usize))
    }
}

#[inline]
fn bit(bytes: &[u8], at: usize) -> bool {
    bytes[at / 8] >> (at % 8) & 1 == 1
}

fn set_bit(bytes: &mut [u8], at: usize) {
    bytes[at / 8] |= 1 << (at % 8);
}
