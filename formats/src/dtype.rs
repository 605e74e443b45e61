//! Types of feature values, and conversion between them and f32.
//!
//! [`FeatureDtype`] is the type of the values that a store holds. [`ElementType`] is the type of the values in an input
//! array. Conversion works on slices, in loops that the compiler vectorizes, because it must keep up with several
//! drives.

use half::{f16, slice::HalfFloatSliceExt};
use rkyv::{Archive, Deserialize, Serialize};

/// The largest scale of an int8 feature row. 127 times the next f32 is infinite.
pub(crate) const SCALE_MAX: f32 = (f32::MAX / 127.0).next_down();

/// Values per call of the conversion between f16 and f32. The buffer fits in the first-level cache, and the cost of the
/// call is negligible.
const LANES: usize = 64;

/// The type of the feature values in a store.
///
/// ```
/// use grappa_formats::dtype::FeatureDtype;
///
/// assert_eq!(FeatureDtype::F16.row_bytes(100), 200);
/// assert_eq!(FeatureDtype::Int8.row_bytes(100), 104); // the scale is an f32
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum FeatureDtype {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
    /// Signed 8-bit integers. Each feature row starts with an f32 scale; a value is the scale times the integer.
    Int8,
}

impl FeatureDtype {
    /// The largest number such that all whole numbers from 0 up to it are stored exactly. Rows of [`FeatureDtype::Int8`] have scales of
    /// their own, so only 0 is.
    pub fn whole_numbers_max(self) -> u64 {
        match self {
            Self::F32 => 1 << 24,
            Self::F16 => 1 << 11,
            Self::Bf16 => 1 << 8,
            Self::Int8 => 0,
        }
    }

    /// All types. The index of a type is its number in files.
    pub(crate) const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Bf16, Self::Int8];

    /// Bytes of a feature row of `dim` values, without padding.
    pub fn row_bytes(self, dim: u32) -> u32 {
        match self {
            Self::F32 => dim.saturating_mul(4),
            Self::F16 | Self::Bf16 => dim.saturating_mul(2),
            Self::Int8 => dim.saturating_add(4),
        }
    }

    /// The name users write: `f32`, `f16`, `bf16` or `int8`.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        }
    }

    /// Writes `values` as the bytes of a feature row. See [`FeatureLayout::encode_row`] for the rounding.
    ///
    /// [`FeatureLayout::encode_row`]: crate::features::FeatureLayout::encode_row
    #[inline]
    pub(crate) fn encode(self, values: &[f32], row: &mut [u8]) {
        match self {
            Self::F32 => {
                for (bytes, value) in row.as_chunks_mut().0.iter_mut().zip(values) {
                    *bytes = value.to_le_bytes();
                }
            }
            Self::F16 => encode_f16(values, row),
            Self::Bf16 => encode_bf16(values, row),
            Self::Int8 => encode_int8(values, row),
        }
    }

    /// Reads the bytes of a feature row, without padding, into `values`.
    #[inline]
    pub(crate) fn decode(self, row: &[u8], values: &mut [f32]) {
        match self {
            Self::F32 => convert(row, values, f32::from_le_bytes),
            Self::F16 => decode_f16(row, values),
            Self::Bf16 => convert(row, values, of_bf16),
            Self::Int8 => {
                let (scale, quanta) = split_scale(row);
                convert(quanta, values, |[q]| scale * f32::from(q as i8));
            }
        }
    }

    /// Adds the values of a feature row, without padding, to `sums`.
    #[inline]
    pub(crate) fn add(self, row: &[u8], sums: &mut [f32]) {
        match self {
            Self::F32 => add_each(row, sums, f32::from_le_bytes),
            Self::F16 => {
                let mut values = [0.0; LANES];
                for (sums, row) in sums.chunks_mut(LANES).zip(row.chunks(2 * LANES)) {
                    let values = &mut values[..sums.len()];
                    decode_f16(row, values);
                    sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += *value);
                }
            }
            Self::Bf16 => add_each(row, sums, of_bf16),
            Self::Int8 => {
                let (scale, quanta) = split_scale(row);
                add_each(quanta, sums, |[q]| scale * f32::from(q as i8));
            }
        }
    }
}

/// The type of the elements of an array outside of a store, such as NumPy's. All are little-endian.
///
/// ```
/// use grappa_formats::dtype::ElementType;
///
/// let mut values = [0.0; 2];
/// ElementType::I16.to_f32(&[1, 0, 255, 255], &mut values);
/// assert_eq!(values, [1.0, -1.0]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementType {
    /// One byte, 0 or 1.
    Bool,
    /// A signed byte.
    I8,
    /// A signed 16-bit integer.
    I16,
    /// A signed 32-bit integer.
    I32,
    /// A signed 64-bit integer.
    I64,
    /// An unsigned byte.
    U8,
    /// An unsigned 16-bit integer.
    U16,
    /// An unsigned 32-bit integer.
    U32,
    /// An unsigned 64-bit integer.
    U64,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl ElementType {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// The name of the type in NumPy, or in its extension for bfloat16.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Converts values to f32, rounding to nearest.
    ///
    /// # Panics
    /// If `source` and `values` have different numbers of values.
    pub fn to_f32(self, source: &[u8], values: &mut [f32]) {
        assert_eq!(source.len(), values.len() * self.bytes(), "bytes of {self:?}");
        match self {
            Self::F16 => decode_f16(source, values),
            Self::Bf16 => convert(source, values, of_bf16),
            Self::F32 => convert(source, values, f32::from_le_bytes),
            Self::F64 => convert(source, values, |b| f64::from_le_bytes(b) as f32),
            Self::I8 => convert(source, values, |b| i8::from_le_bytes(b).into()),
            Self::I16 => convert(source, values, |b| i16::from_le_bytes(b).into()),
            Self::I32 => convert(source, values, |b| i32::from_le_bytes(b) as f32),
            Self::I64 => convert(source, values, |b| i64::from_le_bytes(b) as f32),
            Self::Bool | Self::U8 => convert(source, values, |b| u8::from_le_bytes(b).into()),
            Self::U16 => convert(source, values, |b| u16::from_le_bytes(b).into()),
            Self::U32 => convert(source, values, |b| u32::from_le_bytes(b) as f32),
            Self::U64 => convert(source, values, |b| u64::from_le_bytes(b) as f32),
        }
    }

    /// Converts one value to f64. Integers beyond 2^53 are rounded; all other values are exact.
    ///
    /// # Panics
    /// If `source` has another number of bytes than [`Self::bytes`].
    pub fn to_f64(self, source: &[u8]) -> f64 {
        match self {
            Self::F64 => f64::from_le_bytes(array(source)),
            Self::I32 => i32::from_le_bytes(array(source)).into(),
            Self::U32 => u32::from_le_bytes(array(source)).into(),
            Self::I64 => i64::from_le_bytes(array(source)) as f64,
            Self::U64 => u64::from_le_bytes(array(source)) as f64,
            _ => {
                let mut value = [0.0];
                self.to_f32(source, &mut value);
                value[0].into()
            }
        }
    }
}

fn array<const N: usize>(source: &[u8]) -> [u8; N] {
    source.try_into().expect("the bytes of one value")
}

#[inline(always)]
fn convert<const N: usize>(source: &[u8], values: &mut [f32], one: impl Fn([u8; N]) -> f32) {
    for (value, bytes) in values.iter_mut().zip(source.as_chunks().0) {
        *value = one(*bytes);
    }
}

#[inline(always)]
fn add_each<const N: usize>(source: &[u8], sums: &mut [f32], one: impl Fn([u8; N]) -> f32) {
    for (sum, bytes) in sums.iter_mut().zip(source.as_chunks().0) {
        *sum += one(*bytes);
    }
}

fn encode_f16(values: &[f32], row: &mut [u8]) {
    let mut halves = [f16::ZERO; LANES];
    for (values, bytes) in values.chunks(LANES).zip(row.as_chunks_mut().0.chunks_mut(LANES)) {
        let halves = &mut halves[..values.len()];
        halves.convert_from_f32_slice(values);
        for (bytes, half) in bytes.iter_mut().zip(halves) {
            *bytes = half.to_le_bytes();
        }
    }
}

fn decode_f16(row: &[u8], values: &mut [f32]) {
    let mut halves = [f16::ZERO; LANES];
    for (values, bytes) in values.chunks_mut(LANES).zip(row.as_chunks().0.chunks(LANES)) {
        let halves = &mut halves[..values.len()];
        for (half, bytes) in halves.iter_mut().zip(bytes) {
            *half = f16::from_le_bytes(*bytes);
        }
        halves.convert_to_f32_slice(values);
    }
}

fn encode_bf16(values: &[f32], row: &mut [u8]) {
    for (bytes, value) in row.as_chunks_mut().0.iter_mut().zip(values) {
        let bits = value.to_bits();
        // Round to nearest, ties to even. A carry into the exponent is correct, except that it must not turn NaN into
        // infinity.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let upper = if value.is_nan() { bits >> 16 | 0x40 } else { rounded };
        *bytes = (upper as u16).to_le_bytes();
    }
}

#[inline(always)]
fn of_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16)
}

/// Writes `scale = max(|v|) / 127`, then `q = v / scale` for each value, rounded to nearest, ties to even.
fn encode_int8(values: &[f32], row: &mut [u8]) {
    let (head, quanta) = row.split_at_mut(4);
    // Eight running maxima break the dependency chain, so the loop vectorizes. Infinities and NaN do not count.
    let mut maxima = [0f32; 8];
    let (eights, rest) = values.as_chunks::<8>();
    for eight in eights {
        for (max, value) in maxima.iter_mut().zip(eight) {
            *max = larger(*max, value.abs());
        }
    }
    let max = rest.iter().map(|v| v.abs()).chain(maxima).fold(0.0, larger);
    let scale = (max / 127.0).min(SCALE_MAX);
    head.copy_from_slice(&scale.to_le_bytes());
    if scale == 0.0 {
        quanta.fill(0);
        return;
    }
    for (q, value) in quanta.iter_mut().zip(values) {
        let value = if value.is_nan() { 0.0 } else { *value };
        // Clamping covers infinities, and scales so small that they are inexact. Adding 1.5 * 2^23 rounds the value to
        // an integer, which ends up in the low bits of the sum. A cast would saturate, and saturation does not
        // vectorize.
        let sum = (value / scale).clamp(-127.0, 127.0) + 12_582_912.0;
        *q = sum.to_bits() as u8;
    }
}

/// The larger of the two, where `magnitude` counts only if it is finite.
#[inline(always)]
fn larger(max: f32, magnitude: f32) -> f32 {
    if magnitude > max && magnitude < f32::INFINITY { magnitude } else { max }
}

/// The scale and the integers of an int8 feature row.
pub(crate) fn split_scale(row: &[u8]) -> (f32, &[u8]) {
    let (scale, quanta) = row.split_first_chunk().expect("an int8 row starts with its scale");
    (f32::from_le_bytes(*scale), quanta)
}
